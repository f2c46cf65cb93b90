/** Views of one plan, one at a time. */

import { useEffect, useRef, useState } from "preact/hooks";

import { usePicture, type Answered } from "./answers";
import type { Priced } from "./documents";
import { Compare } from "./compare";
import { Launch } from "./launch";
import { Memory } from "./memory";
import { Money } from "./money";
import { Network } from "./network";
import { Refusal, Waiting } from "./parts";
import { Pipeline } from "./pipeline";
import { Roofline } from "./roofline";
import { Scaling } from "./scaling";
import { SensitivityView } from "./sensitivity";
import type { TextFile } from "./runs";
import { Terms } from "./terms";
import { Tuning } from "./tuning";

const TABS = [
    ["time", "Where time goes"],
    ["memory", "Memory"],
    ["pipeline", "Pipeline"],
    ["compare", "Compare"],
    ["sensitivity", "Sensitivity"],
    ["scaling", "Scaling"],
    ["network", "Network"],
    ["roofline", "Roofline"],
    ["tune", "Tune"],
    ["money", "Time and money"],
    ["launch", "Launch files"],
] as const;
export type Tab = (typeof TABS)[number][0];

/** View of a name, or where the time goes. */
export function tabOf(name: string | null): Tab {
    return TABS.find(([tab]) => tab === name)?.[0] ?? "time";
}

/** Quiet time after which drawings follow an answer; while a control moves they would cost more than the search. */
const QUIET_MS = 120;

interface Shown { answered: Answered; shown: Priced; recommended: Priced | undefined }

/** Newest value once it rests, the first at once. */
function useRested<T>(value: T): T {
    const [rested, setRested] = useState(value);
    useEffect(() => {
        const timer = setTimeout(() => setRested(() => value), QUIET_MS);
        return () => clearTimeout(timer);
    }, Object.values(value as object));
    return rested;
}

interface Props extends Shown { logs: TextFile[]; tab: Tab; setTab(tab: Tab): void }

export function Views({ logs, tab, setTab, ...newest }: Props) {
    const { answered, shown, recommended } = useRested(newest);
    const list = useRef<HTMLDivElement>(null);
    const drawn = usePicture(answered.question, ["memory", "pipeline", "network", "roofline"].includes(tab) ? shown.plan : undefined);
    useEffect(() => {
        const [tabs, one] = [list.current, list.current?.querySelector<HTMLElement>("[aria-selected=true]")];
        if (!tabs || !one) return;
        // Only the list moves, not the page.
        const [left, right] = [one.offsetLeft - tabs.offsetLeft, one.offsetLeft - tabs.offsetLeft + one.offsetWidth];
        if (left < tabs.scrollLeft) tabs.scrollLeft = left;
        else if (right > tabs.scrollLeft + tabs.clientWidth) tabs.scrollLeft = right - tabs.clientWidth;
    }, [tab]);
    const move = (event: KeyboardEvent) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step === undefined) return;
        const at = TABS.findIndex(([name]) => name === tab);
        const next = TABS[(at + step + TABS.length) % TABS.length];
        if (next === undefined) return;
        setTab(next[0]);
        list.current?.querySelector<HTMLElement>(`#tab-${next[0]}`)?.focus();
    };
    return (
        <section class="card views">
            <h2 class="hidden">One plan in detail</h2>
            <div class="tabs" role="tablist" aria-label="Views of the chosen plan" ref={list} onKeyDown={move}>
                {TABS.map(([name, title]) => (
                    <button key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={tab === name} aria-controls="view" tabIndex={tab === name ? 0 : -1} onClick={() => setTab(name)}>
                        {title}
                    </button>
                ))}
            </div>
            <div id="view" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
                {tab === "time" && <Terms plan={shown} />}
                {tab === "compare" && <Compare plans={answered.document.plans} fastest={answered.document.recommended?.fastest ?? null} shown={shown} recommended={recommended} question={answered.question} />}
                {tab === "sensitivity" && <SensitivityView question={answered.question} />}
                {tab === "scaling" && <Scaling question={answered.question} problem={answered.document.problem} />}
                {tab === "tune" && <Tuning question={answered.question} plans={answered.document.plans} logs={logs} />}
                {tab === "money" && <Money document={answered.document} shown={shown} question={answered.question} />}
                {tab === "launch" && <Launch question={answered.question} plan={shown} stack={answered.document.problem.stack} />}
                {["memory", "pipeline", "network", "roofline"].includes(tab) && <Drawing tab={tab} answered={answered} shown={shown} state={drawn} />}
            </div>
        </section>
    );
}

function Drawing({ tab, answered, shown, state }: { tab: Tab; answered: Answered; shown: Priced; state: ReturnType<typeof usePicture> }) {
    if (state.error !== null) return <Refusal text={state.error} />;
    if (state.drawn === null) return <Waiting what="Drawing the plan." />;
    const { picture } = state.drawn;
    switch (tab) {
        case "memory": return <Memory question={answered.question} plan={shown} drawn={picture} />;
        case "pipeline": return picture.timeline ? <Pipeline timeline={picture.timeline} question={answered.question} plan={shown} /> : <p>This schedule runs no whole number of micro-batches, so it is not drawn.</p>;
        case "network": return <Network network={picture.groups} plan={shown} />;
        case "roofline": return <Roofline kernels={picture.kernels} />;
        default: return null;
    }
}
