/** Kernels of a layer on the roofline of the device. */

import * as Plot from "@observablehq/plot";

import type { Kernels } from "./documents";
import { percent, seconds, whole } from "./format";
import { Figure, Legend } from "./parts";

interface Point { kind: string; label: string; intensity: number; rate: number; time_s: number; share: number; bound: string }

const COLOURS: Record<string, string> = { gemm: "#2a7f9e", attention: "#d98a00", stream: "#c9567f" };

export function Roofline({ kernels }: { kernels: Kernels }) {
    const { peak_flops: peak, hbm_bytes_per_s: bandwidth } = kernels;
    if (peak === null) return <p>The device has no peak rate for this format.</p>;
    const ridge = peak / bandwidth;
    const points: Point[] = kernels.calls.filter((call) => call.flop > 0 && call.bytes > 0 && call.time_s > 0).map((call) => {
        const [intensity, rate] = [call.flop / call.bytes, call.flop / call.time_s];
        const roof = Math.min(peak, intensity * bandwidth);
        return { kind: call.kind, label: call.label, intensity, rate, time_s: call.time_s, share: rate / roof, bound: intensity < ridge ? "memory" : "compute" };
    });
    const streams = kernels.calls.filter((call) => call.kind === "stream");
    const slow = [...points].sort((a, b) => b.time_s - a.time_s);
    const lowest = Math.min(ridge / 8, ...points.map((point) => point.intensity)) / 1.5;
    const highest = Math.max(ridge * 8, ...points.map((point) => point.intensity)) * 1.5;
    const roof = [{ x: lowest, y: lowest * bandwidth }, { x: ridge, y: peak }, { x: highest, y: peak }].map(({ x, y }) => ({ x, y: y / 1e12 }));
    return (
        <>
            <p class="lead">Distinct kernels of the step as the model calls them. Left of {ridge.toFixed(0)} FLOP per byte memory binds, right of it the matrix units do. {streams.length} groups of streaming kernels (norms, residuals, activations) do no matrix work and are bound by memory.</p>
            <Figure label={`Roofline: ${points.length} kernels against a peak of ${(peak / 1e12).toFixed(0)} TFLOP/s and ${(bandwidth / 1e12).toFixed(2)} TB/s`} draw={() => ({
                height: 360,
                marginLeft: 58,
                x: { type: "log", label: "FLOP per byte", grid: true, domain: [lowest, highest], ticks: 4, tickFormat: (value: number) => whole(value) },
                y: { type: "log", label: "TFLOP/s", grid: true },
                r: { range: [3, 16] },
                marks: [
                    Plot.line(roof, { x: "x", y: "y", stroke: "currentColor", strokeWidth: 1.5 }),
                    Plot.text([{ x: highest, y: peak / 1e12 }], { x: "x", y: "y", text: () => `peak ${whole(peak / 1e12)} TFLOP/s`, textAnchor: "end", dy: 9, fill: "currentColor" }),
                    Plot.text([{ x: Math.sqrt(lowest * ridge), y: (Math.sqrt(lowest * ridge) * bandwidth) / 1e12 }], { x: "x", y: "y", text: () => `memory ${(bandwidth / 1e12).toFixed(2)} TB/s`, textAnchor: "start", dx: 8, dy: 4, fill: "currentColor" }),
                    Plot.dot(points, { x: "intensity", y: (point: Point) => point.rate / 1e12, r: "time_s", fill: (point: Point) => COLOURS[point.kind] ?? "#888", fillOpacity: 0.65, stroke: "var(--ground)", title: (point: Point) => `${point.label}\n${seconds(point.time_s)}, ${percent(point.share)} of its roof`, tip: true }),
                ],
            })} />
            <Legend entries={[["GEMM", COLOURS["gemm"] ?? ""], ["attention", COLOURS["attention"] ?? ""]]} />
            <div class="scroll" tabIndex={0} role="region" aria-label="Slowest kernels">
                <table>
                    <thead><tr><th scope="col">Slowest kernels</th><th scope="col" class="number">Time of a call</th><th scope="col" class="number roomy">TFLOP/s</th><th scope="col" class="number">Of its roof</th><th scope="col" class="roomy">Bound by</th></tr></thead>
                    <tbody>{slow.slice(0, 12).map((point) => <tr key={point.label}><td>{point.label}</td><td class="number">{seconds(point.time_s)}</td><td class="number roomy">{(point.rate / 1e12).toFixed(0)}</td><td class="number">{percent(point.share)}</td><td class="roomy">{point.bound}</td></tr>)}</tbody>
                </table>
            </div>
        </>
    );
}
