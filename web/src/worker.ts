/** Worker with one instance of the module: a request in, the reply out. */

interface Exports {
    memory: WebAssembly.Memory;
    room(bytes: number): number;
    answer(): number;
    reply(): number;
}

let instance: Promise<Exports> | undefined;
let isWhole = false;

self.onmessage = async ({ data }: MessageEvent<{ module: WebAssembly.Module; isWhole: boolean } | { id: number; request: string }>) => {
    if ("module" in data) {
        isWhole = data.isWhole;
        instance = WebAssembly.instantiate(data.module, {}).then(({ exports }) => exports as unknown as Exports);
        return;
    }
    if (instance === undefined) return;
    const exports = await instance;
    const started = performance.now();
    try {
        const reply = answer(exports, data.request);
        self.postMessage({ id: data.id, reply, tookMs: performance.now() - started });
    } catch (why) {
        // In the first part of the module, a function that lies in the rest traps; in the whole, nothing should.
        if (isWhole || !(why instanceof WebAssembly.RuntimeError)) throw why;
        self.postMessage({ id: data.id, needsRest: true });
    }
};

function answer(exports: Exports, text: string): string {
    const request = new TextEncoder().encode(text);
    const at = exports.room(request.length); // first: the memory may grow, and its buffer is then another
    new Uint8Array(exports.memory.buffer, at, request.length).set(request);
    const bytes = exports.answer();
    return new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.reply(), bytes));
}
