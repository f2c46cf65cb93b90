/** A user's own runs: logs that were dropped, each against its prediction, and files of runs, scored. */

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { ask } from "./answers";
import type { LogRows, Scores } from "./documents";
import { Superseded, type Request } from "./engine";
import { percent, seconds } from "./format";
import { Figure, Legend, Refusal, save, Waiting } from "./parts";

export interface TextFile { name: string; text: string }

/** Answer to a request, asked again when its key changes. */
function useAsked<T>(request: Request): { told: T | null; error: string | null } {
    const key = JSON.stringify(request);
    const [state, setState] = useState<{ told: T | null; error: string | null }>({ told: null, error: null });
    useEffect(() => {
        let current = true;
        setState({ told: null, error: null });
        ask<T>(JSON.parse(key) as Request)
            .then((told) => current && setState({ told, error: null }))
            .catch((why: unknown) => current && !(why instanceof Superseded) && setState({ told: null, error: why instanceof Error ? why.message : String(why) }));
        return () => {
            current = false;
        };
    }, [key]);
    return state;
}

/** Logs as rows, with what they lack to be filled in. */
export function Logs({ logs, gpu, close }: { logs: TextFile[]; gpu: string | undefined; close(): void }) {
    const [cells, setCells] = useState<Record<string, string>>({});
    const filled = Object.fromEntries(Object.entries({ ...(gpu ? { gpu } : {}), ...cells }).filter(([, value]) => value.trim() !== ""));
    const { told, error } = useAsked<LogRows>({ ask: "rows", question: { logs, cells: filled } });
    const [asked, setAsked] = useState<string[]>([]);
    useEffect(() => {
        const missing = told?.logs.flatMap((log) => log.missing) ?? [];
        if (missing.length > 0) setAsked((before) => [...new Set([...before, ...missing])]);
    }, [told]);
    return (
        <section class="card lint" aria-labelledby="logs">
            <h2 id="logs">Training logs</h2>
            {error !== null && <Refusal text={error} />}
            {told === null && error === null && <Waiting what="Reading the logs." />}
            {asked.length > 0 && (
                <div class="what-if" role="group" aria-label="Values that the logs omit">
                    {asked.map((column) => (
                        <label key={column}>{column}
                            <input type="text" value={cells[column] ?? ""} onChange={(event) => setCells({ ...cells, [column]: event.currentTarget.value })} />
                        </label>
                    ))}
                </div>
            )}
            {told !== null && (
                <>
                    <div class="scroll" tabIndex={0} role="region" aria-label="Runs of the logs">
                        <table>
                            <thead><tr><th scope="col">Log</th><th scope="col">Framework</th><th scope="col" class="number">Steps</th><th scope="col" class="number">Measured</th><th scope="col" class="number">Predicted</th><th scope="col" class="number">Error</th><th scope="col">Note</th></tr></thead>
                            <tbody>
                                {told.logs.map((log) => (
                                    <tr key={log.file}>
                                        <td>{log.file}</td><td>{log.framework ?? ""}</td><td class="number">{log.steps}</td>
                                        <td class="number">{log.step_s === null ? "" : seconds(log.step_s)}</td>
                                        <td class="number">{log.predicted_s === null ? "" : seconds(log.predicted_s)}{log.predicted_p05_s !== null && log.predicted_p95_s !== null && <small> {seconds(log.predicted_p05_s)} to {seconds(log.predicted_p95_s)}</small>}</td>
                                        <td class="number">{log.step_s === null || log.predicted_s === null ? "" : percent(log.predicted_s / log.step_s - 1)}</td>
                                        <td>{log.missing.length > 0 ? `not in the log: ${log.missing.join(", ")}` : (log.reason ?? "")}</td>
                                    </tr>
                                ))}
                            </tbody>
                        </table>
                    </div>
                    <p class="notes">If a log is of a plan below, the view “Tune” takes its step time into account.</p>
                </>
            )}
            <p class="row">
                {told !== null && <button type="button" onClick={() => save("runs.csv", told.csv, "text/csv")}>Save as rows (CSV)</button>}
                <button type="button" onClick={close}>Close</button>
            </p>
        </section>
    );
}

/** Scores of predictions on a file of runs. */
export function Validation({ file, close }: { file: TextFile; close(): void }) {
    const { told, error } = useAsked<string>({ ask: "validate", question: { runs: file.text } });
    const scores = told === null ? null : (JSON.parse(told) as Scores);
    return (
        <section class="card lint" aria-labelledby="validation">
            <h2 id="validation">Predictions against {file.name}</h2>
            {error !== null && <Refusal text={error} />}
            {scores === null && error === null && <Waiting what="Predicting every run." />}
            {scores !== null && <Scored scores={scores} />}
            <p class="row"><button type="button" onClick={close}>Close</button></p>
        </section>
    );
}

function Scored({ scores }: { scores: Scores }) {
    const { points, time, unpredicted } = scores;
    const all = time[0];
    return (
        <>
            <p class="lead">
                {all?.timed ?? 0} of {scores.runs} runs have a step time, and {points.length} of these a prediction{all?.mean_ape === undefined ? "." : `: off by ${percent(all.mean_ape)} in the mean, bias ${percent(all.bias ?? 0)}${all.inside == null ? "" : `; ${percent(all.inside)} are inside their 90 % interval`}.`}
            </p>
            {points.length > 0 && <Figure label={`Predicted against measured step time of ${points.length} runs`} draw={(width) => scatter(points, width)} />}
            {points.length > 0 && <Legend entries={[...KINDS, ["lines: equal, and 10 % off", "currentColor"]]} />}
            <div class="scroll" tabIndex={0} role="region" aria-label="Errors by class">
                <table>
                    <thead><tr><th scope="col">By</th><th scope="col">Class</th><th scope="col" class="number">Timed</th><th scope="col" class="number">Mean error</th><th scope="col" class="number">Median</th><th scope="col" class="number">Bias</th></tr></thead>
                    <tbody>
                        {time.slice(0, 24).map((of) => (
                            <tr key={`${of.by} ${of.class}`}><td>{of.by}</td><td>{of.class}</td><td class="number">{of.timed}</td><td class="number">{of.mean_ape === undefined ? "" : percent(of.mean_ape)}</td><td class="number">{of.median_ape === undefined ? "" : percent(of.median_ape)}</td><td class="number">{of.bias === undefined ? "" : percent(of.bias)}</td></tr>
                        ))}
                    </tbody>
                </table>
            </div>
            {unpredicted.map((of) => <p class="notes" key={of.reason}>{of.runs} not predicted: {of.reason}</p>)}
        </>
    );
}

const KINDS: [string, string][] = [["dense", "#2a7f9e"], ["with experts", "#d98a00"]];

/** Seconds of a tick, without zeros behind the point. */
function short(value: number): string {
    return seconds(value).replace(/\.0+(?= )/, "");
}

function scatter(points: Scores["points"], width: number): Plot.PlotOptions {
    const times = points.flatMap((point) => [point.measured_s, point.predicted_s]);
    const [low, high] = [Math.min(...times) / 1.2, Math.max(...times) * 1.2];
    const line = (factor: number) => [{ x: low, y: low * factor }, { x: high, y: high * factor }];
    return {
        height: Math.min(420, width),
        marginLeft: 64,
        x: { type: "log", label: "measured step time", domain: [low, high], ticks: 5, tickFormat: short },
        y: { type: "log", label: "predicted step time", domain: [low, high], ticks: 5, tickFormat: short, grid: true },
        clip: true,
        marks: [
            Plot.line(line(1), { x: "x", y: "y", stroke: "currentColor", strokeOpacity: 0.6 }),
            ...[1.1, 1 / 1.1].map((factor) => Plot.line(line(factor), { x: "x", y: "y", stroke: "currentColor", strokeOpacity: 0.4, strokeDasharray: "4,4" })),
            Plot.dot(points, { x: "measured_s", y: "predicted_s", r: 3.5, fill: (point: Scores["points"][0]) => KINDS[point.moe ? 1 : 0]?.[1] ?? "#888", fillOpacity: 0.6, title: (point: Scores["points"][0]) => `${point.id}: measured ${seconds(point.measured_s)}, predicted ${seconds(point.predicted_s)}, ${percent(point.error)}`, tip: true }),
        ],
    };
}
