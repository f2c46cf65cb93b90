/** Effect of each change on the best plan: a tornado. */

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { sensitivity, type Sensitivity } from "./answers";
import type { Changed } from "./documents";
import { Superseded } from "./engine";
import { percent, seconds } from "./format";
import { Figure, Refusal, Waiting } from "./parts";
import type { Question } from "./question";

/** Width of a figure beside its bar, in pixels. */
const LABEL = 54;

const NAMES: Record<string, string> = { vpp: "chunks", mbs: "micro-batch", zero: "ZeRO", peak: "peak FLOP/s" };

/** Name of a change: the engine's begins with a key of a plan's text, or with a hardware figure. */
function title(what: string): string {
    return what.replace(/^[a-z]+/, (key) => NAMES[key] ?? (key.length === 2 ? key.toUpperCase() : key));
}

export function SensitivityView({ question }: { question: Question }) {
    const [told, setTold] = useState<Sensitivity | null>(null);
    const [error, setError] = useState<string | null>(null);
    useEffect(() => {
        let current = true;
        setTold(null);
        setError(null);
        sensitivity(question)
            .then((found) => current && setTold(found))
            .catch((why: unknown) => current && !(why instanceof Superseded) && setError(why instanceof Error ? why.message : String(why)));
        return () => {
            current = false;
        };
    }, [question]);
    if (error !== null) return <Refusal text={error} />;
    if (told === null) return <Waiting what="Solving again with each degree one step lower and higher, and with 10 % more of each hardware figure." />;
    const rows = told.changes.filter((change) => change.slower !== null).sort((a, b) => Math.abs(b.slower ?? 0) - Math.abs(a.slower ?? 0));
    const none = told.changes.filter((change) => change.slower === null);
    const [least, most] = [Math.min(0, ...rows.map((row) => row.slower ?? 0)), Math.max(0.001, ...rows.map((row) => row.slower ?? 0))];
    return (
        <>
            <p class="lead">
                The optimum takes {seconds(told.optimum.step_time_s)}. Each bar is the optimum after one change: another degree must be used, or 10 % more of one hardware figure is there.
            </p>
            <Figure label={`Sensitivity of the step time: ${rows.map((row) => `${title(row.what)} ${percent(row.slower ?? 0)}`).join(", ")}`} draw={(width) => {
                const left = width < 500 ? 148 : 220;
                const room = ((most - least) * LABEL) / Math.max(80, width - left - 12 - 2 * LABEL);
                return {
                height: 62 + rows.length * 24,
                marginLeft: left,
                marginRight: 12,
                x: { label: "step time against the optimum", grid: true, domain: [least - room, most + room], tickFormat: (value: number) => percent(value) },
                y: { label: null, domain: rows.map((row) => row.what), tickSize: 0, tickFormat: title },
                marks: [
                    Plot.barX(rows, { x: "slower", y: "what", insetTop: 2, insetBottom: 2, fill: (row: Changed) => ((row.slower ?? 0) > 0 ? "var(--slower)" : "var(--faster)") }),
                    Plot.text(rows, { x: "slower", y: "what", dx: 4, textAnchor: "start", fill: "currentColor", filter: (row: Changed) => (row.slower ?? 0) >= 0, text: (row: Changed) => `+${percent(row.slower ?? 0)}` }),
                    Plot.text(rows, { x: "slower", y: "what", dx: -4, textAnchor: "end", fill: "currentColor", filter: (row: Changed) => (row.slower ?? 0) < 0, text: (row: Changed) => percent(row.slower ?? 0) }),
                    Plot.ruleX([0]),
                ],
            }; }} />
            {none.length > 0 && <p class="notes">No plan runs with: {none.map((change) => title(change.what)).join(", ")}.</p>}
        </>
    );
}
