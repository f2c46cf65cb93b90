/**
 * A WebAssembly module in two parts: a first one in which rare functions have empty bodies and their data is zero, and the rest, which
 * holds both. The first runs as it is until it calls one of those functions, which traps; joined, the two are the whole module.
 */

/** Bytes before the first section: the magic word and the version. */
const HEADER = 8;

/** Identifiers of the sections of function bodies and of data. */
export const CODE = 10;
export const DATA = 11;

/** Body without locals that traps: `unreachable`, `end`. */
export const EMPTY = Uint8Array.of(0, 0x00, 0x0b);

/**
 * Unsigned number in LEB128 at a place, and the place after it.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @returns {[number, number]}
 */
export function number(bytes, at) {
    let [value, shift, byte] = [0, 0, 0];
    do {
        byte = bytes[at++] ?? 0;
        value += (byte & 0x7f) * 2 ** shift;
        shift += 7;
    } while (byte & 0x80);
    return [value, at];
}

/**
 * LEB128 of an unsigned number.
 * @param {number} value
 * @returns {Uint8Array}
 */
export function encoded(value) {
    const bytes = [];
    do {
        bytes.push((value % 128) + (value >= 128 ? 128 : 0));
        value = Math.floor(value / 128);
    } while (value > 0);
    return Uint8Array.from(bytes);
}

/**
 * Items that follow one another, each after its length.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @returns {Uint8Array[]}
 */
export function items(bytes, at) {
    const found = [];
    while (at < bytes.length) {
        const [length, from] = number(bytes, at);
        found.push(bytes.subarray(from, from + length));
        at = from + length;
    }
    return found;
}

/**
 * Each item after its length.
 * @param {Uint8Array[]} all
 * @returns {Uint8Array}
 */
export function listed(all) {
    return concatenated(all.flatMap((item) => [encoded(item.length), item]));
}

/**
 * Sections of a module, in their order.
 * @param {Uint8Array} module
 * @returns {{ id: number, content: Uint8Array }[]}
 */
export function sections(module) {
    const found = [];
    let at = HEADER;
    while (at < module.length) {
        const id = module[at] ?? 0;
        const [length, from] = number(module, at + 1);
        found.push({ id, content: module.subarray(from, from + length) });
        at = from + length;
    }
    return found;
}

/**
 * Module of these sections.
 * @param {{ id: number, content: Uint8Array }[]} all
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function moduleOf(all) {
    const header = Uint8Array.of(0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
    return concatenated([header, ...all.flatMap(({ id, content }) => [Uint8Array.of(id), encoded(content.length), content])]);
}

/**
 * Bodies of a section of function bodies.
 * @param {Uint8Array} content
 * @returns {Uint8Array[]}
 */
export function bodiesOf(content) {
    return items(content, number(content, 0)[1]);
}

/**
 * Section of these bodies.
 * @param {Uint8Array[]} bodies
 * @returns {Uint8Array}
 */
export function codeOf(bodies) {
    return concatenated([encoded(bodies.length), listed(bodies)]);
}

/**
 * Whether a body is empty, in the first part or in the compiler's module.
 * @param {Uint8Array} body
 * @returns {boolean}
 */
export function isEmpty(body) {
    return body.length === EMPTY.length && body.every((byte, at) => byte === EMPTY[at]);
}

/**
 * Rest of a module: bodies for the functions that are empty in the first part, in their order, and pieces of its data section.
 * @param {Uint8Array[]} bodies
 * @param {{ at: number, bytes: Uint8Array }[]} pieces
 * @returns {Uint8Array}
 */
export function restOf(bodies, pieces) {
    return listed([listed(bodies), listed(pieces.flatMap(({ at, bytes }) => [encoded(at), bytes]))]);
}

/**
 * The whole module.
 * @param {Uint8Array} first
 * @param {Uint8Array} rest
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function joined(first, rest) {
    const [bodies = [], pieces = []] = items(rest, 0).map((list) => items(list, 0));
    let next = 0;
    const filled = (/** @type {Uint8Array} */ body) => (isEmpty(body) ? bodies[next++] ?? body : body);
    const code = (/** @type {Uint8Array} */ content) => codeOf(bodiesOf(content).map(filled));
    const data = (/** @type {Uint8Array} */ content) => {
        const whole = content.slice();
        for (let at = 0; at + 1 < pieces.length; at += 2) whole.set(pieces[at + 1] ?? [], number(pieces[at] ?? whole, 0)[0]);
        return whole;
    };
    return moduleOf(sections(first).map(({ id, content }) => ({ id, content: id === CODE ? code(content) : id === DATA ? data(content) : content })));
}

/**
 * @param {Uint8Array[]} parts
 * @returns {Uint8Array<ArrayBuffer>}
 */
function concatenated(parts) {
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        all.set(part, at);
        at += part.length;
    }
    return all;
}
