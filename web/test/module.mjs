// The module of the built page in Node: a request in, the reply out.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { asker } from "../module/instance.mjs";
import { joined } from "../src/wasm.mjs";

/** A part of the module, from the script that holds it as text. */
export function part(folder, name) {
    const script = readFileSync(new URL(`${folder}/${name}.js`, import.meta.url), "utf8");
    return gunzipSync(Buffer.from(/"([^"]+)"/.exec(script)[1], "base64"));
}

async function instance(bytes) {
    const module = await WebAssembly.compile(bytes);
    const imports = WebAssembly.Module.imports(module);
    if (imports.length > 0) throw new Error(`the module imports ${imports.map(({ name }) => name).join(", ")}`);
    return asker((await WebAssembly.instantiate(module, {})).exports);
}

/** The whole module. */
export async function start(folder = "../dist") {
    return instance(joined(part(folder, "engine"), part(folder, "rest")));
}

/**
 * Its first part, as the page runs it: `needed` hears of each request that the rest is needed for, which is asked again of the whole.
 */
export async function startFirst(needed, folder = "../dist") {
    const module = await WebAssembly.compile(part(folder, "engine"));
    const fresh = () => asker(new WebAssembly.Instance(module, {}).exports);
    const whole = await start(folder);
    let first = fresh();
    return (request) => {
        try {
            return first(request);
        } catch (why) {
            if (!(why instanceof WebAssembly.RuntimeError)) throw why;
            needed(request);
            first = fresh();
            return whole(request);
        }
    };
}
