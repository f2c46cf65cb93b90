/** The page: a question on the left, its answer on the right. */

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";

import { Answer } from "./answer";
import { useAnswers } from "./answers";
import { Controls } from "./controls";
import type { Catalogue } from "./documents";
import { Drop, type Panels } from "./drop";
import { Lint } from "./lint";
import { Refusal } from "./parts";
import { FIRST, fromFragment, toFragment, type Question } from "./question";
import { Logs, Validation } from "./runs";
import { tabOf, Views } from "./views";

/** Entries of the catalogue, which the module told when the page was built. */
declare const CATALOGUE: Catalogue;

/** View and plan that an address shows. */
function shownIn(fragment: string): { view: string | null; plan: string | null } {
    const fields = new URLSearchParams(fragment.replace(/^#/, ""));
    return { view: fields.get("view"), plan: fields.get("plan") };
}

/** Name of the GPU of a question's cluster, of the catalogue or of a file of one's own. */
function gpuOf({ cluster, texts }: Question): string | undefined {
    return CATALOGUE.clusters.find((entry) => entry.name === cluster)?.gpu_file ?? /^gpu\s*=\s*"(.+)"/m.exec(texts[cluster] ?? "")?.[1];
}

export type Change = (change: Partial<Question>) => void;

export function App() {
    const [question, setQuestion] = useState<Question>(() => fromFragment(location.hash));
    const [chosen, setChosen] = useState<string | null>(() => shownIn(location.hash).plan);
    const [tab, setTab] = useState(() => tabOf(shownIn(location.hash).view));
    const [panels, setPanels] = useState<Panels>({ launch: null, logs: [], runs: null, refused: null });
    const show = useCallback((part: Partial<Panels>) => setPanels((before) => ({ ...before, ...part })), []);
    const { answered, error, busy } = useAnswers(question);

    // Files of a user's own stay to be chosen: a cluster that is dropped after a model takes nothing from it.
    const change: Change = useCallback((part) => setQuestion((before) => ({ ...before, ...part, texts: part.texts ? { ...before.texts, ...part.texts } : before.texts })), []);

    useEffect(() => {
        const follow = () => {
            const { view, plan } = shownIn(location.hash);
            setQuestion(fromFragment(location.hash));
            setChosen(plan);
            setTab(tabOf(view));
        };
        addEventListener("hashchange", follow);
        return () => removeEventListener("hashchange", follow);
    }, []);

    // What was dropped is shown above the answer, out of sight of who has scrolled down.
    useEffect(() => {
        if (panels.launch || panels.runs || panels.logs.length > 0 || panels.refused !== null) document.getElementById("answer")?.scrollIntoView();
    }, [panels]);

    const plans = answered?.document.plans ?? [];
    const recommended = plans[(answered?.document.recommended?.rank ?? 1) - 1] ?? plans[0];
    const shown = plans.find((plan) => plan.plan === chosen) ?? recommended;
    // A plan of another question is none of this link.
    const linked = answered === null || shown?.plan === chosen ? chosen : null;

    useEffect(() => {
        const timer = setTimeout(() => history.replaceState(null, "", `#${toFragment(question)}${tab === "time" ? "" : `&view=${tab}`}${linked === null ? "" : `&plan=${encodeURIComponent(linked)}`}`), 200);
        return () => clearTimeout(timer);
    }, [question, tab, linked]);

    // Views are those of an answer: a question that has none yet changes nothing in them.
    const views = useMemo(
        () => answered && shown && !error && <Views answered={answered} shown={shown} recommended={recommended} logs={panels.logs} tab={tab} setTab={setTab} />,
        [answered, shown, recommended, error, panels.logs, tab],
    );

    return (
        <Drop change={change} show={show}>
            <a class="skip" href="#answer">Skip to the answer</a>
            <header class="top">
                <h1><span class="mark" aria-hidden="true" /> meshwright</h1>
                <p>Which parallel layout of this model on this cluster is fastest, does it fit, and how sure is that?</p>
                <p class="private" title="The search runs in this page. No request leaves it.">Runs in this page · nothing is sent</p>
            </header>
            <div class="columns">
                <Controls question={question} change={change} show={show} catalogue={CATALOGUE} problem={answered?.document.problem ?? null} reset={() => setQuestion(FIRST)} />
                <main id="answer" aria-busy={busy}>
                    {panels.refused !== null && <Refusal text={panels.refused} />}
                    {panels.launch && <Lint file={panels.launch} question={question} close={() => show({ launch: null })} />}
                    {panels.runs && <Validation file={panels.runs} close={() => show({ runs: null })} />}
                    {panels.logs.length > 0 && <Logs logs={panels.logs} gpu={gpuOf(question)} close={() => show({ logs: [] })} />}
                    <Answer answered={answered} error={error} busy={busy} question={question} shown={shown} choose={setChosen} />
                    {views}
                    <footer class="foot">
                        <p>
                            Predictions of an analytic model, with intervals that hold nine of ten published runs. The same question on a
                            command line gives the same digits. {`meshwright ${CATALOGUE.version}`}
                        </p>
                    </footer>
                </main>
            </div>
        </Drop>
    );
}
