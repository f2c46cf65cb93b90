// A running module in Node: a request in, the reply out.

/** Function that asks the module of these exports; it throws what the engine refuses. */
export function asker(exports) {
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
