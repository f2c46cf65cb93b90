/** Throughput, days and dollars of one batch on fewer and more GPUs. */

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { degrees } from "./answer";
import { sized, type Sized } from "./answers";
import type { Problem } from "./documents";
import { count, dollars, percent, seconds, significant, whole } from "./format";
import { Figure, Refusal, Waiting } from "./parts";
import type { Question } from "./question";

/** Sizes beside the one of the question, as shares of it. */
const SHARES = [1, 1 / 2, 2, 1 / 4, 4, 1 / 8, 1 / 16];

interface Point { gpus: number; rate: number; text: string }

/** Widest label of an axis, in pixels. */
const LABEL = 48;

export function Scaling({ question, problem }: { question: Question; problem: Problem }) {
    const [found, setFound] = useState<Sized[]>([]);
    const [error, setError] = useState<string | null>(null);
    const sizes = SHARES.map((share) => share * problem.gpus).filter((gpus) => gpus >= 1 && Number.isInteger(gpus));
    useEffect(() => {
        setFound([]);
        setError(null);
        const asked = { ...question, batch: problem.global_batch, seq: problem.seq_len };
        return sized(asked, sizes, (one) => setFound((before) => [...before, one].sort((a, b) => a.gpus - b.gpus)), setError);
    }, [question]);
    if (error !== null) return <Refusal text={error} />;
    const points = found.flatMap(({ gpus, plan }): Point[] => {
        if (plan === null) return [];
        const rate = plan.tokens_per_s_per_gpu * gpus;
        return [{ gpus, rate, text: `${whole(gpus)} GPUs\n${count(rate)} tokens/s, ${percent(plan.mfu)} MFU` }];
    });
    const own = points.find((point) => point.gpus === problem.gpus);
    const ideal = own === undefined ? [] : points.map(({ gpus }) => ({ gpus, rate: (own.rate * gpus) / own.gpus }));
    const hasBills = found.some(({ bill }) => bill !== null);
    return (
        <>
            <p class="lead">
                The recommended plan for the same batch of {whole(problem.global_batch)} sequences on fewer and more GPUs. The dashed line keeps the throughput that each of the {whole(problem.gpus)} GPUs has now.
            </p>
            {found.length < sizes.length && <Waiting what={`Searching on ${whole(sizes[found.length] ?? 0)} GPUs, ${found.length + 1} of ${sizes.length}.`} />}
            {points.length > 1 && (
                <Figure label={`Throughput by number of GPUs: ${points.map(({ gpus, rate }) => `${whole(gpus)} GPUs ${count(rate)} tokens per second`).join(", ")}`} draw={(width) => ({
                    height: 320,
                    marginLeft: 62,
                    marginRight: 24,
                    x: { type: "log", base: 2, label: "GPUs", ticks: points.map(({ gpus }) => gpus).filter((_, at) => at % Math.ceil((points.length * LABEL) / (width - 86)) === 0), tickFormat: (value: number) => whole(value) },
                    y: { type: "log", label: "tokens/s", grid: true, ticks: 5, tickFormat: (value: number) => count(value).replace(/\.0+(?= )/, "") },
                    marks: [
                        Plot.line(ideal, { x: "gpus", y: "rate", stroke: "currentColor", strokeOpacity: 0.6, strokeDasharray: "4 4" }),
                        Plot.line(points, { x: "gpus", y: "rate", stroke: "var(--accent)", strokeWidth: 2 }),
                        Plot.dot(points, { x: "gpus", y: "rate", r: 4, fill: "var(--accent)", title: "text", tip: true }),
                    ],
                })} />
            )}
            {found.length > 0 && (
                <div class="scroll" tabIndex={0} role="region" aria-label="Plans by number of GPUs">
                    <table class="sizes">
                        <thead>
                            <tr>
                                <th scope="col" class="number">GPUs</th><th scope="col">Layout</th><th scope="col" class="number">Step</th><th scope="col" class="number">MFU</th><th scope="col" class="number">Tokens/s</th>
                                {hasBills && <><th scope="col" class="number">Days</th><th scope="col" class="number">Cost</th></>}
                            </tr>
                        </thead>
                        <tbody>
                            {found.map(({ gpus, plan, bill }) => (
                                <tr key={gpus} class={gpus === problem.gpus ? "chosen" : ""}>
                                    <th scope="row" class="number">{whole(gpus)}</th>
                                    {plan === null ? <td colSpan={hasBills ? 6 : 4}>no plan runs</td> : (
                                        <>
                                            <td class="layout">{degrees(plan)}</td>
                                            <td class="number">{seconds(plan.step_time_s)}</td>
                                            <td class="number">{percent(plan.mfu)}</td>
                                            <td class="number">{count(plan.tokens_per_s_per_gpu * gpus)}</td>
                                            {hasBills && <><td class="number">{bill ? significant(bill.days) : ""}</td><td class="number">{bill ? dollars(bill.cost_usd) : ""}</td></>}
                                        </>
                                    )}
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </>
    );
}
