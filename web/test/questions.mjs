// Random questions: the module's document is what `plan --format json` prints, byte for byte. They are asked of its first part.
// checks/questions.json says how they are drawn; Python draws the same ones (python/measure/questions.py), and prints the same
// fingerprint of their list.
//
// node test/questions.mjs PATH/TO/meshwright [number] [seed]
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { startFirst } from "./module.mjs";

const [binary, number = "40", seed = "1"] = process.argv.slice(2);
const { flags } = JSON.parse(readFileSync(new URL("../../checks/questions.json", import.meta.url), "utf8"));

/** Output of the command line. */
function command(line) {
    const run = spawnSync(binary, line, { encoding: "utf8", maxBuffer: 1 << 26 });
    if (run.error !== undefined) throw run.error;
    return run;
}

/** Numbers in [0, 1): mulberry32, so that a seed names the same questions in every language. */
function random(state) {
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let bits = Math.imul(state ^ (state >>> 15), 1 | state);
        bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
        return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
    };
}

let onRest = 0;
const ask = await startFirst(() => { onRest += 1; });
const next = random(Number(seed));
const one = (list) => list[Math.floor(next() * list.length)];
const [models, clusters] = ["models", "clusters"].map((kind) => JSON.parse(command([kind, "--format", "json"]).stdout).rows);

/** A question, as JSON and as arguments. */
function question() {
    const [model, cluster] = [one(models).name, one(clusters)];
    const json = { problem: { model, cluster: cluster.name, options: {} }, plans: {} };
    const line = ["plan", model, cluster.name];
    for (const { flag, share, values, times, at, list } of flags) {
        if (next() >= share) continue;
        const drawn = one(values);
        const value = times === undefined ? drawn : drawn * Number(cluster[times]);
        line.push(`--${flag}`, String(value));
        let into = json;
        for (const key of at.slice(0, -1)) into = into[key] ??= {};
        into[at.at(-1)] = list ? [value] : value;
    }
    return { json, line: [...line, "--format", "json"] };
}

const [lines, different, counts] = [[], [], { answered: 0, refused: 0, empty: 0 }];
for (let at = 0; at < Number(number); at += 1) {
    const { json, line } = question();
    lines.push(line.join(" "));
    const native = command(line);
    let reply;
    try {
        reply = ask({ ask: "plan", question: json }).document;
        counts[native.status === 0 ? "answered" : "empty"] += 1;
    } catch (why) {
        reply = why.message;
        counts.refused += 1;
    }
    const same = native.status === 2 ? native.stderr.includes(reply.split("\n")[0]) : reply === native.stdout;
    if (!same) different.push(lines.at(-1));
}
const fingerprint = createHash("sha256").update(lines.join("\n")).digest("hex").slice(0, 12);
console.log(`${number} questions (${fingerprint}): ${counts.answered} with plans, ${counts.empty} where none runs, ${counts.refused} refused; ${onRest} needed the rest of the module; ${different.length} differ from the command line`);
for (const line of different) console.log(`differs: meshwright ${line}`);
process.exit(different.length === 0 ? 0 : 1);
