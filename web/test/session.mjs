// Answers of a session, which keeps answers and starts each search from the winners before, are those of a fresh engine: over random
// sequences of moves, all but the counts of the certificate, which say how much of the search there was to do.
//
// node test/session.mjs [sequences] [moves] [seed]
import { random } from "../module/random.mjs";
import { asker } from "../module/instance.mjs";
import { joined } from "../src/wasm.mjs";
import { part } from "./module.mjs";

const [sequences = "50", moves = "4", seed = "7"] = process.argv.slice(2);
const module = await WebAssembly.compile(joined(part("../dist", "engine"), part("../dist", "rest")));
const fresh = () => asker(new WebAssembly.Instance(module, {}).exports);
const next = random(Number(seed));
const one = (list) => list[Math.floor(next() * list.length)];

/** Changes of a question, as controls of the page make them. */
const CONTROLS = [
    ({ options }) => { options.gpus = one([8, 16, 32, 64]); },
    ({ options }) => { options.global_batch = one([32, 64, 128, 256]); },
    ({ options }) => { options.seq_len = one([2048, 4096, 8192]); },
    ({ options }) => { options.set = [`cluster.nic=${one([100, 200, 400, 800])} Gb/s`]; },
    ({ options }) => { options.set = [`gpu.hbm=${one([40, 64, 80, 141])} GB`]; },
    ({ options }) => { options.precision = one(["bf16", "fp8"]); },
    ({ options }) => { options.risk = one([0.01, 0.05, 0.25]); },
    ({ plans }) => { plans.fix = one([[], ["tp=2"], ["pp=2"], ["zero=3"], ["recompute=full"]]); },
    ({ plans }) => { plans.top = one([1, 3, 5]); },
    ({ plans }) => { plans.economy = one([{}, { tokens: "1 T" }, { tokens: "15 T", price: "3 $/h" }]); },
];
/** Counts of the certificate. */
const COUNTS = ["evaluated", "rejected", "certificate"];

function told(ask, question, winners) {
    try {
        const document = ask({ ask: "live", question, winners }).document;
        const found = (document.plans ?? []).map(({ plan }) => plan);
        return { found, text: JSON.stringify(document, (key, value) => (COUNTS.includes(key) ? undefined : value)) };
    } catch (why) {
        if (why instanceof WebAssembly.RuntimeError) throw why;
        return { found: [], text: why.message };
    }
}

const different = [];
for (let sequence = 0; sequence < Number(sequences); sequence += 1) {
    const session = fresh();
    const question = { problem: { model: one(["llama3-8b", "mixtral-8x7b", "qwen3-8b"]), cluster: "dgx-h100-64", options: {} }, plans: {} };
    let winners = [];
    for (let move = 0; move <= Number(moves); move += 1) {
        if (move > 0) one(CONTROLS)({ options: question.problem.options, plans: question.plans });
        const [kept, anew] = [told(session, question, winners), told(fresh(), question, [])];
        if (kept.text !== anew.text) different.push(`${sequence}.${move}: ${JSON.stringify(question)}`);
        winners = [...new Set([...kept.found, ...winners])].slice(0, 16);
    }
}
console.log(`${sequences} sequences of ${moves} moves: ${different.length} answers differ from those of a fresh engine`);
for (const line of different.slice(0, 10)) console.log(`differs: ${line}`);
process.exit(different.length === 0 ? 0 : 1);
