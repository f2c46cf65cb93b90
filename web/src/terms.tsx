/** Where the time of a step goes: a waterfall of its terms. */

import * as Plot from "@observablehq/plot";

import { TERMS } from "./colours";
import type { Priced } from "./documents";
import { percent, seconds, words } from "./format";
import { Definitions, Figure } from "./parts";

interface Row { term: string; name: string; from: number; to: number; time: number; share: number; basis: string }

export function rows(plan: Priced): Row[] {
    let at = 0;
    return Object.entries(plan.terms).filter(([, time]) => time > 0).map(([term, time]) => {
        const from = at;
        at += time;
        return { term, name: words(term), from, to: at, time, share: time / plan.step_time_s, basis: plan.terms_basis[term.replace(/_s$/, "")] ?? "" };
    });
}

export function Terms({ plan }: { plan: Priced }) {
    const parts = rows(plan);
    return (
        <>
            <p class="lead">A step of {seconds(plan.step_time_s)}, term by term. Only exposed time counts: what hides behind compute takes none.</p>
            <Figure label={`Terms of the step: ${parts.map((row) => `${row.name} ${seconds(row.time)}`).join(", ")}`} draw={(width) => waterfall(parts, width)} />
            <div class="scroll" tabIndex={0} role="region" aria-label="Terms as a table">
                <table>
                    <thead><tr><th scope="col">Term</th><th scope="col" class="number">Time</th><th scope="col" class="number">Share</th><th scope="col">Basis</th></tr></thead>
                    <tbody>
                        {parts.map((row) => (
                            <tr key={row.term}><td class="term"><span class="swatch" style={{ background: TERMS[row.term] }} /> {row.name}</td><td class="number">{seconds(row.time)}</td><td class="number">{percent(row.share)}</td><td>{row.basis}</td></tr>
                        ))}
                        <tr class="total"><td>total</td><td class="number">{seconds(plan.step_time_s)}</td><td class="number">100 %</td><td>{plan.basis}</td></tr>
                    </tbody>
                </table>
            </div>
            <Definitions title="Each term in words" keys={parts.map((row) => row.term)} />
        </>
    );
}

function waterfall(parts: Row[], width: number): Plot.PlotOptions {
    return {
        height: 62 + parts.length * 30,
        marginLeft: width < 500 ? 112 : 130,
        marginRight: 70,
        x: { label: "seconds from the start of the step", grid: true },
        y: { label: null, domain: parts.map((row) => row.name) },
        marks: [
            Plot.barX(parts, { x1: "from", x2: "to", y: "name", fill: (row: Row) => TERMS[row.term] ?? "#888", insetTop: 3, insetBottom: 3 }),
            Plot.text(parts, { x: "to", y: "name", text: (row: Row) => `${seconds(row.time)}`, textAnchor: "start", dx: 5, fill: "currentColor" }),
            Plot.ruleX([0]),
        ],
    };
}
