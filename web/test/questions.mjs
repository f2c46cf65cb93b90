// Random questions: the module's document is what `plan --format json` prints, byte for byte. They are asked of its first part.
// checks/questions.json says how they are drawn; Python draws the same ones (python/measure/questions.py), and prints the same
// fingerprint of their list.
//
// node test/questions.mjs PATH/TO/meshwright [number] [seed]
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { questions } from "../module/random.mjs";
import { startFirst } from "./module.mjs";

const [binary, number = "40", seed = "1"] = process.argv.slice(2);
let onRest = 0;
const ask = await startFirst(() => { onRest += 1; });
const question = questions(ask({ ask: "catalogue" }), Number(seed));

const [lines, different, counts] = [[], [], { answered: 0, refused: 0, empty: 0 }];
for (let at = 0; at < Number(number); at += 1) {
    const { json, line } = question();
    lines.push(line.join(" "));
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
    if (!same) different.push(lines.at(-1));
}
const fingerprint = createHash("sha256").update(lines.join("\n")).digest("hex").slice(0, 12);
console.log(`${number} questions (${fingerprint}): ${counts.answered} with plans, ${counts.empty} where none runs, ${counts.refused} refused; ${onRest} needed the rest of the module; ${different.length} differ from the command line`);
for (const line of different) console.log(`differs: meshwright ${line}`);
process.exit(different.length === 0 ? 0 : 1);
