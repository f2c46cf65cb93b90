/** The engine: the module, compiled once, and workers that run it. */

import EngineWorker from "./worker?worker&inline";

declare global {
    var MESHWRIGHT_MODULE: string | undefined;
}

/** Milliseconds after which a request that nobody waits for is ended with its worker; until then it may finish. */
const PATIENCE_MS = 350;

/** Bytes of the module, from the script that holds it as text. */
async function moduleBytes(): Promise<ArrayBuffer> {
    await new Promise<void>((done, failed) => {
        const script = document.createElement("script");
        script.src = "./engine.js";
        script.onload = () => done();
        script.onerror = () => failed(new Error("engine.js is not beside the page"));
        document.head.append(script);
    });
    const text = atob(globalThis.MESHWRIGHT_MODULE ?? "");
    globalThis.MESHWRIGHT_MODULE = undefined;
    const packed = Uint8Array.from(text, (character) => character.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** The compiled module; loaded on first use. */
let compiled: Promise<WebAssembly.Module> | undefined;
export function module(): Promise<WebAssembly.Module> {
    compiled ??= moduleBytes().then((bytes) => WebAssembly.compile(bytes));
    return compiled;
}

/** Reason why a request was not answered: a newer one took its place. */
export class Superseded extends Error {}

/** Text of an error of the engine, which is that of the command line. */
export class Refused extends Error {}

/** Request of the engine: its kind, and the entries of that kind. */
export interface Request { ask: string; [entry: string]: unknown }

interface Job { request: string; done(reply: string): void; failed(why: Error): void }

/** One worker. The newest request is answered; one that waits is superseded by it, and one that runs is ended if it takes long. */
export class Lane {
    private worker: Promise<Worker> | undefined;
    private running: (Job & { id: number; since: number }) | undefined;
    private waiting: Job | undefined;
    private nextId = 0;
    private timer: number | undefined;
    private generation = 0;

    /** Whether a newer request lets the running one finish for a while. */
    constructor(private readonly patient: boolean) {}

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

    /** Ends the worker and whatever it does. */
    end(): void {
        this.generation += 1;
        const { worker, running } = this;
        [this.worker, this.running] = [undefined, undefined];
        running?.failed(new Superseded());
        void worker?.then((known) => known.terminate());
    }

    private async next(): Promise<void> {
        if (this.waiting === undefined) return;
        if (this.running !== undefined) {
            const left = this.patient ? this.running.since + PATIENCE_MS - performance.now() : 0;
            clearTimeout(this.timer);
            if (left > 0) {
                this.timer = setTimeout(() => void this.next(), left);
                return;
            }
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
        this.running = { ...this.waiting, id: this.nextId++, since: performance.now() };
        this.waiting = undefined;
        worker.postMessage({ id: this.running.id, request: this.running.request });
    }

    private async start(): Promise<Worker> {
        const code = await module();
        const worker = new EngineWorker();
        await new Promise<void>((ready) => {
            worker.onmessage = () => ready();
            worker.postMessage({ module: code });
        });
        worker.onmessage = ({ data }: MessageEvent<{ id: number; reply: string; tookMs: number }>) => {
            const job = this.running;
            if (job === undefined || data.id !== job.id) return;
            this.running = undefined;
            performance.measure("answer", { start: job.since, duration: data.tookMs });
            job.done(data.reply);
            void this.next();
        };
        worker.onerror = (event) => {
            event.preventDefault();
            const job = this.running;
            this.running = undefined;
            this.end();
            job?.failed(new Refused(`the engine stopped: ${event.message}`));
            void this.next();
        };
        return worker;
    }
}
