/** The pipeline of a step, drawn from its simulation: every pass of every rank, with zoom, and all schedules side by side. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { picture } from "./answers";
import { AFTER, PASSES } from "./colours";
import type { Explanation, Priced, Timeline } from "./documents";
import { Refused } from "./engine";
import { percent, seconds } from "./format";
import { Legend, useWidth } from "./parts";
import type { Question } from "./question";

/** Pixels: left margin for names of ranks, height of the axis, tallest and lowest row. */
const SIZE = { left: 54, axis: 26, tallest: 30, lowest: 7 };
/** Operations of one rank in the order of their starts. */
type Row = { start: number; end: number; pass: string; microBatch: number; chunk: number }[];

function byRank(timeline: Timeline): Row[] {
    const rows: Row[] = Array.from({ length: timeline.ranks }, () => []);
    timeline.rank.forEach((rank, at) => {
        rows[rank]?.push({ start: timeline.start_s[at] ?? 0, end: timeline.end_s[at] ?? 0, pass: timeline.pass[at] ?? "F", microBatch: timeline.micro_batch[at] ?? 0, chunk: timeline.chunk[at] ?? 0 });
    });
    for (const row of rows) row.sort((a, b) => a.start - b.start);
    return rows;
}

export function Pipeline({ timeline, question, plan }: { timeline: Timeline; question: Question; plan: Priced }) {
    const rows = useMemo(() => byRank(timeline), [timeline]);
    const whole = timeline.makespan_s + timeline.after_s;
    const [[from, to], setRange] = useState<[number, number]>([0, whole]);
    useEffect(() => setRange([0, whole]), [whole]);
    const { element, width } = useWidth<HTMLDivElement>();
    const canvas = useRef<HTMLCanvasElement>(null);
    const [under, setUnder] = useState("");
    const row = Math.max(SIZE.lowest, Math.min(SIZE.tallest, 420 / timeline.ranks));
    const height = row * timeline.ranks + SIZE.axis;
    const inner = Math.max(1, width - SIZE.left);

    useEffect(() => {
        if (canvas.current !== null && width > 0) draw(canvas.current, rows, timeline, [from, to], { width, height, row });
    });
    useEffect(() => {
        const scheme = matchMedia("(prefers-color-scheme: dark)");
        const again = () => setRange(([a, b]) => [a, b]);
        scheme.addEventListener("change", again);
        return () => scheme.removeEventListener("change", again);
    }, []);

    const zoom = (factor: number, around = 0.5) => {
        setRange(([a, b]) => {
            const span = Math.min(whole, (b - a) * factor);
            const start = Math.min(Math.max(0, a + (b - a - span) * around), whole - span);
            return [start, start + span];
        });
    };
    const pan = (share: number) => {
        setRange(([a, b]) => {
            const start = Math.min(Math.max(0, a + (b - a) * share), whole - (b - a));
            return [start, start + (b - a)];
        });
    };
    const key = (event: KeyboardEvent) => {
        const actions: Record<string, () => void> = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "0": () => setRange([0, whole]) };
        const action = actions[event.key];
        if (action === undefined) return;
        event.preventDefault();
        action();
    };
    const held = useRef<number | null>(null);
    const at = (event: PointerEvent | WheelEvent | MouseEvent) => {
        const box = canvas.current?.getBoundingClientRect();
        return { x: event.clientX - (box?.left ?? 0) - SIZE.left, y: event.clientY - (box?.top ?? 0) };
    };
    const hover = (event: PointerEvent) => {
        const { x, y } = at(event);
        if (held.current !== null) {
            pan((held.current - x) / inner);
            held.current = x;
            return;
        }
        const time = from + (x / inner) * (to - from);
        const found = rows[Math.floor(y / row)]?.find((op) => op.start <= time && time < op.end);
        setUnder(found ? `rank ${Math.floor(y / row)}: ${PASSES[found.pass]?.[0] ?? found.pass} of micro-batch ${found.microBatch}, stage ${found.chunk}, ${seconds(found.end - found.start)} from ${seconds(found.start)}` : "");
    };
    return (
        <>
            <p class="lead">
                One pipeline of {timeline.ranks} {timeline.ranks === 1 ? "rank" : "ranks"}, {plan.micro_batches} micro-batches{plan.vpp > 1 ? `, ${plan.vpp} chunks a rank` : ""}: {seconds(timeline.makespan_s)} for the passes,
                {" "}{seconds(timeline.after_s)} for exposed gradients and the optimizer. Waiting for other stages takes {percent(timeline.bubble_s / whole)} of the step; a send takes {seconds(timeline.send_s)}.
            </p>
            <div class="row" role="group" aria-label="Zoom">
                <button type="button" onClick={() => zoom(0.5)}>Zoom in</button>
                <button type="button" onClick={() => zoom(2)}>Zoom out</button>
                <button type="button" onClick={() => pan(-0.5)} aria-label="Earlier">←</button>
                <button type="button" onClick={() => pan(0.5)} aria-label="Later">→</button>
                <button type="button" onClick={() => setRange([0, whole])}>Whole step</button>
                <button type="button" onClick={() => setRange([0, whole / 12])}>Start</button>
                <button type="button" onClick={() => setRange([whole * (11 / 12), whole])}>End</button>
            </div>
            <div ref={element} class="timeline">
                <canvas ref={canvas} style={{ width: `${width}px`, height: `${height}px` }} tabIndex={0} role="img" onKeyDown={key}
                    aria-label={`Pipeline from ${seconds(from)} to ${seconds(to)} of a step; plus and minus zoom, arrows move`}
                    onPointerMove={hover} onPointerLeave={() => setUnder("")}
                    onPointerDown={(event) => { held.current = at(event).x; canvas.current?.setPointerCapture(event.pointerId); }}
                    onPointerUp={() => { held.current = null; }}
                    onDblClick={(event) => zoom(0.4, at(event).x / inner)}
                    onWheel={(event) => { if (!event.ctrlKey) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).x / inner); }} />
            </div>
            <p class="under" aria-live="polite">{under || "Point at a pass; drag to move, double-click or Ctrl and wheel to zoom."}</p>
            <Legend entries={[...new Set(timeline.pass)].map((pass): [string, string] => [PASSES[pass]?.[0] ?? pass, PASSES[pass]?.[1] ?? "#888"]).concat([["exposed gradients, optimizer", AFTER]])} />
            <Schedules question={question} plan={plan} />
        </>
    );
}

function draw(canvas: HTMLCanvasElement, rows: Row[], timeline: Timeline, [from, to]: [number, number], { width, height, row }: { width: number; height: number; row: number }) {
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    if (pen === null) return;
    const style = getComputedStyle(canvas);
    const [ink, idle] = [style.color, style.getPropertyValue("--idle") || "#e6e8eb"];
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const inner = width - SIZE.left;
    const x = (time: number) => SIZE.left + ((time - from) / (to - from)) * inner;
    const gap = row > 12 ? 2 : row > 8 ? 1 : 0.5;
    const every = Math.ceil(13 / row);
    rows.forEach((ops, rank) => {
        const y = rank * row;
        pen.fillStyle = ink;
        pen.textAlign = "right";
        if (rank % every === 0) pen.fillText(`rank ${rank}`, SIZE.left - 6, y + row / 2);
        pen.save();
        pen.beginPath();
        pen.rect(SIZE.left, y, inner, row);
        pen.clip();
        pen.fillStyle = idle;
        pen.fillRect(x(0), y, x(timeline.makespan_s) - x(0), row - gap);
        pen.textAlign = "center";
        for (const op of ops) {
            if (op.end < from) continue;
            if (op.start > to) break;
            const [left, wide] = [x(op.start), x(op.end) - x(op.start)];
            pen.fillStyle = PASSES[op.pass]?.[1] ?? "#888";
            // Chunks of a rank differ by lightness.
            pen.globalAlpha = 1 - 0.45 * ((Math.floor(op.chunk / timeline.ranks) % 4) / 4);
            pen.fillRect(left, y, Math.max(0.35, wide - (wide > 4 ? 0.8 : 0)), row - gap);
            pen.globalAlpha = 1;
            if (wide > 16 && row > 12) {
                pen.fillStyle = "#10222b";
                pen.fillText(String(op.microBatch), left + wide / 2, y + (row - gap) / 2);
            }
        }
        pen.fillStyle = AFTER;
        pen.fillRect(x(timeline.makespan_s), y, x(timeline.makespan_s + timeline.after_s) - x(timeline.makespan_s), row - gap);
        pen.restore();
    });
    pen.fillStyle = ink;
    const step = niceStep((to - from) / Math.max(2, inner / 110));
    for (let tick = Math.ceil(from / step) * step; tick <= to + step * 1e-6; tick += step) {
        pen.fillRect(x(tick), rows.length * row, 1, 4);
        pen.textAlign = x(tick) > width - 30 ? "right" : "center";
        pen.fillText(`${Number((tick * 1e3).toPrecision(6)).toLocaleString("en-US")} ms`, x(tick), rows.length * row + 14);
    }
}

/** Round step of an axis, at least as large as asked. */
function niceStep(least: number): number {
    const power = 10 ** Math.floor(Math.log10(least));
    return ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10) * power;
}

const SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"];

interface Side { schedule: string; step: number | null; bubble: number; memory: number; why: string }

/** The plan under every schedule. */
function Schedules({ question, plan }: { question: Question; plan: Priced }) {
    const [sides, setSides] = useState<Side[] | null>(null);
    const [asked, setAsked] = useState(false);
    useEffect(() => {
        setSides(null);
        if (!asked || plan.pp < 2) return undefined;
        let current = true;
        void (async () => {
            const found: Side[] = [];
            for (const schedule of SCHEDULES) {
                found.push(await side(question, plan, schedule));
                if (!current) return;
                setSides([...found]);
            }
        })();
        return () => {
            current = false;
        };
    }, [question, plan.plan, asked]);
    if (plan.pp < 2) return null;
    if (!asked) return <p><button type="button" onClick={() => setAsked(true)}>Compare all schedules</button></p>;
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label="All schedules">
            <table>
                <thead><tr><th scope="col">Schedule</th><th scope="col" class="number">Step</th><th scope="col" class="number">Bubble</th><th scope="col" class="number">Fullest rank, GiB</th><th scope="col">Does it run?</th></tr></thead>
                <tbody>
                    {(sides ?? []).map((one) => (
                        <tr key={one.schedule}><th scope="row">{one.schedule}</th><td class="number">{one.step === null ? "" : seconds(one.step)}</td><td class="number">{one.step === null ? "" : percent(one.bubble)}</td><td class="number">{one.memory > 0 ? one.memory.toFixed(1) : ""}</td><td>{one.why || "yes"}</td></tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

async function side(question: Question, plan: Priced, schedule: string): Promise<Side> {
    const settings = plan.plan.split(" ").filter((setting) => !/^(schedule|vpp|split)=/.test(setting));
    const vpp = schedule === "interleaved" ? [`vpp=${Math.max(2, plan.vpp)}`] : [];
    try {
        const told = JSON.parse((await picture(question, [...settings, `schedule=${schedule}`, ...vpp].join(" "))).explanation) as Explanation;
        const { prediction } = told;
        return {
            schedule,
            step: prediction?.step_time_s ?? null,
            bubble: prediction ? (prediction.terms["pipeline_bubble_s"] ?? 0) / prediction.step_time_s : 0,
            memory: Math.max(0, ...told.ranks.map((rank) => rank.peak_mem_gib)),
            why: told.reasons.map((reason) => reason.reason).join("; "),
        };
    } catch (why) {
        if (!(why instanceof Refused)) throw why;
        return { schedule, step: null, bubble: 0, memory: 0, why: why.message };
    }
}
