// CPU time of the answers while sliders move, in Node: of one folder of the page, or of several in turns, whose plans must be the same.
//
// node test/cpu.mjs MODEL CLUSTER MOVES [folder…] (../dist unless given)
import { start } from "./module.mjs";

const [model, cluster, moves, ...folders] = process.argv.slice(2);
const modules = [];
for (const folder of folders.length > 0 ? folders : ["../dist"]) modules.push({ folder, ask: await start(folder), winners: [], took: [] });
const { clusters } = modules.map(({ ask }) => ask({ ask: "catalogue" }))[0];
const machine = clusters.find(({ name }) => name === cluster);
const powers = (from, to) => Array.from({ length: Math.log2(to / from) + 1 }, (_, at) => from * 2 ** at);
/** Powers of two and what lies half-way between them, from one number to the other. */
const halves = (from, to) => [...powers(from, 2 ** 20).flatMap((step) => [step, step * 1.5]).filter((step) => step < to && step % from === 0), to];

/** Sliders of the page, of which each goes on until its end, then back. */
const sliders = [
    { key: "nic", steps: [50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200], value: machine.nic_gbps, step: -1 },
    { key: "hbm", steps: [40, 48, 64, 80, 96, 120, 141, 160, 192, 256, 288, 384], value: machine.hbm_gb, step: 1 },
    { key: "global_batch", steps: powers(16, 16384), value: null, step: -1 },
    { key: "gpus", steps: halves(machine.gpus_per_node, machine.gpus), value: machine.gpus, step: -1 },
];

function question(moved) {
    const options = {};
    if (moved.gpus) options.gpus = moved.gpus;
    if (moved.global_batch) options.global_batch = moved.global_batch;
    options.set = [...(moved.nic ? [`cluster.nic=${moved.nic} Gb/s`] : []), ...(moved.hbm ? [`gpu.hbm=${moved.hbm} GB`] : [])];
    return { problem: { model, cluster, options }, plans: { economy: { tokens: "15.6 T" } } };
}

let different = 0;
const moved = {};
function answer() {
    const told = modules.map((module) => {
        const before = process.cpuUsage();
        const document = module.ask({ ask: "live", question: question(moved), winners: module.winners }).document;
        const { user, system } = process.cpuUsage(before);
        module.took.push((user + system) / 1000);
        module.winners = [...new Set([...document.plans.map(({ plan }) => plan), ...module.winners])].slice(0, 16);
        return document;
    });
    const plans = told.map(({ plans, recommended }) => JSON.stringify({ plans, recommended }));
    if (plans.some((text) => text !== plans[0])) different += 1;
    return told[0];
}

sliders[2].value = answer().problem.global_batch;
for (let move = 0; move < Number(moves); move += 1) {
    const slider = sliders[move % sliders.length];
    const away = slider.steps.map((step) => Math.abs(Math.log(step / slider.value)));
    const at = Math.min(slider.steps.length - 1, Math.max(0, away.indexOf(Math.min(...away)) + slider.step));
    moved[slider.key] = slider.value = slider.steps[at];
    if (at === 0 || at === slider.steps.length - 1) slider.step *= -1;
    answer();
}
for (const { folder, took: [cold, ...others] } of modules) {
    const sorted = others.sort((a, b) => a - b);
    const share = (of) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(of * sorted.length))]);
    console.log(`${folder}: first answer ${Math.round(cold)} ms of CPU, then median ${share(0.5)}, p95 ${share(0.95)}, sum ${Math.round(sorted.reduce((a, b) => a + b))}`);
}
if (modules.length > 1) console.log(`${different} answers differ`);
process.exit(different);
