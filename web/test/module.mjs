// The module in Node: a request in, the reply out.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

/** The module of the built page, from the script that holds it as text. */
export function moduleBytes(folder) {
    const script = readFileSync(new URL(`${folder}/engine.js`, import.meta.url), "utf8");
    return gunzipSync(Buffer.from(/"([^"]+)"/.exec(script)[1], "base64"));
}

export async function start(folder = "../dist") {
    const module = await WebAssembly.compile(moduleBytes(folder));
    const imports = WebAssembly.Module.imports(module);
    if (imports.length > 0) throw new Error(`the module imports ${imports.map(({ name }) => name).join(", ")}`);
    const { exports } = await WebAssembly.instantiate(module, {});
    return ({ ask, ...rest }) => {
        const bytes = Buffer.from(JSON.stringify({ [ask]: rest }));
        const at = exports.room(bytes.length); // first: the memory may grow
        new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
        const length = exports.answer();
        const reply = JSON.parse(Buffer.from(exports.memory.buffer, exports.reply(), length).toString());
        if (reply.error !== undefined) throw new Error(reply.error);
        return reply.ok;
    };
}
