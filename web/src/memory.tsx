/** Memory by pipeline rank and by tenant, and what other settings of the plan would take. */

import * as Plot from "@observablehq/plot";
import { useEffect, useMemo, useState } from "preact/hooks";

import { picture } from "./answers";
import { TENANTS } from "./colours";
import type { Explanation, Picture, Priced } from "./documents";
import { Superseded } from "./engine";
import { gib, percent, seconds, words } from "./format";
import { Lengths } from "./lengths";
import { MemoryOverTime } from "./memorytime";
import { Definitions, Figure, Refusal } from "./parts";
import type { Question } from "./question";

interface Slice { rank: number; tenant: string; name: string; gib: number }

/** Settings that calculators of memory offer, with the values that a plan may take. */
const SETTINGS: [string, string, string[]][] = [
    ["tp", "TP", ["1", "2", "4", "8", "16"]],
    ["cp", "CP", ["1", "2", "4", "8", "16"]],
    ["pp", "PP", ["1", "2", "4", "8", "16", "32"]],
    ["ep", "EP", ["1", "2", "4", "8", "16", "32", "64"]],
    ["zero", "ZeRO stage", ["0", "1", "2", "3"]],
    ["recompute", "Recomputation", ["none", "core_attn", "layernorm", "full"]],
    ["mbs", "Micro-batch", ["1", "2", "4", "8", "16"]],
    ["vpp", "Chunks of a rank", ["1", "2", "3", "4", "6", "7", "8", "16"]],
];

/** Settings that follow from another: the engine chooses them anew when that one changes. */
function following(key: string, value: string): string[] {
    switch (key) {
        case "tp": return ["dp", "sp"];
        case "cp": return ["dp", ...(value === "1" ? ["cp-kind"] : [])];
        case "pp": return ["dp", "split", ...(value === "1" ? ["schedule", "vpp"] : [])];
        case "vpp": return ["schedule", "split"];
        default: return [];
    }
}

/** Text of a plan with one setting changed. */
export function changed(plan: string, key: string, value: string): string {
    const replaced = [key, ...following(key, value)];
    const kept = plan.split(" ").filter((setting) => setting !== "" && !replaced.includes(setting.split("=")[0] ?? ""));
    if (key === "vpp") return [...kept, ...(value === "1" ? ["schedule=1f1b"] : ["schedule=interleaved", `vpp=${value}`])].join(" ");
    return [...kept, `${key}=${value}`].join(" ");
}

function setting(plan: string, key: string, otherwise: string): string {
    return plan.split(" ").find((part) => part.startsWith(`${key}=`))?.slice(key.length + 1) ?? otherwise;
}

export function Memory({ question, plan, drawn }: { question: Question; plan: Priced; drawn: Picture }) {
    const [text, setText] = useState(plan.plan);
    const [other, setOther] = useState<Picture | null>(null);
    const [error, setError] = useState<string | null>(null);
    useEffect(() => setText(plan.plan), [plan.plan]);
    useEffect(() => {
        setError(null);
        if (text === plan.plan) {
            setOther(null);
            return undefined;
        }
        let current = true;
        picture(question, text)
            .then((told) => current && setOther(told))
            .catch((why: unknown) => current && !(why instanceof Superseded) && setError(why instanceof Error ? why.message : String(why)));
        return () => {
            current = false;
        };
    }, [text, question, plan.plan]);
    const { explanation, timeline } = other ?? drawn;
    const told = useMemo(() => JSON.parse(explanation) as Explanation, [explanation]);
    const { problem, ranks, prediction } = told;
    const fullest = ranks.reduce((most, rank) => (rank.peak_mem_gib > most.peak_mem_gib ? rank : most), ranks[0] ?? { rank: 0, peak_mem_gib: 0, memory: {} });
    const planned = other === null ? null : plan.memory;
    const over = fullest.peak_mem_gib > problem.hbm_budget_gib;
    return (
        <>
            <p class="lead">
                Rank {fullest.rank} is the fullest: <strong class={over ? "bad" : ""}>{gib(fullest.peak_mem_gib)}</strong> of {gib(problem.hbm_gib)}; {gib(problem.hbm_budget_gib)} may be filled.
                {prediction && ` A step takes ${seconds(prediction.step_time_s)}.`}
                {other && prediction && ` Against the plan: ${signed(prediction.peak_mem_gib - plan.peak_mem_gib, gib)}, step time ${signed(prediction.step_time_s / plan.step_time_s - 1, percent)}.`}
            </p>
            <div class="what-if grid" role="group" aria-label="The plan with other settings">
                {SETTINGS.filter(([key]) => key !== "ep" || plan.plan.includes(" ep=")).map(([key, title, values]) => {
                    const now = setting(text, key, key === "vpp" ? "1" : key === "recompute" ? "none" : "1");
                    const all = values.includes(now) ? values : [...values, now];
                    return (
                        <label key={key}>{title}
                            <select value={now} onChange={(event) => setText(changed(text, key, event.currentTarget.value))}>
                                {all.map((value) => <option key={value} value={value} selected={value === now}>{value}</option>)}
                            </select>
                        </label>
                    );
                })}
                <button type="button" disabled={text === plan.plan} onClick={() => setText(plan.plan)}>As planned</button>
            </div>
            {error !== null && <Refusal text={error} />}
            {told.reasons.map((reason) => <p class="warning" key={reason.reason}>Does not run: {reason.reason}</p>)}
            <Figure label={`Memory of each pipeline rank by tenant; rank ${fullest.rank} is the fullest with ${gib(fullest.peak_mem_gib)}`} draw={(width) => bars(told, width)} />
            <div class="scroll" tabIndex={0} role="region" aria-label="Memory of the fullest rank as a table">
                <table>
                    <thead><tr><th scope="col">Memory of rank {fullest.rank}</th><th scope="col" class="number">GiB</th><th scope="col" class="number">Share</th>{planned && <th scope="col" class="number">As planned</th>}</tr></thead>
                    <tbody>
                        {Object.entries(fullest.memory).map(([tenant, value]) => (
                            <tr key={tenant}><td class="term"><span class="swatch" style={{ background: TENANTS[tenant] }} /> {words(tenant)}</td><td class="number">{value.toFixed(2)}</td><td class="number">{percent(value / fullest.peak_mem_gib)}</td>{planned && <td class="number">{(planned[tenant] ?? 0).toFixed(2)}</td>}</tr>
                        ))}
                        <tr class="total"><td>peak</td><td class="number">{fullest.peak_mem_gib.toFixed(2)}</td><td class="number">100 %</td>{planned && <td class="number">{plan.peak_mem_gib.toFixed(2)}</td>}</tr>
                    </tbody>
                </table>
            </div>
            <Definitions title="Each part in words" keys={Object.keys(fullest.memory)} />
            {timeline && <MemoryOverTime timeline={timeline} explanation={told} />}
            <Lengths question={question} plan={text} problem={problem} />
        </>
    );
}

function signed(value: number, text: (size: number) => string): string {
    return `${value < 0 ? "−" : "+"}${text(Math.abs(value))}`;
}

function bars({ ranks, problem }: Explanation, width: number): Plot.PlotOptions {
    const slices: Slice[] = ranks.flatMap(({ rank, memory }) => Object.entries(memory).map(([tenant, value]) => ({ rank, tenant, name: words(tenant), gib: value })));
    const order = Object.keys(TENANTS);
    return {
        height: 320,
        marginLeft: 46,
        marginRight: 12,
        x: { label: "pipeline rank", type: "band", round: false, padding: ranks.length > 24 ? 0.06 : 0.16, tickFormat: (rank: number) => (ranks.length * 22 > width && rank % Math.ceil((ranks.length * 22) / width) !== 0 ? "" : String(rank)) },
        y: { label: "GiB", grid: true, domain: [0, Math.max(problem.hbm_gib, ...ranks.map((rank) => rank.peak_mem_gib)) * 1.04] },
        marks: [
            Plot.barY(slices, { x: "rank", y: "gib", fill: (slice: Slice) => TENANTS[slice.tenant] ?? "#888", order: (a: Slice, b: Slice) => order.indexOf(a.tenant) - order.indexOf(b.tenant), title: (slice: Slice) => `rank ${slice.rank}: ${slice.name} ${gib(slice.gib)}`, tip: { pointer: "x" } } as Plot.BarYOptions),
            Plot.ruleY([problem.hbm_budget_gib], { stroke: "var(--bad)", strokeWidth: 1.6, strokeDasharray: "5,3" }),
            Plot.ruleY([problem.hbm_gib], { stroke: "currentColor", strokeWidth: 1.2 }),
            Plot.text([problem.hbm_budget_gib], { y: (value: number) => value, text: () => "may be filled", frameAnchor: "left", dy: 8, dx: 4, fill: "var(--bad)" }),
        ],
    };
}
