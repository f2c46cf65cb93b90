// Random questions: the module's document is what `plan --format json` prints, byte for byte.
//
// node test/questions.mjs PATH/TO/meshwright [number] [seed]
import { spawnSync } from "node:child_process";
import { start } from "./module.mjs";

const [binary, number = "40", seed = "1"] = process.argv.slice(2);
const ask = await start();
const { models, clusters } = ask({ ask: "catalogue" });

/** Numbers in [0, 1): mulberry32, so that a seed names its questions. */
function random(state) {
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let bits = Math.imul(state ^ (state >>> 15), 1 | state);
        bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
        return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
    };
}

const next = random(Number(seed));
const one = (list) => list[Math.floor(next() * list.length)];
const sometimes = (share, make) => (next() < share ? make() : undefined);

/** A question, as JSON and as flags. */
function question() {
    const [model, cluster] = [one(models).name, one(clusters)];
    const [options, plans, flags] = [{}, {}, []];
    const set = (into, key, flag, value) => {
        if (value === undefined) return;
        into[key] = value;
        flags.push(flag, String(value));
    };
    set(options, "gpus", "--gpus", sometimes(0.5, () => cluster.gpus_per_node * 2 ** Math.floor(next() * 8)));
    set(options, "global_batch", "--global-batch", sometimes(0.5, () => one([64, 256, 512, 1024, 2048])));
    set(options, "seq_len", "--seq-len", sometimes(0.3, () => one([2048, 4096, 8192, 16384])));
    set(options, "precision", "--precision", sometimes(0.2, () => "fp8"));
    set(options, "risk", "--risk", sometimes(0.2, () => one([0.01, 0.1, 0.25])));
    set(plans, "top", "--top", sometimes(0.3, () => one([1, 3, 8])));
    const fixed = sometimes(0.3, () => one(["tp=8", "pp=4", "zero=1", "recompute=full", "mbs=1", "cp=1"]));
    if (fixed !== undefined) {
        plans.fix = [fixed];
        flags.push("--fix", fixed);
    }
    const nic = sometimes(0.2, () => one([200, 400, 800]));
    if (nic !== undefined) {
        options.set = [`cluster.nic=${nic} Gb/s`];
        flags.push("--set", `cluster.nic=${nic} Gb/s`);
    }
    const tokens = sometimes(0.3, () => one(["1 T", "15 T"]));
    if (tokens !== undefined) {
        plans.economy = { tokens };
        flags.push("--tokens", tokens);
    }
    return { json: { problem: { model, cluster: cluster.name, options }, plans }, line: ["plan", model, cluster.name, ...flags, "--format", "json"] };
}

const [different, counts] = [[], { answered: 0, refused: 0, empty: 0 }];
for (let at = 0; at < Number(number); at += 1) {
    const { json, line } = question();
    const native = spawnSync(binary, line, { encoding: "utf8", maxBuffer: 1 << 26 });
    if (native.error !== undefined) throw native.error;
    let reply;
    try {
        reply = ask({ ask: "plan", question: json }).document;
        counts[native.status === 0 ? "answered" : "empty"] += 1;
    } catch (why) {
        reply = why.message;
        counts.refused += 1;
    }
    const same = native.status === 2 ? native.stderr.includes(reply.split("\n")[0]) : reply === native.stdout;
    if (!same) different.push(line.join(" "));
}
console.log(`${number} questions: ${counts.answered} with plans, ${counts.empty} where none runs, ${counts.refused} refused; ${different.length} differ from the command line`);
for (const line of different) console.log(`differs: meshwright ${line}`);
process.exit(different.length === 0 ? 0 : 1);
