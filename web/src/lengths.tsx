/** Memory of the fullest rank of a plan by sequence length, and the longest sequence that fits. */

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { explanation } from "./answers";
import { TENANTS } from "./colours";
import type { Explanation, Problem } from "./documents";
import { Superseded } from "./engine";
import { gib, whole, words } from "./format";
import { Figure, Legend, Waiting } from "./parts";
import type { Question } from "./question";

/** Lengths beside the one of the question, as multiples of it. */
const TIMES = [1, 2, 1 / 2, 4, 1 / 4, 8, 1 / 8, 16];

interface Size { tokens: number; peak: number; memory: Record<string, number>; refused: string | null }

/** Memory of the fullest rank, and the reason other than memory for which the plan does not run. */
function size(tokens: number, { ranks, reasons }: Explanation): Size {
    const fullest = ranks.reduce((most, rank) => (rank.peak_mem_gib > most.peak_mem_gib ? rank : most), ranks[0] ?? { rank: 0, peak_mem_gib: 0, memory: {} });
    const refused = reasons.find(({ rule }) => rule !== "out-of-memory")?.reason ?? null;
    return { tokens, peak: fullest.peak_mem_gib, memory: fullest.memory, refused: ranks.length === 0 ? (refused ?? "it has no ranks") : refused };
}

/** A plan's memory with sequences shorter and longer than the question's; the batch has as many of them. */
export function Lengths({ question, plan, problem }: { question: Question; plan: string; problem: Problem }) {
    const [sizes, setSizes] = useState<Size[]>([]);
    const lengths = TIMES.map((times) => times * problem.seq_len).filter(Number.isInteger);
    useEffect(() => {
        setSizes([]);
        let current = true;
        const run = async () => {
            for (const tokens of lengths) {
                const told = await explanation({ ...question, batch: problem.global_batch, seq: tokens }, plan).catch((why: unknown) => {
                    if (why instanceof Superseded) throw why;
                    return null; // longer than the model's positions reach, or no multiple of its degrees
                });
                if (!current) return;
                if (told !== null) setSizes((before) => [...before, size(tokens, told)].sort((a, b) => a.tokens - b.tokens));
            }
        };
        run().catch(() => undefined);
        return () => {
            current = false;
        };
    }, [question, plan]);
    const { hbm_budget_gib: budget, hbm_gib: all } = problem;
    const legal = sizes.filter(({ refused }) => refused === null);
    const longest = legal.filter(({ peak }) => peak <= budget).at(-1);
    const over = legal.find(({ tokens, peak }) => peak > budget && tokens > (longest?.tokens ?? 0));
    const tenants = Object.keys(TENANTS).filter((tenant) => legal.some(({ memory }) => (memory[tenant] ?? 0) > 0));
    const bars = legal.flatMap(({ tokens, memory }) => tenants.map((tenant) => ({ tokens, tenant, gib: memory[tenant] ?? 0 })));
    const top = Math.max(all, Math.min(all * 2, legal.at(-1)?.peak ?? 0)) * 1.04; // longer bars are cut; their sizes stand above them
    const said = legal.map(({ tokens, peak }) => `${whole(tokens)} tokens ${gib(peak)}`).join(", ");
    return (
        <>
            <h3>By sequence length</h3>
            {legal.length === 0 ? <Waiting what="Sizing the plan with shorter and longer sequences." /> : (
                <>
                    <p class="notes lengths">
                        The fullest rank under the same plan, with {whole(problem.global_batch)} sequences a step.
                        {longest && ` Of these lengths, ${whole(longest.tokens)} tokens is the longest that fits`}
                        {longest && over && `; ${whole(over.tokens)} need ${gib(over.peak)}`}{longest && "."}
                        {!longest && " None of these lengths fits."}
                    </p>
                    <Figure label={`Memory of the fullest rank by sequence length: ${said}`} draw={() => ({
                        height: 240,
                        marginLeft: 46,
                        marginRight: 12,
                        x: { label: "Ki tokens of a sequence", type: "band", padding: 0.25, tickFormat: (tokens: number) => String(tokens / 1024) },
                        y: { label: "GiB", grid: true, domain: [0, top], clamp: true },
                        marks: [
                            Plot.barY(bars, { x: "tokens", y: "gib", fill: ({ tenant }: { tenant: string }) => TENANTS[tenant] ?? "#888", title: ({ tokens, tenant, gib: value }: { tokens: number; tenant: string; gib: number }) => `${whole(tokens)} tokens: ${words(tenant)} ${gib(value)}`, tip: { pointer: "x" }, clip: true } as Plot.BarYOptions),
                            Plot.text(legal, { x: "tokens", y: ({ peak }: Size) => Math.min(peak, top), text: ({ peak }: Size) => peak.toFixed(0), dy: -7 }),
                            Plot.ruleY([budget], { stroke: "var(--bad)", strokeWidth: 1.6, strokeDasharray: "5,3" }),
                            Plot.ruleY([all], { stroke: "currentColor", strokeWidth: 1.2 }),
                        ],
                    })} />
                    <Legend entries={tenants.map((tenant) => [words(tenant), TENANTS[tenant] ?? "#888"])} />
                </>
            )}
        </>
    );
}
