/** Worker with one instance of the module: a request in, the reply out. */

interface Exports {
    memory: WebAssembly.Memory;
    room(bytes: number): number;
    answer(): number;
    reply(): number;
}

let exports: Exports | undefined;

self.onmessage = async ({ data }: MessageEvent<{ module: WebAssembly.Module } | { id: number; request: string }>) => {
    if ("module" in data) {
        exports = (await WebAssembly.instantiate(data.module, {})).exports as unknown as Exports;
        self.postMessage({ ready: true });
        return;
    }
    if (exports === undefined) return;
    const started = performance.now();
    const request = new TextEncoder().encode(data.request);
    const at = exports.room(request.length); // first: the memory may grow, and its buffer is then another
    new Uint8Array(exports.memory.buffer, at, request.length).set(request);
    const bytes = exports.answer();
    const reply = new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.reply(), bytes));
    self.postMessage({ id: data.id, reply, tookMs: performance.now() - started });
};
