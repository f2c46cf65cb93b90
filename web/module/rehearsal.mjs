// Questions of a user who plans: what they run is the first part of the module. A question that runs more is answered too, once the
// rest is loaded.

import { questions } from "./random.mjs";

/** Random questions, by a seed that no test uses. */
const [RANDOM, SEED] = [120, 1_001];
/** Settings of a plan that the views of memory and of the pipeline change. */
const CHANGES = [
    ...[0, 1, 2, 3].map((stage) => `zero=${stage}`), ...["none", "core_attn", "layernorm", "full"].map((parts) => `recompute=${parts}`),
    ...["gpipe", "1f1b", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"].map((name) => `schedule=${name}`), "mbs=2", "mbs=16", "schedule=interleaved vpp=2", "schedule=interleaved vpp=3",
];

/** Question as the page asks it. */
const question = (model, cluster, options = {}, plans = {}) => ({
    problem: { model, cluster, options: { precision: "bf16", ...options } },
    plans: { fix: [], economy: { terms: "contract", objective: "step-time", tokens: "15.6 T" }, top: 5, exotic: false, ...plans },
});

/** Asks everything that a planning user may choose at least once: `ask` answers a request, or throws. Returns the catalogue. */
export function rehearse(ask) {
    const catalogue = ask({ ask: "catalogue" });
    const { models, clusters, stacks, frameworks, terms } = catalogue;
    const answer = (request) => {
        try {
            const reply = ask(request);
            return typeof reply.document === "string" ? JSON.parse(reply.document) : reply.document ?? reply;
        } catch (why) {
            if (why instanceof WebAssembly.RuntimeError) throw why;
            return { plans: [] }; // what the engine refuses, it refuses in the first part
        }
    };
    const live = (asked, winners = []) => answer({ ask: "live", question: asked, winners });
    const whole = (asked, views = 1) => {
        const { plans = [] } = answer({ ask: "plan", question: asked });
        for (const { plan } of plans.slice(0, views)) answer({ ask: "picture", problem: asked.problem, plan });
        return plans.map(({ plan }) => plan);
    };
    live({ problem: { model: "llama3-8b", cluster: "dgx-h100-8" } }); // with which the page warms up an engine
    // Every entry of the catalogue, and of the choices of the page.
    const small = (options, plans) => question("llama3-8b", "dgx-h100-64", options, plans);
    const ofSparse = (options, plans) => question("deepseek-v3", "h800-2048", options, plans);
    for (const { name } of models) live(question(name, "h100-512"));
    for (const { name, gpus_per_node: gpus } of clusters) whole(question("llama3-8b", name, { gpus: gpus * 2 }));
    for (const stack of stacks) whole(small({ stack }));
    for (const framework of [...frameworks, "any"]) {
        for (const model of ["llama3-8b", "mixtral-8x7b"]) whole(question(model, "h100-512", { gpus: 64 }, { for: framework }));
    }
    for (const precision of ["fp16", "fp8", "fp8-block", "mxfp8", "nvfp4"]) {
        whole(small({ precision }));
        whole(question("llama3-8b", "gb200-nvl72-1152", { precision, gpus: 72 }));
    }
    for (const risk of [0.01, 0.1, 0.25, 1]) live(small({ risk }));
    for (const objective of ["memory", "energy"]) whole(small({}, { economy: { terms: "contract", objective, tokens: "15.6 T" } }));
    for (const term of terms) live(small({}, { economy: { terms: term, tokens: "1 T", price: "2.5 $/h" } }));
    live(small({}, { economy: {} }));
    const degrees = ["tp=8", "cp=2", "pp=4", "ep=8", "mbs=2"];
    const ways = ["zero=0", "zero=1", "zero=2", "zero=3", "recompute=none", "recompute=core_attn", "recompute=layernorm", "recompute=full"];
    const workloads = [{ lora: true }, { seq_len: 131_072 }, { seq_len: 1024 }, { global_batch: 16 }, { gpus: 16_384 }];
    const hardware = [{ set: ["cluster.nic=200 Gb/s", "gpu.hbm=141 GB"] }, { set: ["gpu.hbm=40 GB"] }];
    const changes = [...[...degrees, ...ways].map((fix) => [{}, { fix: [fix] }]), ...[...workloads, ...hardware].map((options) => [options, {}])];
    for (const [options, plans] of changes) {
        whole(small(options, plans), 5);
        whole(question("mixtral-8x7b", "h100-512", { gpus: 64, ...options }, plans), 5);
    }
    for (const asked of [small({}, { exotic: true, top: 8 }), question("mixtral-8x7b", "h100-512", {}, { exotic: true, top: 8 })]) whole(asked, 8);
    whole(small({}, { sensitivity: true }));
    for (const asked of [small({}, { fix: ["pp=4"] }), question("mixtral-8x7b", "h100-512", { gpus: 64 }, { fix: ["pp=4"] })]) {
        const [plan = ""] = whole(asked);
        for (const change of CHANGES) {
            const kept = plan.split(" ").filter((setting) => !change.split(" ").some((other) => other.split("=")[0] === setting.split("=")[0]) && !(change.startsWith("schedule") && setting.startsWith("vpp")));
            answer({ ask: "picture", problem: asked.problem, plan: [...kept, change].join(" ") });
        }
    }
    const random = questions(catalogue, SEED);
    for (let asked = 0; asked < RANDOM; asked += 1) whole(random().json);
    whole(question("megatron-530b", "gb300-nvl72-1152", { gpus: 16, global_batch: 1024 }));
    // What does not fit, and large clusters, from the winners before.
    whole(question("llama3-70b", "dgx-h100-8"));
    live(question("llama3-405b", "dgx-h100-64"));
    const winners = whole(question("llama3-405b", "h100-24576"), 2);
    live(question("llama3-405b", "h100-24576", { gpus: 16_384 }), winners);
    live(ofSparse({}), whole(ofSparse({}), 2));
    return catalogue;
}
