/** Memory of one pipeline rank over a step: activations rise with each forward pass and fall with each backward pass. */

import * as Plot from "@observablehq/plot";
import { useState } from "preact/hooks";

import { TENANTS } from "./colours";
import type { Explanation, Timeline } from "./documents";
import { gib, seconds } from "./format";
import { Figure, Legend } from "./parts";

interface Level { time: number; gib: number; inFlight: number }

/** Memory of a rank after each of its passes; what is not activations is at its peak throughout. */
export function levels(timeline: Timeline, rank: number, rest: number): Level[] {
    const kept = timeline.kept_gib[rank] ?? 0;
    const changes = timeline.rank.flatMap((of, at): { time: number; by: number }[] => {
        if (of !== rank) return [];
        switch (timeline.pass[at]) {
            case "F": return [{ time: timeline.start_s[at] ?? 0, by: 1 }];
            case "W": return [];
            default: return [{ time: timeline.end_s[at] ?? 0, by: -1 }];
        }
    });
    changes.sort((a, b) => a.time - b.time || a.by - b.by);
    let inFlight = 0;
    const found = changes.map(({ time, by }) => {
        inFlight += by;
        return { time, gib: rest + kept * inFlight, inFlight };
    });
    return [{ time: 0, gib: rest, inFlight: 0 }, ...found, { time: timeline.makespan_s + timeline.after_s, gib: rest, inFlight: 0 }];
}

export function MemoryOverTime({ timeline, explanation }: { timeline: Timeline; explanation: Explanation }) {
    const [asked, setAsked] = useState<number | null>(null);
    const { ranks, problem } = explanation;
    const fullest = ranks.reduce((most, one) => (one.peak_mem_gib > (most?.peak_mem_gib ?? 0) ? one : most), ranks[0]);
    const rank = asked !== null && asked < ranks.length ? asked : (fullest?.rank ?? 0);
    const of = ranks.find((one) => one.rank === rank);
    if (of === undefined) return null;
    const rest = of.peak_mem_gib - (of.memory["activations_gib"] ?? 0);
    const points = levels(timeline, rank, rest);
    const most = points.reduce((high, point) => (point.gib > high.gib ? point : high));
    const activations = TENANTS["activations_gib"] ?? "#888";
    return (
        <>
            <h3>Over the step</h3>
            <div class="what-if">
                <label>Rank
                    <select value={rank} onChange={(event) => setAsked(Number(event.currentTarget.value))}>
                        {ranks.map((one) => <option key={one.rank} value={one.rank} selected={one.rank === rank}>{one.rank}</option>)}
                    </select>
                </label>
                <p class="notes">Most passes in flight: {most.inFlight}, each with {(timeline.kept_gib[rank] ?? 0).toFixed(2)} GiB of activations, at {seconds(most.time)}.</p>
            </div>
            <Figure label={`Memory of rank ${rank} over the step: at most ${gib(most.gib)}, with ${most.inFlight} passes in flight at ${seconds(most.time)}`} draw={() => ({
                height: 220,
                marginLeft: 46,
                marginRight: 12,
                x: { label: "seconds from the start of the step", domain: [0, timeline.makespan_s + timeline.after_s] },
                y: { label: "GiB", grid: true, domain: [0, Math.max(problem.hbm_gib, most.gib) * 1.04] },
                marks: [
                    Plot.areaY(points, { x: "time", y1: rest, y2: "gib", curve: "step-after", fill: activations, fillOpacity: 0.75 }),
                    Plot.areaY(points, { x: "time", y1: 0, y2: rest, fill: TENANTS["weights_gib"] ?? "#888", fillOpacity: 0.75 }),
                    Plot.ruleY([problem.hbm_budget_gib], { stroke: "var(--bad)", strokeWidth: 1.6, strokeDasharray: "5,3" }),
                    Plot.ruleY([problem.hbm_gib], { stroke: "currentColor", strokeWidth: 1.2 }),
                ],
            })} />
            <Legend entries={[["activations", activations], ["everything else, at its peak", TENANTS["weights_gib"] ?? "#888"]]} />
        </>
    );
}
