// Splits the module in two: what runs when a user plans, with the data that it refers to, and the rest. Beside them, the entries of
// the catalogue, which the page shows before an engine runs.
//
// node module/split.mjs MODULE FOLDER (for engine.wasm, rest.bin and catalogue.json)
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { asker } from "./instance.mjs";
import { rehearse } from "./rehearsal.mjs";
import { dataSymbols, relocations, shortened, signed } from "./relocations.mjs";
import { bodiesOf, CODE, codeOf, DATA, EMPTY, encoded, isEmpty, joined, moduleOf, number, restOf, sections } from "../src/wasm.mjs";

const [CUSTOM, MEMORY, PAGE] = [0, 5, 65_536];
/** Pieces of data between which so few bytes lie are one: each costs some bytes. */
const NEAR = 8;
const [path, folder] = process.argv.slice(2);
const linked = sections(readFileSync(path));
const content = (id) => linked.find((section) => section.id === id).content;
const replaced = (changes) => moduleOf(linked.filter(({ id }) => id !== CUSTOM).map(({ id, content }) => ({ id, content: changes[id] ?? content })));

const code = content(CODE);
const references = relocations(linked, "CODE");
const functions = bodiesOf(code).map((body) => ({ body, start: body.byteOffset - code.byteOffset, references: [] }));
for (let [at, next] = [0, 0]; next < references.length; next += 1) {
    while (references[next].offset >= functions[at].start + functions[at].body.length) at += 1;
    functions[at].references.push(references[next]);
}
const bodies = functions.map(({ body, start, references }) => shortened(body, start, references));

/** Functions that run in the rehearsal, and the catalogue: each function stores a mark after the module's own memory when it is called. */
async function rehearsed() {
    const memory = content(MEMORY);
    if (memory[0] !== 1 || memory[1] !== 0) throw new Error("the module has one memory, without a limit");
    const [pages] = number(memory, 2);
    const marked = (body, at) => {
        let [groups, from] = number(body, 0);
        for (; groups > 0; groups -= 1) from = number(body, from)[1] + 1; // so many locals, of one type
        const store = [0x41, ...signed(pages * PAGE + at), 0x41, 1, 0x3a, 0, 0]; // i32.const, i32.const 1, i32.store8
        return Buffer.concat([body.subarray(0, from), Uint8Array.from(store), body.subarray(from)]);
    };
    const room = Uint8Array.of(1, 0, ...encoded(pages + Math.ceil(bodies.length / PAGE)));
    const module = await WebAssembly.compile(replaced({ [MEMORY]: room, [CODE]: codeOf(bodies.map(marked)) }));
    const ran = new Uint8Array(bodies.length);
    let [exports, asked] = [null, 0];
    const keep = () => new Uint8Array(exports.memory.buffer, pages * PAGE, bodies.length).forEach((mark, at) => { ran[at] |= mark; });
    // What is worked out once may be so for any request that comes first: every other one is asked of a fresh instance.
    const catalogue = rehearse((request) => {
        if (asked++ % 2 === 0) exports = new WebAssembly.Instance(module, {}).exports;
        try {
            return asker(exports)(request);
        } finally {
            keep();
        }
    });
    return { ran, catalogue };
}

/** Whether each byte of the data section is referred to by none but functions that did not run. */
function unused(data, ran) {
    const starts = segments(data);
    const symbols = dataSymbols(linked).map((symbol) => symbol && { from: starts[symbol.segment] + symbol.offset, size: symbol.size, isUsed: false });
    const pointers = relocations(linked, "DATA");
    const firstFrom = (from) => {
        let [low, high] = [0, pointers.length];
        while (low < high) {
            const middle = (low + high) >> 1;
            if (pointers[middle].offset < from) low = middle + 1;
            else high = middle;
        }
        return low;
    };
    const open = functions.flatMap(({ references }, at) => (ran[at] ? references : []));
    while (open.length > 0) {
        const { symbol, isOfAddress } = open.pop();
        const found = isOfAddress ? symbols[symbol] : null;
        if (!found || found.isUsed) continue;
        found.isUsed = true;
        for (let at = firstFrom(found.from); at < pointers.length && pointers[at].offset < found.from + found.size; at += 1) open.push(pointers[at]);
    }
    const bytes = new Uint8Array(data.length);
    for (const isUsed of [false, true]) {
        for (const symbol of symbols) if (symbol?.isUsed === isUsed) bytes.fill(isUsed ? 0 : 1, symbol.from, symbol.from + symbol.size);
    }
    return bytes;
}

/** Offset in the data section of the first byte of each segment. */
function segments(data) {
    let [count, at] = number(data, 0);
    return Array.from({ length: count }, () => {
        if (data[at] !== 0 || data[at + 1] !== 0x41) throw new Error("each segment of data goes to a fixed address");
        const [length, from] = number(data, number(data, at + 2)[1] + 1); // flags, i32.const, address, end
        at = from + length;
        return from;
    });
}

/** Pieces of data whose bytes are unused. */
function piecesOf(data, isUnused) {
    const pieces = [];
    for (let at = isUnused.indexOf(1); at >= 0; at = isUnused.indexOf(1, at)) {
        let to = at;
        for (let next = at; next < data.length && next - to <= NEAR; next += 1) if (isUnused[next]) to = next + 1;
        pieces.push({ at, bytes: data.subarray(at, to), to });
        at = to;
    }
    return pieces;
}

const { ran, catalogue } = await rehearsed();
const data = content(DATA);
const isUnused = unused(data, ran);
const zeroed = data.map((byte, at) => (isUnused[at] ? 0 : byte));
const first = replaced({ [CODE]: codeOf(bodies.map((body, at) => (ran[at] ? body : EMPTY))), [DATA]: zeroed });
const rest = restOf(bodies.filter((body, at) => !ran[at] || isEmpty(body)), piecesOf(data, isUnused));
if (Buffer.compare(joined(first, rest), replaced({ [CODE]: codeOf(bodies) })) !== 0) throw new Error("the two parts joined are not the module");
mkdirSync(folder, { recursive: true });
for (const [name, bytes] of [["engine.wasm", first], ["rest.bin", rest], ["catalogue.json", JSON.stringify(catalogue)]]) writeFileSync(`${folder}/${name}`, bytes);
const sum = (marks) => marks.reduce((all, mark) => all + mark, 0);
console.log(`first part: ${sum(ran)} of ${bodies.length} functions, ${data.length - sum(isUnused)} of ${data.length} bytes of data`);
