// Symbols and relocations that the linker leaves in a module (`--emit-relocs`): which data a function or other data refers to. The
// format is WebAssembly's tool conventions, "Linking".
import { encoded, number } from "../src/wasm.mjs";

const [SYMBOL_TABLE, DATA_SYMBOL, SECTION_SYMBOL] = [8, 1, 3];
const [UNDEFINED, NAMED] = [0x10, 0x40];
/** Relocations that hold an addend, those of an address, and the padded numbers of code: unsigned and signed. */
const WITH_ADDEND = new Set([3, 4, 5, 8, 9, 11, 14, 15, 16, 17, 21, 22, 23, 25]);
const OF_ADDRESS = new Set([3, 4, 5, 11, 23]);
const [UNSIGNED, SIGNED] = [new Set([0, 3, 6, 7, 10, 20]), new Set([1, 4, 11, 12])];

/** Content of a custom section after its name; null where there is none of that name. */
function named(all, name) {
    for (const { id, content } of all) {
        if (id !== 0) continue;
        const [length, from] = number(content, 0);
        if (Buffer.from(content.subarray(from, from + length)).toString() === name) return content.subarray(from + length);
    }
    throw new Error(`the module has no section ${name}: link it with --emit-relocs`);
}

/** Data symbols by their index in the symbol table: segment, offset in it, and size; null for every other symbol. */
export function dataSymbols(all) {
    const linking = named(all, "linking");
    const symbols = [];
    let at = number(linking, 0)[1]; // after the version
    while (at < linking.length) {
        const kind = linking[at];
        const [length, from] = number(linking, at + 1);
        if (kind === SYMBOL_TABLE) symbols.push(...table(linking, from));
        at = from + length;
    }
    return symbols;
}

function table(linking, from) {
    let at = from;
    const next = () => {
        const [value, after] = number(linking, at);
        at = after;
        return value;
    };
    return Array.from({ length: next() }, () => {
        const kind = linking[at++];
        const flags = next();
        const skipName = () => {
            const length = next();
            at += length;
        };
        if (kind === DATA_SYMBOL) {
            skipName();
            return flags & UNDEFINED ? null : { segment: next(), offset: next(), size: next() };
        }
        next(); // the index of what it names
        if (kind !== SECTION_SYMBOL && (!(flags & UNDEFINED) || flags & NAMED)) skipName();
        return null;
    });
}

/** Relocations of the section of code or of data, by offset in its content. */
export function relocations(all, name) {
    const content = named(all, `reloc.${name}`);
    let at = number(content, 0)[1]; // after the index of the section
    const next = () => {
        const [value, after] = number(content, at);
        at = after;
        return value;
    };
    const found = Array.from({ length: next() }, () => {
        const kind = content[at++];
        const [offset, symbol] = [next(), next()];
        if (WITH_ADDEND.has(kind)) next();
        return { offset, symbol, kind, isOfAddress: OF_ADDRESS.has(kind) };
    });
    return found.sort((a, b) => a.offset - b.offset);
}

/** Body at an offset of its section with the numbers that the linker padded in their shortest form. */
export function shortened(body, start, relocations) {
    const parts = [];
    let from = 0;
    for (const { offset, kind } of relocations) {
        const at = offset - start;
        const [value, after] = number(body, at);
        if (!UNSIGNED.has(kind) && !SIGNED.has(kind)) continue;
        parts.push(body.subarray(from, at), UNSIGNED.has(kind) ? encoded(value) : signed(value | 0));
        from = after;
    }
    return Buffer.concat([...parts, body.subarray(from)]);
}

/** Signed LEB128. */
export function signed(value) {
    const bytes = [];
    for (;;) {
        const low = value & 0x7f;
        value >>= 7;
        if ((value === 0 && !(low & 0x40)) || (value === -1 && low & 0x40)) return Uint8Array.from([...bytes, low]);
        bytes.push(low | 0x80);
    }
}
