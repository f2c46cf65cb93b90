/** The question of the page: its fields, its form in the address, in JSON and on the command line. */

import { strFromU8, strToU8, unzlibSync, zlibSync } from "fflate";

/** Degrees and settings that a user may fix; empty means any. */
export const FIXABLE = ["tp", "cp", "pp", "ep", "zero", "mbs", "recompute"] as const;
export type Fixable = (typeof FIXABLE)[number];

export interface Question {
    model: string;
    cluster: string;
    gpus: number | null;
    batch: number | null;
    seq: number | null;
    precision: string;
    stack: string;
    framework: string;
    risk: number | null;
    /** GB of a GPU's memory, Gb/s of its NIC; null as in the cluster's file. */
    hbm: number | null;
    nic: number | null;
    fix: Partial<Record<Fixable, string>>;
    exotic: boolean;
    lora: boolean;
    tokens: string;
    price: number | null;
    terms: string;
    objective: string;
    top: number;
    /** Other values of the files, one a line, as `--set` takes them. */
    set: string;
    /** Files that were dropped, by name. */
    texts: Record<string, string>;
}

export const FIRST: Question = {
    model: "llama3-405b",
    cluster: "h100-24576",
    gpus: null,
    batch: null,
    seq: null,
    precision: "bf16",
    stack: "",
    framework: "",
    risk: null,
    hbm: null,
    nic: null,
    fix: {},
    exotic: false,
    lora: false,
    tokens: "15.6 T",
    price: null,
    terms: "contract",
    objective: "step-time",
    top: 5,
    set: "",
    texts: {},
};

type Key = Exclude<keyof Question, "fix" | "texts">;
const NUMBERS: readonly Key[] = ["gpus", "batch", "seq", "risk", "hbm", "nic", "price", "top"];
const FLAGS: readonly Key[] = ["exotic", "lora"];

function base64url(bytes: Uint8Array): string {
    return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function fromBase64url(text: string): Uint8Array {
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(plain, (character) => character.charCodeAt(0));
}

/** Fragment of the address; what equals the first question is left out, except what is asked about. */
export function toFragment(question: Question): string {
    const fields = new URLSearchParams({ model: question.model, cluster: question.cluster });
    for (const key of Object.keys(FIRST) as (keyof Question)[]) {
        if (key === "fix" || key === "texts" || key === "model" || key === "cluster") continue;
        if (question[key] !== FIRST[key]) fields.set(key, String(question[key] ?? ""));
    }
    for (const [key, value] of Object.entries(question.fix)) if (value) fields.set(`fix.${key}`, value);
    if (Object.keys(question.texts).length > 0) {
        fields.set("texts", base64url(zlibSync(strToU8(JSON.stringify(question.texts)), { level: 9 })));
    }
    return fields.toString();
}

/** Question of a fragment; what it lacks is as in the first question, and what is no value of its field is left out. */
export function fromFragment(fragment: string): Question {
    const fields = new URLSearchParams(fragment.replace(/^#/, ""));
    const question: Question = { ...FIRST, fix: {}, texts: {} };
    const into = question as unknown as Record<string, unknown>;
    for (const key of Object.keys(FIRST) as (keyof Question)[]) {
        const value = fields.get(key);
        if (value === null || key === "fix" || key === "texts") continue;
        if (FLAGS.includes(key as Key)) into[key] = value === "true";
        else if (NUMBERS.includes(key as Key)) {
            const number = Number(value);
            if (value === "") into[key] = null;
            else if (Number.isFinite(number) && number > 0) into[key] = number;
        } else into[key] = value;
    }
    for (const key of FIXABLE) {
        const value = fields.get(`fix.${key}`);
        if (value) question.fix[key] = value;
    }
    const packed = fields.get("texts");
    if (packed) {
        try {
            question.texts = JSON.parse(strFromU8(unzlibSync(fromBase64url(packed)))) as Record<string, string>;
        } catch {
            question.texts = {}; // the question then names a file that is not there, and its error says so
        }
    }
    return question;
}

function sets(question: Question): string[] {
    const set: string[] = [];
    if (question.nic !== null) set.push(`cluster.nic=${question.nic} Gb/s`);
    if (question.hbm !== null) set.push(`gpu.hbm=${question.hbm} GB`);
    return [...set, ...question.set.split("\n").map((line) => line.trim()).filter((line) => line !== "")];
}

/** Model, cluster and workload as the engine reads them. */
export function problem(question: Question): object {
    const options: Record<string, unknown> = { precision: question.precision };
    if (question.gpus !== null) options["gpus"] = question.gpus;
    if (question.batch !== null) options["global_batch"] = question.batch;
    if (question.seq !== null) options["seq_len"] = question.seq;
    if (question.stack) options["stack"] = question.stack;
    if (question.risk !== null) options["risk"] = question.risk;
    if (question.lora) options["lora"] = true;
    const set = sets(question);
    if (set.length > 0) options["set"] = set;
    if (Object.keys(question.texts).length > 0) options["texts"] = question.texts;
    return { model: question.model, cluster: question.cluster, options };
}

/** Question of `plan` as the engine reads it. */
export function planQuestion(question: Question, sensitivity = false): object {
    const fix = Object.entries(question.fix).filter(([, value]) => value).map(([key, value]) => `${key}=${value}`);
    const economy: Record<string, unknown> = { terms: question.terms, objective: question.objective };
    if (question.tokens.trim()) economy["tokens"] = question.tokens;
    if (question.price !== null) economy["price"] = `${question.price} $/h`;
    const plans: Record<string, unknown> = { fix, economy, top: question.top, exotic: question.exotic };
    if (question.framework) plans["for"] = question.framework;
    if (sensitivity) plans["sensitivity"] = true;
    return { problem: problem(question), plans };
}

function quoted(word: string): string {
    return /^[\w./:=-]+$/.test(word) ? word : `"${word.replace(/(["\\$`])/g, "\\$1")}"`;
}

/** Flags of model, cluster and workload. */
function problemFlags(question: Question): string[] {
    const flags: string[] = [];
    if (question.gpus !== null) flags.push("--gpus", String(question.gpus));
    if (question.batch !== null) flags.push("--global-batch", String(question.batch));
    if (question.seq !== null) flags.push("--seq-len", String(question.seq));
    if (question.precision !== "bf16") flags.push("--precision", question.precision);
    if (question.stack) flags.push("--stack", question.stack);
    if (question.risk !== null) flags.push("--risk", String(question.risk));
    if (question.lora) flags.push("--lora");
    for (const set of sets(question)) flags.push("--set", set);
    return flags;
}

/** Command line that asks the same. */
export function commandLine(question: Question): string {
    const flags = problemFlags(question);
    for (const [key, value] of Object.entries(question.fix)) if (value) flags.push("--fix", `${key}=${value}`);
    if (question.framework) flags.push("--for", question.framework);
    if (question.exotic) flags.push("--exotic");
    if (question.tokens.trim()) flags.push("--tokens", question.tokens);
    if (question.objective !== "step-time") flags.push("--objective", question.objective);
    if (question.terms !== "contract") flags.push("--terms", question.terms);
    if (question.price !== null) flags.push("--price", `${question.price} $/h`);
    if (question.top !== 5) flags.push("--top", String(question.top));
    return ["meshwright plan", question.model, question.cluster, ...flags].map((word, at) => (at === 0 ? word : quoted(word))).join(" ");
}

/** Command line that explains one plan. */
export function explainLine(question: Question, plan: string): string {
    return ["meshwright explain", ...[question.model, question.cluster, ...problemFlags(question), "--plan", plan].map(quoted)].join(" ");
}
