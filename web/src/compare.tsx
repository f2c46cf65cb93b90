/** Two plans, term by term. */

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { degrees } from "./answer";
import { ask } from "./answers";
import type { Explanation, Picture, Priced } from "./documents";
import { gib, percent, seconds, words } from "./format";
import { Figure, Refusal } from "./parts";
import { problem, type Question } from "./question";

interface Props { plans: Priced[]; fastest: Priced | null; shown: Priced; recommended: Priced | undefined; question: Question }

export function Compare({ plans, fastest, shown, recommended, question }: Props) {
    const others = [...plans, ...(fastest && !plans.some((plan) => plan.plan === fastest.plan) ? [fastest] : [])].filter((plan) => plan.plan !== shown.plan);
    const [name, setName] = useState("");
    const [text, setText] = useState("");
    const [own, setOwn] = useState<Priced | null>(null);
    const [error, setError] = useState<string | null>(null);
    useEffect(() => setOwn(null), [question]);
    const first = recommended && recommended.plan !== shown.plan ? recommended : others[0];
    const other = own ?? others.find((plan) => plan.plan === name) ?? first;
    const price = () => {
        setError(null);
        ask<Picture>({ ask: "picture", problem: problem(question), plan: text.replace(/^--plan\s*/, "").replaceAll('"', "") })
            .then((told) => {
                const { prediction, reasons } = JSON.parse(told.explanation) as Explanation;
                if (reasons.length > 0) setError(`does not run: ${reasons.map((reason) => reason.reason).join("; ")}`);
                setOwn(prediction);
            })
            .catch((why: unknown) => setError(why instanceof Error ? why.message : String(why)));
    };
    return (
        <>
            <div class="what-if">
                <label>Against
                    <select value={own ? "" : (other?.plan ?? "")} onChange={(event) => { setOwn(null); setName(event.currentTarget.value); }}>
                        {own && <option value="">my own plan</option>}
                        {others.map((plan) => <option key={plan.plan} value={plan.plan} selected={!own && plan.plan === other?.plan}>{degrees(plan)}{plan === fastest ? " (fastest by the model)" : ""}</option>)}
                    </select>
                </label>
                <label class="wide">or my own plan
                    <input type="text" value={text} placeholder="tp=8 pp=16 vpp=8" onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && price()} />
                </label>
                <button type="button" disabled={text.trim() === ""} onClick={price}>Compare</button>
            </div>
            {error !== null && <Refusal text={error} />}
            {other ? <Difference from={shown} to={other} /> : <p>There is no other plan to compare with.</p>}
        </>
    );
}

interface Step { name: string; from: number; to: number; delta: number }

function Difference({ from, to }: { from: Priced; to: Priced }) {
    const keys = Object.keys(from.terms).filter((term) => Math.abs((to.terms[term] ?? 0) - (from.terms[term] ?? 0)) > 1e-9);
    let at = from.step_time_s;
    const steps: Step[] = keys.map((term) => {
        const delta = (to.terms[term] ?? 0) - (from.terms[term] ?? 0);
        const step = { name: words(term), from: at, to: at + delta, delta };
        at += delta;
        return step;
    });
    const bars: Step[] = [{ name: "this plan", from: 0, to: from.step_time_s, delta: 0 }, ...steps, { name: "the other", from: 0, to: to.step_time_s, delta: 0 }];
    const low = Math.min(...bars.slice(1, -1).flatMap((bar) => [bar.from, bar.to]), from.step_time_s, to.step_time_s);
    const high = Math.max(...bars.map((bar) => Math.max(bar.from, bar.to)));
    const least = Math.max(0, low - (high - low) * 0.35);
    const ratio = to.step_time_s / from.step_time_s - 1;
    return (
        <>
            <p class="lead">
                <strong>{degrees(from)}</strong> takes {seconds(from.step_time_s)}; <strong>{degrees(to)}</strong> takes {seconds(to.step_time_s)}, {percent(Math.abs(ratio))} {ratio >= 0 ? "slower" : "faster"}.
                Memory {gib(from.peak_mem_gib)} against {gib(to.peak_mem_gib)}; risk {percent(from.oom_probability)} against {percent(to.oom_probability)}.
            </p>
            <Figure label={`Difference of the step times term by term: ${steps.map((step) => `${step.name} ${step.delta > 0 ? "+" : "−"}${seconds(Math.abs(step.delta))}`).join(", ")}`}
                caption="The axis does not begin at zero, so that differences can be seen." draw={(width) => ({
                    height: 62 + bars.length * 30,
                    marginLeft: width < 500 ? 112 : 130,
                    marginRight: 84,
                    x: { label: "seconds", grid: true, domain: [least, high + (high - least) * 0.02] },
                    y: { label: null, domain: bars.map((bar) => bar.name) },
                    marks: [
                        Plot.barX(bars, { x1: (bar: Step) => Math.max(least, Math.min(bar.from, bar.to)), x2: (bar: Step) => Math.max(bar.from, bar.to), y: "name", insetTop: 4, insetBottom: 4, fill: (bar: Step) => (bar.delta === 0 ? "#2a7f9e" : bar.delta > 0 ? "var(--slower)" : "var(--faster)") }),
                        Plot.text(bars, { x: (bar: Step) => Math.max(bar.from, bar.to), y: "name", dx: 5, textAnchor: "start", fill: "currentColor", text: (bar: Step) => (bar.delta === 0 ? seconds(bar.to) : `${bar.delta > 0 ? "+" : "−"}${seconds(Math.abs(bar.delta))}`) }),
                    ],
                })} />
        </>
    );
}
