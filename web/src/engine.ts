/** The engine: the module, compiled once, and workers that run it. */

import EngineWorker from "./worker?worker&inline";

import { joined } from "./wasm.mjs";

type Part = "engine" | "rest";

declare global {
    var MESHWRIGHT: Partial<Record<Part, string>> | undefined;
}

/** Milliseconds that a request has left once a newer one waits; then its worker is ended. */
const GRACE_MS = 25;

/** Question of which an engine that stands by has the answer already, and with it every table of the catalogue that answers use. */
const WARM_UP = JSON.stringify({ live: { question: { problem: { model: "llama3-8b", cluster: "dgx-h100-8" } }, winners: [] } });

/** Bytes of a part of the module, from the script that holds it as text. */
async function loaded(part: Part): Promise<Uint8Array<ArrayBuffer>> {
    if (globalThis.MESHWRIGHT?.[part] === undefined) {
        await new Promise<void>((done, failed) => {
            const script = document.createElement("script");
            script.src = `./${part}.js`;
            script.onload = () => done();
            script.onerror = () => failed(new Error(`${part}.js is not beside the page`));
            document.head.append(script);
        });
    }
    const text = atob(globalThis.MESHWRIGHT?.[part] ?? "");
    delete globalThis.MESHWRIGHT?.[part];
    const packed = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at += 1) packed[at] = text.charCodeAt(at);
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

/** Code that workers run: the first part of the module until something needs the rest, then the whole. */
interface Code { module: WebAssembly.Module; isWhole: boolean }

let first: Promise<Uint8Array<ArrayBuffer>> | undefined;
let compiled: Promise<Code> | undefined;
let whole: Promise<Code> | undefined;

async function compile(bytes: Uint8Array<ArrayBuffer>, isWhole: boolean): Promise<Code> {
    return { module: await WebAssembly.compile(bytes), isWhole };
}

function firstPart(): Promise<Uint8Array<ArrayBuffer>> {
    return (first ??= loaded("engine"));
}

/** Compiled code; loaded on first use. */
function code(): Promise<Code> {
    return (compiled ??= firstPart().then((bytes) => compile(bytes, false)));
}

/** Has every worker from now on run the whole module. */
function useWhole(): void {
    compiled = whole ??= Promise.all([firstPart(), loaded("rest")]).then(([first, rest]) => compile(joined(first, rest), true));
}

/** Reason why a request was not answered: a newer one took its place. */
export class Superseded extends Error {}

/** Text of an error of the engine, which is that of the command line. */
export class Refused extends Error {}

/** Request of the engine: its kind, and the entries of that kind. */
export interface Request { ask: string; [entry: string]: unknown }

interface Job { request: string; done(reply: string): void; failed(why: Error): void }

type Told = { id: number; reply: string; tookMs: number } | { id: number; needsRest: true };

/**
 * One worker. The newest request is answered; one that waits is superseded by it, and one that runs is ended if it takes long. A
 * request that needs more than the first part of the module is asked again of a worker that runs the whole.
 */
export class Lane {
    private worker: Promise<Worker> | undefined;
    /** Worker that takes the place of the one that is ended. */
    private spare: Promise<Worker> | undefined;
    private running: (Job & { id: number; worker: Worker; since: number; obsolete?: number }) | undefined;
    private waiting: Job | undefined;
    private nextId = 0;
    private timer: number | undefined;
    private generation = 0;

    /** Whether a newer request lets the running one finish for a moment, and whether another worker stands by for when it is ended. */
    constructor(private readonly options: { patient?: boolean; standby?: boolean } = {}) {
        if (!options.standby) return;
        this.worker = this.start(); // while the page draws itself
        this.worker.catch(() => undefined); // the first request tells why
    }

    /** Answer to a request; rejected with `Superseded` if a newer one comes first. */
    ask<T>({ ask: kind, ...rest }: Request): Promise<T> {
        return new Promise<string>((done, failed) => {
            this.waiting?.failed(new Superseded());
            this.waiting = { request: JSON.stringify({ [kind]: rest }), done, failed };
            void this.next();
        }).then((reply) => {
            const told = JSON.parse(reply) as { ok: T } | { error: string };
            if ("error" in told) throw new Refused(told.error);
            return told.ok;
        });
    }

    /** Gives up the request that runs, and with it the worker; another takes its place. */
    giveUp(): void {
        if (this.running !== undefined) this.end();
    }

    private end(): void {
        this.generation += 1;
        const { worker, running } = this;
        [this.worker, this.spare, this.running] = [this.spare, undefined, undefined];
        running?.failed(new Superseded());
        void worker?.then((known) => known.terminate());
        if (this.worker !== undefined) this.spare = this.warm();
    }

    private async next(): Promise<void> {
        if (this.waiting === undefined) return;
        if (this.running !== undefined) {
            this.running.obsolete ??= performance.now();
            const left = this.options.patient ? this.running.obsolete + GRACE_MS - performance.now() : 0;
            clearTimeout(this.timer);
            if (left > 0) {
                this.timer = setTimeout(() => void this.next(), left);
                return;
            }
            performance.measure("given up", { start: this.running.obsolete });
            this.end();
        }
        const generation = this.generation;
        this.worker ??= this.start();
        let worker: Worker;
        try {
            worker = await this.worker;
        } catch (why) {
            this.waiting?.failed(why as Error);
            this.waiting = undefined;
            return;
        }
        if (generation !== this.generation || this.running !== undefined || this.waiting === undefined) return;
        this.running = { ...this.waiting, id: this.nextId++, worker, since: performance.now() };
        this.waiting = undefined;
        worker.postMessage({ id: this.running.id, request: this.running.request });
    }

    private async start(): Promise<Worker> {
        const { module, isWhole } = await code();
        const worker = new EngineWorker();
        worker.postMessage({ module, isWhole });
        worker.onmessage = ({ data }: MessageEvent<Told>) => {
            const job = this.running;
            if (job?.worker !== worker || data.id !== job.id) return;
            this.running = undefined;
            if ("needsRest" in data) {
                useWhole();
                this.drop();
                if (this.waiting === undefined) this.waiting = job;
                else job.failed(new Superseded());
            } else {
                performance.measure("answer", { start: job.since, duration: data.tookMs });
                job.done(data.reply);
                if (this.options.standby) this.spare ??= this.warm();
            }
            void this.next();
        };
        worker.onerror = (event) => {
            event.preventDefault();
            const job = this.running;
            if (job?.worker !== worker) return;
            this.running = undefined;
            this.drop();
            job.failed(new Refused(`the engine stopped: ${event.message}`));
            void this.next();
        };
        return worker;
    }

    /** Ends the worker, which can answer nothing more, and the one that stands by with the same code. */
    private drop(): void {
        const { spare } = this;
        this.spare = undefined;
        this.end();
        void spare?.then((known) => known.terminate());
    }

    private async warm(): Promise<Worker> {
        const worker = await this.start();
        worker.postMessage({ id: -1, request: WARM_UP });
        return worker;
    }
}
