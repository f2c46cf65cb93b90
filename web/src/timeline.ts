/** Drawing of a pipeline on a canvas: the whole step as an overview, and a part of it in lines, like text. */

import { AFTER, PASSES } from "./colours";
import type { Timeline } from "./documents";

/** Pixels: left margin for names of ranks, height of an axis, tallest and lowest row, space below the overview. */
const SIZE = { left: 54, axis: 26, tallest: 30, tallestOfMany: 20, lowest: 7, gap: 14 };
/** Pixels of a typical forward pass: enough for its number, and enough to be seen. */
const [WIDE, NARROW] = [17, 4];
const MOST_LINES = 6;

/** Operations of one rank in the order of their starts. */
export type Row = { start: number; end: number; pass: string; microBatch: number; chunk: number }[];
export type Span = [number, number];

/** Lines of a part of the step, of which the middle is left out where it is too long. */
export interface Folding { lines: Span[]; leftOut: Span | null }

/** Places of the overview, the lines and their rows on a canvas of a width. */
export interface Layout { folding: Folding; width: number; inner: number; strip: number; top: number; row: number; line: number; height: number }

export function byRank(timeline: Timeline): Row[] {
    const rows: Row[] = Array.from({ length: timeline.ranks }, () => []);
    timeline.rank.forEach((rank, at) => {
        rows[rank]?.push({ start: timeline.start_s[at] ?? 0, end: timeline.end_s[at] ?? 0, pass: timeline.pass[at] ?? "F", microBatch: timeline.micro_batch[at] ?? 0, chunk: timeline.chunk[at] ?? 0 });
    });
    for (const row of rows) row.sort((a, b) => a.start - b.start);
    return rows;
}

/** Median time of a forward pass. */
export function typicalForward(rows: Row[]): number {
    const times = rows.flat().filter((op) => op.pass === "F").map((op) => op.end - op.start).sort((a, b) => a - b);
    return times[times.length >> 1] ?? 0;
}

/** Folds a part of the step into as few lines as show each pass with its number, else into six that show each pass at all. */
export function fold([from, to]: Span, forward: number, inner: number): Folding {
    const lengthAt = (pixels: number) => (inner / pixels) * forward;
    const lines = (count: number, start: number, length: number) => Array.from({ length: count }, (_, at): Span => [start + at * length, start + (at + 1) * length]);
    const evenly = (count: number): Folding => ({ lines: lines(count, from, (to - from) / count), leftOut: null });
    const wide = Math.max(1, Math.ceil((to - from) / lengthAt(WIDE) - 1e-6));
    if (!(forward > 0) || wide <= MOST_LINES) return evenly(forward > 0 ? wide : 1);
    const length = lengthAt(NARROW);
    if ((to - from) / length <= MOST_LINES * 1.5) return evenly(MOST_LINES);
    const half = MOST_LINES / 2;
    const [first, last] = [from + half * length, to - half * length];
    return { lines: [...lines(half, from, length), ...lines(half, last, length)], leftOut: [first, last] };
}

export function arrange(timeline: Timeline, folding: Folding, width: number): Layout {
    const { ranks } = timeline;
    const strip = Math.max(1, Math.min(5, 60 / ranks));
    const top = strip * ranks + SIZE.axis + SIZE.gap;
    const one = folding.lines.length === 1;
    const row = Math.max(SIZE.lowest, Math.min(one ? SIZE.tallest : SIZE.tallestOfMany, (one ? 420 : 240) / ranks));
    const line = row * ranks + SIZE.axis;
    return { folding, width, inner: Math.max(1, width - SIZE.left), strip, top, row, line, height: top + line * folding.lines.length + (folding.leftOut ? SIZE.axis : 0) };
}

/** Top of a line. */
function lineTop({ folding, top, line }: Layout, at: number): number {
    return top + at * line + (folding.leftOut && at >= MOST_LINES / 2 ? SIZE.axis : 0);
}

/** Time below a point of the canvas, and the rank: null in the overview. */
export function under(layout: Layout, whole: number, x: number, y: number): { time: number; rank: number | null; seconds: number } | null {
    const share = (x - SIZE.left) / layout.inner;
    if (y < layout.top - SIZE.gap) return { time: share * whole, rank: null, seconds: whole / layout.inner };
    const at = layout.folding.lines.findIndex((_, line) => y >= lineTop(layout, line) && y < lineTop(layout, line) + layout.line);
    const span = layout.folding.lines[at];
    if (span === undefined) return null;
    return { time: span[0] + share * (span[1] - span[0]), rank: Math.floor((y - lineTop(layout, at)) / layout.row), seconds: (span[1] - span[0]) / layout.inner };
}

export function draw(canvas: HTMLCanvasElement, rows: Row[], timeline: Timeline, layout: Layout): void {
    const scale = devicePixelRatio || 1;
    canvas.width = layout.width * scale;
    canvas.height = layout.height * scale;
    const pen = canvas.getContext("2d");
    if (pen === null) return;
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const style = getComputedStyle(canvas);
    const ground = { ink: style.color, idle: style.getPropertyValue("--idle") || "#e6e8eb", accent: style.getPropertyValue("--accent") || "#0b6e63" };
    const whole: Span = [0, timeline.makespan_s + timeline.after_s];
    drawLine(pen, rows, timeline, whole, { y: 0, row: layout.strip, inner: layout.inner, width: layout.width, ...ground });
    const { lines, leftOut } = layout.folding;
    if (lines.length > 1 || (lines[0]?.[1] ?? 0) - (lines[0]?.[0] ?? 0) < whole[1] * 0.999) {
        // What of the step the lines show.
        pen.strokeStyle = ground.accent;
        pen.lineWidth = 1.5;
        const across = (time: number) => SIZE.left + (time / whole[1]) * layout.inner;
        const shown: Span[] = leftOut ? [[lines[0]![0], leftOut[0]], [leftOut[1], lines[lines.length - 1]![1]]] : [[lines[0]![0], lines[lines.length - 1]![1]]];
        for (const [from, to] of shown) pen.strokeRect(across(from) + 0.75, 0.75, Math.max(2, across(to) - across(from) - 1.5), layout.strip * timeline.ranks - 1);
    }
    lines.forEach((span, at) => drawLine(pen, rows, timeline, span, { y: lineTop(layout, at), row: layout.row, inner: layout.inner, width: layout.width, ...ground }));
    if (leftOut !== null) {
        pen.fillStyle = ground.ink;
        pen.textAlign = "center";
        const passes = rows[0]?.filter((op) => op.start >= leftOut[0] && op.end <= leftOut[1]).length ?? 0;
        pen.fillText(`… ${milliseconds(leftOut[1] - leftOut[0])}, ${passes.toLocaleString("en-US")} passes a rank …`, SIZE.left + layout.inner / 2, lineTop(layout, MOST_LINES / 2) - SIZE.axis / 2);
    }
}

interface Band { y: number; row: number; inner: number; width: number; ink: string; idle: string }

/** All ranks from one time to another, with an axis below. */
function drawLine(pen: CanvasRenderingContext2D, rows: Row[], timeline: Timeline, [from, to]: Span, { y: top, row, inner, width, ink, idle }: Band): void {
    const x = (time: number) => SIZE.left + ((time - from) / (to - from)) * inner;
    const gap = row > 12 ? 2 : row > 8 ? 1 : row > 3 ? 0.5 : 0;
    const every = Math.ceil(13 / row);
    rows.forEach((ops, rank) => {
        const y = top + rank * row;
        pen.fillStyle = ink;
        pen.textAlign = "right";
        if (row >= SIZE.lowest && rank % every === 0) pen.fillText(`rank ${rank}`, SIZE.left - 6, y + row / 2);
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
            if (wide > 4 + 6.2 * String(op.microBatch).length && row > 11) {
                pen.fillStyle = "#10222b";
                pen.fillText(String(op.microBatch), left + wide / 2, y + (row - gap) / 2);
            }
        }
        pen.fillStyle = AFTER;
        pen.fillRect(x(timeline.makespan_s), y, x(timeline.makespan_s + timeline.after_s) - x(timeline.makespan_s), row - gap);
        pen.restore();
    });
    pen.fillStyle = ink;
    if (row < SIZE.lowest) {
        pen.textAlign = "right";
        pen.fillText("step", SIZE.left - 6, top + (rows.length * row) / 2);
    }
    const step = roundStep((to - from) / Math.max(2, inner / 110));
    for (let tick = Math.ceil(from / step - 1e-6) * step; tick <= to + step * 1e-6; tick += step) {
        pen.fillRect(x(tick), top + rows.length * row, 1, 4);
        pen.textAlign = x(tick) > width - 30 ? "right" : "center";
        pen.fillText(milliseconds(tick), x(tick), top + rows.length * row + 14);
    }
}

function milliseconds(time: number): string {
    return `${Number((time * 1e3).toPrecision(6)).toLocaleString("en-US")} ms`;
}

/** Round step of an axis, at least as large as asked. */
function roundStep(least: number): number {
    const power = 10 ** Math.floor(Math.log10(least));
    return ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10) * power;
}
