/** The question: model, cluster, workload, and what plans may use. */

import type { ComponentChildren } from "preact";
import { useId, useMemo } from "preact/hooks";

import type { Change } from "./app";
import type { Catalogue, Problem } from "./documents";
import { readFiles, type Panels } from "./drop";
import { count, whole } from "./format";
import { FIXABLE, type Fixable, type Question } from "./question";

interface Props {
    question: Question;
    change: Change;
    show(panels: Partial<Panels>): void;
    catalogue: Catalogue;
    problem: Problem | null;
    reset(): void;
}

export function Controls({ question, change, show, catalogue, problem, reset }: Props) {
    const model = catalogue.models.find((entry) => entry.name === question.model);
    const cluster = catalogue.clusters.find((entry) => entry.name === question.cluster);
    const node = cluster?.gpus_per_node ?? 8;
    const gpus = question.gpus ?? problem?.gpus ?? cluster?.gpus ?? 8;
    const batch = question.batch ?? problem?.global_batch ?? 128;
    const seq = question.seq ?? problem?.seq_len ?? model?.seq_len ?? 8192;
    // The same lists while a slider moves, whose hundreds of entries are then not compared.
    const models = useMemo(() => entries(catalogue.models, question.model, question.texts), [catalogue, question.model, question.texts]);
    const clusters = useMemo(() => entries(catalogue.clusters, question.cluster, question.texts), [catalogue, question.cluster, question.texts]);
    return (
        <form class="controls" aria-label="Question" onSubmit={(event) => event.preventDefault()}>
            <details open={matchMedia("(min-width: 900px)").matches}>
                <summary>Question</summary>
                <Choice label="Model" value={question.model} change={(name) => change({ model: name, seq: null })}
                    options={models}
                    hint={model && `${count(model.parameters)} parameters${model.active < model.parameters ? `, ${count(model.active)} active` : ""} · ${model.layers} layers`} />
                <Choice label="Cluster" value={question.cluster} change={(name) => change({ cluster: name, gpus: null, nic: null, hbm: null })}
                    options={clusters}
                    hint={cluster && `${whole(cluster.gpus)} × ${cluster.gpu} · ${cluster.domain} per scale-up domain`} />
                <label class="file">
                    <span>Own files: drop a <code>config.json</code>, a model or cluster as TOML, a launch script to check, training logs or a CSV of runs anywhere, or</span>
                    <input type="file" multiple onChange={(event) => void readFiles([...(event.currentTarget.files ?? [])], change, show)} />
                </label>
                <Slider label="GPUs" value={gpus} own={question.gpus !== null} text={whole(gpus)} steps={multiples(node, Math.max(cluster?.gpus ?? gpus, gpus, 4096))}
                    change={(value) => change({ gpus: value })} clear={() => change({ gpus: null })} />
                <Slider label="Global batch, sequences" value={batch} own={question.batch !== null} text={question.batch === null && problem === null ? "…" : whole(batch)} steps={powers(16, 16384)}
                    change={(value) => change({ batch: value })} clear={() => change({ batch: null })} />
                <Slider label="Sequence length, tokens" value={seq} own={question.seq !== null} text={question.seq === null && problem === null && model === undefined ? "…" : whole(seq)} steps={powers(1024, 1048576)}
                    change={(value) => change({ seq: value })} clear={() => change({ seq: null })} />
                <Slider label="Network per GPU, Gb/s" value={question.nic ?? cluster?.nic_gbps ?? 400} own={question.nic !== null}
                    text={whole(question.nic ?? cluster?.nic_gbps ?? 400)} steps={NICS} change={(value) => change({ nic: value })} clear={() => change({ nic: null })} />
                <Slider label="GPU memory, GB" value={question.hbm ?? cluster?.hbm_gb ?? 80} own={question.hbm !== null}
                    text={`${whole(question.hbm ?? cluster?.hbm_gb ?? 80)} = ${whole((question.hbm ?? cluster?.hbm_gb ?? 80) / 1.073741824)} GiB`} steps={MEMORIES} change={(value) => change({ hbm: value })} clear={() => change({ hbm: null })} />
                <Choice label="Precision" value={question.precision} change={(precision) => change({ precision })} options={PRECISIONS} />
            </details>
            <details>
                <summary>Plans considered</summary>
                <div class="pair">
                    {FIXABLE.map((key) => (
                        <Choice key={key} label={FIX_LABELS[key]} value={question.fix[key] ?? ""} options={FIX_OPTIONS[key]}
                            change={(value) => change({ fix: { ...question.fix, [key]: value } })} />
                    ))}
                </div>
                <Choice label="Framework that must run the plan" value={question.framework} change={(framework) => change({ framework })}
                    options={[["", "the stack's framework"], ...catalogue.frameworks.map((name): [string, string] => [name, name]), ["any", "any setting"]]} />
                <Choice label="Software stack" value={question.stack} change={(stack) => change({ stack })}
                    options={[["", "usual for the GPU"], ...catalogue.stacks.map((name): [string, string] => [name, name])]} />
                <Choice label="Accepted risk of running out of memory" value={String(question.risk ?? "")} change={(value) => change({ risk: value ? Number(value) : null })}
                    options={[["", "5 %"], ["0.01", "1 %"], ["0.1", "10 %"], ["0.25", "25 %"], ["1", "any"]]} />
                <Tick label="Also mechanisms that no published run has shown" value={question.exotic} change={(exotic) => change({ exotic })} />
                <Tick label="Low-rank adapters on a frozen base" value={question.lora} change={(lora) => change({ lora })} />
            </details>
            <details>
                <summary>Time and money</summary>
                <Text label="Tokens to train" value={question.tokens} change={(tokens) => change({ tokens })} />
                <Choice label="Purchase terms" value={question.terms} change={(terms) => change({ terms })} options={catalogue.terms.map((name): [string, string] => [name, name])} />
                <Slider label="Price of a GPU-hour, $" value={question.price ?? 2.5} own={question.price !== null} text={question.price === null ? "by the terms" : question.price.toFixed(2)}
                    steps={PRICES} change={(value) => change({ price: value })} clear={() => change({ price: null })} />
                <Choice label="Quantity to minimise" value={question.objective} change={(objective) => change({ objective })}
                    options={[["step-time", "step time"], ["memory", "memory of the fullest GPU"], ["energy", "energy"]]} />
            </details>
            <details open={question.set !== ""}>
                <summary>Other values</summary>
                <Lines label="One a line, as --set takes them" value={question.set} change={(set) => change({ set })} placeholder={"model.hidden=6144\ngpu.hbm_bandwidth=4 TB/s"}
                    hint={<>Any key of the files of the model, cluster, GPU and stack: <code>model.…</code>, <code>cluster.…</code>, <code>gpu.…</code>, <code>stack.…</code></>} />
            </details>
            <button type="button" class="plain" onClick={reset}>Start again</button>
        </form>
    );
}

const NICS = [50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200];
const MEMORIES = [40, 48, 64, 80, 96, 120, 141, 160, 192, 256, 288, 384];
const PRICES = Array.from({ length: 40 }, (_, at) => 0.5 + at * 0.25);
const PRECISIONS: [string, string][] = [["bf16", "bf16"], ["fp16", "fp16"], ["fp8", "fp8, per tensor"], ["fp8-block", "fp8, blocks"], ["mxfp8", "mxfp8"], ["nvfp4", "nvfp4"]];
const FIX_LABELS: Record<Fixable, string> = { tp: "TP", cp: "CP", pp: "PP", ep: "EP", zero: "ZeRO", mbs: "Micro-batch", recompute: "Recomputation" };
const degrees = (most: number): [string, string][] => [["", "any"], ...powers(1, most).map((value): [string, string] => [String(value), String(value)])];
const FIX_OPTIONS: Record<Fixable, [string, string][]> = {
    tp: degrees(64), cp: degrees(64), pp: degrees(64), ep: degrees(256),
    zero: [["", "any"], ["0", "0"], ["1", "1"], ["2", "2"], ["3", "3"]],
    mbs: degrees(16),
    recompute: [["", "any"], ["none", "none"], ["core_attn", "attention core"], ["layernorm", "norms"], ["full", "full"]],
};

function powers(from: number, to: number): number[] {
    const found: number[] = [];
    for (let value = from; value <= to; value *= 2) found.push(value);
    return found;
}

/** Numbers of GPUs for a slider: whole nodes, by halves between powers of two. */
function multiples(node: number, most: number): number[] {
    const found = new Set<number>();
    for (let value = node; value < most; value *= 2) {
        found.add(value);
        if ((value * 1.5) % node === 0 && value * 1.5 < most) found.add(value * 1.5);
    }
    found.add(most);
    return [...found].sort((a, b) => a - b);
}

function entries(all: { name: string; title: string }[], current: string, texts: Record<string, string>): [string, string][] {
    const own = [current, ...Object.keys(texts)].filter((name, at, names) => names.indexOf(name) === at && !all.some((entry) => entry.name === name));
    return [...own.map((name): [string, string] => [name, name]), ...all.map(({ name, title }): [string, string] => [name, title])];
}

interface ChoiceProps { label: string; value: string; change(value: string): void; options: [string, string][]; hint?: ComponentChildren }

function Choice({ label, value, change, options, hint }: ChoiceProps) {
    const id = useId();
    const shown = useMemo(() => options.map(([name, title]) => <option key={name} value={name} selected={name === value}>{title}</option>), [options, value]);
    return (
        <div class="field">
            <label for={id}>{label}</label>
            <select id={id} value={value} onChange={(event) => change(event.currentTarget.value)}>
                {shown}
            </select>
            {hint && <small>{hint}</small>}
        </div>
    );
}

interface SliderProps { label: string; value: number; own: boolean; text: string; steps: number[]; change(value: number): void; clear(): void }

/** Slider over given values, with a field for any other. */
function Slider({ label, value, own, text, steps, change, clear }: SliderProps) {
    const id = useId();
    const nearest = steps.reduce((best, step, at) => (Math.abs(Math.log(step / value)) < Math.abs(Math.log((steps[best] ?? step) / value)) ? at : best), 0);
    return (
        <div class="field slider">
            <label for={id}>{label}</label>
            <output for={id}>{text}{own && <button type="button" class="clear" onClick={clear} aria-label={`${label}: as usual`} title="as usual">×</button>}</output>
            <input id={id} type="range" min={0} max={steps.length - 1} step={1} value={nearest} aria-valuetext={text}
                onInput={(event) => change(steps[Number(event.currentTarget.value)] ?? value)} />
        </div>
    );
}

function Text({ label, value, change }: { label: string; value: string; change(value: string): void }) {
    const id = useId();
    return (
        <div class="field">
            <label for={id}>{label}</label>
            <input id={id} type="text" value={value} onChange={(event) => change(event.currentTarget.value)} />
        </div>
    );
}

interface LinesProps { label: string; value: string; change(value: string): void; placeholder: string; hint: ComponentChildren }

function Lines({ label, value, change, placeholder, hint }: LinesProps) {
    const id = useId();
    return (
        <div class="field">
            <label for={id}>{label}</label>
            <textarea id={id} rows={3} spellcheck={false} placeholder={placeholder} value={value} onChange={(event) => change(event.currentTarget.value)} />
            <small>{hint}</small>
        </div>
    );
}

function Tick({ label, value, change }: { label: string; value: boolean; change(value: boolean): void }) {
    return (
        <label class="tick">
            <input type="checkbox" checked={value} onChange={(event) => change(event.currentTarget.checked)} /> {label}
        </label>
    );
}
