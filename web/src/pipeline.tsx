/** The pipeline of a step, drawn from its simulation: every pass of every rank, with zoom and folding, and all schedules side by side. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { AFTER, PASSES } from "./colours";
import type { Priced, Timeline } from "./documents";
import { percent, seconds } from "./format";
import { Legend, useWidth } from "./parts";
import type { Question } from "./question";
import { Schedules } from "./schedules";
import { arrange, byRank, draw, fold, typicalForward, under, type Span } from "./timeline";

export function Pipeline({ timeline, question, plan }: { timeline: Timeline; question: Question; plan: Priced }) {
    const rows = useMemo(() => byRank(timeline), [timeline]);
    const forward = useMemo(() => typicalForward(rows), [rows]);
    const whole = timeline.makespan_s + timeline.after_s;
    const [range, setRange] = useState<Span>([0, whole]);
    const [folded, setFolded] = useState(true);
    useEffect(() => setRange([0, whole]), [whole]);
    const { element, width } = useWidth<HTMLDivElement>();
    const canvas = useRef<HTMLCanvasElement>(null);
    const [pointed, setPointed] = useState("");
    const [from, to] = range;
    const flat = { lines: [range], leftOut: null };
    const layout = arrange(timeline, folded ? fold(range, forward, Math.max(1, width - 54)) : flat, width);

    useEffect(() => {
        if (canvas.current !== null && width > 0) draw(canvas.current, rows, timeline, layout);
    });
    useEffect(() => {
        const scheme = matchMedia("(prefers-color-scheme: dark)");
        const again = () => setRange(([a, b]) => [a, b]);
        scheme.addEventListener("change", again);
        return () => scheme.removeEventListener("change", again);
    }, []);

    /** Part of the step of a length, at a time or as near as the step allows. */
    const show = (start: number, length: number) => {
        const span = Math.min(whole, Math.max(length, whole * 1e-4));
        const first = Math.min(Math.max(0, start), whole - span);
        setRange([first, first + span]);
    };
    const zoom = (factor: number, around = (from + to) / 2) => {
        const span = Math.min(whole, (to - from) * factor);
        show(around - ((around - from) / (to - from)) * span, span);
    };
    const pan = (share: number) => show(from + (to - from) * share, to - from);
    const key = (event: KeyboardEvent) => {
        const actions: Record<string, () => void> = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "0": () => show(0, whole), f: () => setFolded(!folded) };
        const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
        if (action === undefined) return;
        event.preventDefault();
        action();
    };
    const dragged = useRef<number | null>(null);
    const at = (event: PointerEvent | WheelEvent | MouseEvent) => {
        const box = canvas.current?.getBoundingClientRect();
        const [x, y] = [event.clientX - (box?.left ?? 0), event.clientY - (box?.top ?? 0)];
        return { x, found: under(layout, whole, x, y) };
    };
    const press = (event: PointerEvent) => {
        const { x, found } = at(event);
        if (found?.rank === null) {
            show(found.time - (to - from) / 2, to - from);
            return;
        }
        dragged.current = x;
        canvas.current?.setPointerCapture(event.pointerId);
    };
    const hover = (event: PointerEvent) => {
        const { x, found } = at(event);
        if (dragged.current !== null && found !== null) {
            show(from + (dragged.current - x) * found.seconds, to - from);
            dragged.current = x;
            return;
        }
        const op = found?.rank == null ? undefined : rows[found.rank]?.find((one) => one.start <= found.time && found.time < one.end);
        setPointed(op && found ? `rank ${found.rank}: ${PASSES[op.pass]?.[0] ?? op.pass} of micro-batch ${op.microBatch}, stage ${op.chunk}, ${seconds(op.end - op.start)} from ${seconds(op.start)}` : "");
    };
    const isWhole = to - from > whole * 0.999;
    return (
        <>
            <p class="lead">
                One pipeline of {timeline.ranks} {timeline.ranks === 1 ? "rank" : "ranks"}, {plan.micro_batches} micro-batches{plan.vpp > 1 ? `, ${plan.vpp} chunks a rank` : ""}: {seconds(timeline.makespan_s)} for the passes,
                {" "}{seconds(timeline.after_s)} for exposed gradients and the optimizer. Waiting for other stages takes {percent(timeline.bubble_s / whole)} of the step; a send takes {seconds(timeline.send_s)}.
            </p>
            <div class="row" role="group" aria-label="Zoom">
                <button type="button" aria-pressed={folded} onClick={() => setFolded(!folded)} title="Several lines, like text, so that each pass can be seen">Folded</button>
                <button type="button" onClick={() => zoom(0.5)}>Zoom in</button>
                <button type="button" disabled={isWhole} onClick={() => zoom(2)}>Zoom out</button>
                <button type="button" disabled={isWhole} onClick={() => pan(-0.5)} aria-label="Earlier">←</button>
                <button type="button" disabled={isWhole} onClick={() => pan(0.5)} aria-label="Later">→</button>
                <button type="button" onClick={() => show(0, whole)}>Whole step</button>
                <button type="button" onClick={() => show(0, whole / 12)}>Start</button>
                <button type="button" onClick={() => show(whole, whole / 12)}>End</button>
            </div>
            <div ref={element} class="timeline">
                <canvas ref={canvas} style={{ width: `${width}px`, height: `${layout.height}px` }} tabIndex={0} role="img" onKeyDown={key}
                    aria-label={`Pipeline from ${seconds(from)} to ${seconds(to)} of a step; plus and minus zoom, arrows move, f folds`}
                    onPointerMove={hover} onPointerLeave={() => setPointed("")} onPointerDown={press}
                    onPointerUp={() => { dragged.current = null; }} onPointerCancel={() => { dragged.current = null; }}
                    onDblClick={(event) => zoom(0.4, at(event).found?.time)}
                    onWheel={(event) => { if (!event.ctrlKey) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event).found?.time); }} />
            </div>
            <p class="under" aria-live="polite">{pointed || "Point at a pass; drag to move, double-click or Ctrl and wheel to zoom; keys + − ← → 0 f do the same. The strip above is the whole step."}</p>
            <Legend entries={[...new Set(timeline.pass)].map((pass): [string, string] => [PASSES[pass]?.[0] ?? pass, PASSES[pass]?.[1] ?? "#888"]).concat([["exposed gradients, optimizer", AFTER]])} />
            <Schedules question={question} plan={plan} />
        </>
    );
}
