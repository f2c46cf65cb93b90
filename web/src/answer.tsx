/** The answer: the plan to launch, its rivals, and lines to copy. */

import type { Answered } from "./answers";
import { TERMS } from "./colours";
import type { PlanDocument, Priced } from "./documents";
import { count, gib, percent, seconds, whole, words } from "./format";
import { copy, Copyable, Refusal, save, Waiting } from "./parts";
import { commandLine, type Question } from "./question";

interface Props {
    answered: Answered | null;
    error: string | null;
    busy: boolean;
    question: Question;
    shown: Priced | undefined;
    choose(plan: string): void;
}

export function Answer({ answered, error, busy, question, shown, choose }: Props) {
    if (error !== null) return <section class="card"><h2>No answer</h2><Refusal text={error} /></section>;
    if (answered === null) return <section key="searching" class="card skeleton"><h2>Searching</h2><Waiting what="The engine starts and searches every layout." /></section>;
    const { document, notes, text, tookMs } = answered;
    const { problem } = document;
    return (
        <>
            <p class="heading">
                <strong>{problem.model}</strong> on <strong>{whole(problem.gpus)} × {problem.gpu}</strong> · {whole(problem.global_batch)} × {whole(problem.seq_len)} tokens
                · {problem.precision} · {problem.stack}
                <span class="timing" role="status" data-took={tookMs.toFixed(2)}>{busy ? "searching…" : `${count(document.considered)} plans in ${seconds(tookMs / 1e3)}`}</span>
            </p>
            {document.plans.length === 0 ? <Nothing document={document} examples={answered.examples} /> : <Found document={document} isWhole={text !== null} shown={shown} choose={choose} />}
            <section class="card lines">
                <h2>Copy or save</h2>
                {shown && <Copyable label="plan" text={`--plan "${shown.plan}"`} />}
                <Copyable label="command line" text={commandLine(question)} />
                <p class="row">
                    <button type="button" onClick={() => void copy(location.href).catch(() => undefined)} title="It is also in the address bar">Copy link to this question</button>
                    <button type="button" disabled={text === null} onClick={() => text !== null && save("plan.json", text, "application/json")}>Save the document (JSON)</button>
                    <button type="button" onClick={() => print()}>Print</button>
                </p>
                {notes.length > 0 && <p class="notes">{notes.join(" · ")}</p>}
            </section>
        </>
    );
}

const DECLINED: Record<string, string> = {
    risk: "its risk of running out of memory is larger than accepted",
    unproven: "it uses mechanisms that no published run has shown",
    published: "a plan with the degrees of a published run is within run-to-run noise",
    plainer: "a plainer plan is within run-to-run noise",
};

function Found({ document, isWhole, shown, choose }: { document: PlanDocument; isWhole: boolean; shown: Priced | undefined; choose(plan: string): void }) {
    const { recommended, plans, problem } = document;
    const best = plans[(recommended?.rank ?? 1) - 1] ?? plans[0];
    if (best === undefined) return null;
    const chance = recommended?.p_best[(recommended?.rank ?? 1) - 1];
    const fastest = recommended?.fastest;
    return (
        <>
            <section class="card best">
                <h2>{recommended ? "Recommended" : "Best"}</h2>
                <Degrees plan={best} />
                <dl class="figures">
                    <div><dt>Step</dt><dd>{seconds(best.step_time_s)}<small>{seconds(best.step_time_p05_s)} to {seconds(best.step_time_p95_s)}</small></dd></div>
                    <div><dt>MFU</dt><dd>{percent(best.mfu)}<small>{whole(best.tflops_per_gpu)} TFLOP/s a GPU</small></dd></div>
                    <div><dt>Memory</dt><dd>{gib(best.peak_mem_gib)}<small>of {gib(problem.hbm_gib)}, {percent(best.oom_probability)} risk</small></dd></div>
                    <div><dt>Throughput</dt><dd>{count(best.tokens_per_s_per_gpu * problem.gpus)}<small>tokens/s, {whole(best.tokens_per_s_per_gpu)} a GPU</small></dd></div>
                    {chance !== undefined && <div><dt>Chance to be the fastest</dt><dd>{percent(chance)}<small>of {plans.length} plans, given the model's errors</small></dd></div>}
                </dl>
                {recommended?.given_up && <p class="warning">No plan keeps the {recommended.given_up === "risk" ? "accepted risk of running out of memory" : "limits of published mechanisms"}; this one comes nearest.</p>}
                {!fastest && recommended && (
                    <p class="notes">{!isWhole ? "Whether a plan beyond the accepted risk or without a published run is faster: being searched." : recommended.rank === 1 ? "It is also the fastest by the model." : ""}</p>
                )}
                {fastest && (
                    <p class="notes">
                        Fastest by the model: {degrees(fastest)}, {seconds(fastest.step_time_s)} ({percent(1 - fastest.step_time_s / best.step_time_s)} faster); not
                        recommended, because {(recommended?.fastest_declined_for ?? []).map((why) => DECLINED[why] ?? why).join(", and ")}.
                    </p>
                )}
            </section>
            <section class="card">
                <h2 id="plans">Plans</h2>
                <div class="scroll" tabIndex={0} role="region" aria-labelledby="plans">
                    <table>
                        <thead>
                            <tr><th scope="col">#</th><th scope="col">Layout</th><th scope="col" class="number">Step</th><th scope="col" class="number roomy" title="model FLOP/s utilisation">MFU</th><th scope="col" class="number" title="memory of the fullest GPU">GiB</th><th scope="col" class="number" title="risk of running out of memory">OOM</th><th scope="col" class="number" title="chance to be the fastest of these plans">Fastest</th></tr>
                        </thead>
                        <tbody>
                            {plans.map((plan, at) => (
                                <tr key={plan.plan} class={plan.plan === shown?.plan ? "chosen" : ""} onClick={() => choose(plan.plan)}>
                                    <th scope="row"><button type="button" aria-pressed={plan.plan === shown?.plan} onClick={() => choose(plan.plan)} aria-label={`Show plan ${at + 1}`}>{at + 1}</button></th>
                                    <td class="layout">{degrees(plan)}{plan.recompute === "none" ? "" : ` · recompute ${plan.recompute}`}<Bar plan={plan} /></td>
                                    <td class="number">{seconds(plan.step_time_s)}</td>
                                    <td class="number roomy">{percent(plan.mfu)}</td>
                                    <td class="number">{plan.peak_mem_gib.toFixed(1)}</td>
                                    <td class="number">{percent(plan.oom_probability)}</td>
                                    <td class="number">{recommended ? percent(recommended.p_best[at] ?? 0) : ""}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
                {document.plans.length > 1 && <p class="notes">Bars show where the time goes. Choose a plan to see it in detail.</p>}
            </section>
        </>
    );
}

/** Degrees of a plan in one line. */
export function degrees(plan: Priced): string {
    const parts = [`TP ${plan.tp}`, ...(plan.cp > 1 ? [`CP ${plan.cp}`] : []), `PP ${plan.pp}${plan.vpp > 1 ? ` × ${plan.vpp}` : ""}`, `DP ${plan.dp}`, ...(plan.ep > 1 ? [`EP ${plan.ep}`] : []), `ZeRO ${plan.zero}`];
    return parts.map((part) => part.replaceAll(" ", "\u00a0")).join(" · "); // a line ends between two degrees only
}

function Degrees({ plan }: { plan: Priced }) {
    const chips: [string, string, string][] = [
        ["TP", String(plan.tp), "tensor-parallel size"], ["CP", String(plan.cp), "context-parallel size"], ["PP", String(plan.pp), "pipeline-parallel size"],
        ["DP", String(plan.dp), "data-parallel size"], ...(plan.ep > 1 ? [["EP", String(plan.ep), "expert-parallel size"] as [string, string, string]] : []),
        ["ZeRO", String(plan.zero), "sharding of optimizer, gradients, weights"], ["chunks", String(plan.vpp), "virtual stages of a rank"],
        ["micro-batch", String(plan.micro_batch), "sequences of a micro-batch"], ["recompute", plan.recompute, "activations that backward computes again"], ["schedule", plan.schedule, "pipeline schedule"],
    ];
    return <ul class="chips">{chips.map(([name, value, title]) => <li key={name} title={title}><span>{name}</span> {value}</li>)}</ul>;
}

/** Shares of a step as one bar. */
function Bar({ plan }: { plan: Priced }) {
    const parts = Object.entries(plan.terms).filter(([, time]) => time > 0);
    const text = parts.map(([term, time]) => `${words(term)} ${percent(time / plan.step_time_s)}`).join(", ");
    return (
        <div class="bar" role="img" aria-label={text} title={text}>
            {parts.map(([term, time]) => <span key={term} style={{ width: `${(time / plan.step_time_s) * 100}%`, background: TERMS[term] ?? "#888" }} />)}
        </div>
    );
}

function Nothing({ document, examples }: { document: PlanDocument; examples: string[] }) {
    const rules = Object.entries(document.rejected).sort((a, b) => b[1] - a[1]);
    return (
        <section class="card">
            <h2>No plan runs</h2>
            {document.nearest_miss && <p>Nearest: <code>{document.nearest_miss.plan}</code>: {document.nearest_miss.reason}</p>}
            <table>
                <thead><tr><th scope="col">Rule</th><th scope="col" class="number">Rejected plans</th><th scope="col">For example</th></tr></thead>
                <tbody>{rules.map(([rule, plans]) => <tr key={rule}><td>{rule}</td><td class="number">{whole(plans)}</td><td>{examples.find((example) => example.startsWith(`${rule}: `))?.slice(rule.length + 2) ?? ""}</td></tr>)}</tbody>
            </table>
            <p class="notes">More GPUs, more memory, another global batch, a lower precision, a higher accepted risk or fewer fixed degrees may help.</p>
        </section>
    );
}
