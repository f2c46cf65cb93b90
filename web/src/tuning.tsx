/** Plans in the light of those that were timed: which is the fastest by now, and which to time next. */

import { useEffect, useState } from "preact/hooks";

import { degrees } from "./answer";
import { ask } from "./answers";
import type { Priced, Timed } from "./documents";
import { Superseded } from "./engine";
import { percent, seconds } from "./format";
import { Copyable, Refusal, Waiting } from "./parts";
import { problem, type Question } from "./question";
import type { TextFile } from "./runs";

/** Loss of step time that does not matter, as `tune init` assumes it. */
const TOLERANCE = 0.05;

export function Tuning({ question, plans, logs }: { question: Question; plans: Priced[]; logs: TextFile[] }) {
    const [measured, setMeasured] = useState<Record<string, number>>({});
    const [failed, setFailed] = useState<string[]>([]);
    const [told, setTold] = useState<Timed | null>(null);
    const [error, setError] = useState<string | null>(null);
    const names = plans.map((plan) => plan.plan);
    const known = Object.fromEntries(Object.entries(measured).filter(([plan]) => names.includes(plan)));
    const key = JSON.stringify({ problem: problem(question), plans: names, measured: known, failed: failed.filter((plan) => names.includes(plan)), logs, tolerance: TOLERANCE });
    useEffect(() => {
        let current = true;
        ask<Timed>({ ask: "timed", question: JSON.parse(key) as object })
            .then((answer) => { if (current) { setTold(answer); setError(null); } })
            .catch((why: unknown) => current && !(why instanceof Superseded) && setError(why instanceof Error ? why.message : String(why)));
        return () => {
            current = false;
        };
    }, [key]);
    const of = (plan: string) => plans.find((known) => known.plan === plan);
    const time = (plan: string, text: string) => {
        const value = Number(text);
        setMeasured((before) => {
            const { [plan]: _, ...others } = before;
            return text.trim() !== "" && value > 0 && Number.isFinite(value) ? { ...others, [plan]: value } : others;
        });
    };
    return (
        <>
            <p class="lead">Time a few steps of some plans and enter the step times: every timing says something about the others, as their errors go together. A training log of one of these plans may also be dropped on the page.</p>
            {error !== null && <Refusal text={error} />}
            {told === null ? error === null && <Waiting what="Weighing the plans." /> : (
                <>
                    <p class="lead">
                        {told.plans.some((plan) => plan.measured_s !== null) ? `The fastest that was timed is within ${percent(TOLERANCE)} of the fastest of all with ${percent(told.within)}; stopping now loses ${percent(told.loss)} in the mean.` : "Nothing was timed yet."}
                        {" "}{told.decided ? "It is decided." : told.next !== null && <>Time next: <strong>{degrees(of(told.next) ?? plans[0]!)}</strong>.</>}
                    </p>
                    {told.next !== null && !told.decided && <Copyable label="plan to time next" text={`--plan "${told.next}"`} />}
                    <div class="scroll" tabIndex={0} role="region" aria-label="Plans and timings">
                        <table>
                            <thead><tr><th scope="col">Plan</th><th scope="col">Measured, s</th><th scope="col" title="ran out of memory">OOM</th><th scope="col" class="number">Now believed</th><th scope="col" class="number">Predicted</th><th scope="col" class="number">Fastest</th><th scope="col" class="number">Fits</th></tr></thead>
                            <tbody>
                                {told.plans.map((plan) => {
                                    const layout = of(plan.plan);
                                    const name = layout ? degrees(layout) : plan.plan;
                                    return (
                                        <tr key={plan.plan} class={plan.plan === told.next ? "chosen" : ""}>
                                            <td class="layout" title={plan.plan}>{name}{plan.from && <small> from {plan.from}</small>}</td>
                                            <td class="measured"><input type="text" inputMode="decimal" aria-label={`Measured step time of ${name} in seconds`} value={measured[plan.plan] ?? (plan.from ? plan.measured_s : "") ?? ""} onChange={(event) => time(plan.plan, event.currentTarget.value)} /></td>
                                            <td><input type="checkbox" aria-label={`${name} ran out of memory`} checked={failed.includes(plan.plan)} onChange={(event) => setFailed((before) => (event.currentTarget.checked ? [...before, plan.plan] : before.filter((known) => known !== plan.plan)))} /></td>
                                            <td class="number">{seconds(plan.median_s)}<small class="below">{seconds(plan.p05_s)} to {seconds(plan.p95_s)}</small></td>
                                            <td class="number">{seconds(plan.predicted_s)}</td>
                                            <td class="number">{percent(plan.best)}</td>
                                            <td class="number">{percent(plan.runs)}</td>
                                        </tr>
                                    );
                                })}
                            </tbody>
                        </table>
                    </div>
                </>
            )}
        </>
    );
}
