// Random questions of a user who plans, as checks/questions.json says; Python draws the same ones (python/measure/questions.py).
import { readFileSync } from "node:fs";

const { flags } = JSON.parse(readFileSync(new URL("../../checks/questions.json", import.meta.url), "utf8"));
/** Figures of a cluster: its name in the table that the command line prints, and in the engine's catalogue. */
const FIGURES = { "per node": "gpus_per_node" };

/** Numbers in [0, 1): mulberry32, so that a seed names the same questions in every language. */
export function random(state) {
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let bits = Math.imul(state ^ (state >>> 15), 1 | state);
        bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
        return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
    };
}

/** Maker of questions about the engine's catalogue, each as JSON and as arguments. */
export function questions({ models, clusters }, seed) {
    const next = random(seed);
    const one = (list) => list[Math.floor(next() * list.length)];
    return () => {
        const [model, cluster] = [one(models).name, one(clusters)];
        const json = { problem: { model, cluster: cluster.name, options: {} }, plans: {} };
        const line = ["plan", model, cluster.name];
        for (const { flag, share, values, times, at, list } of flags) {
            if (next() >= share) continue;
            const drawn = one(values);
            const value = times === undefined ? drawn : drawn * cluster[FIGURES[times]];
            line.push(`--${flag}`, String(value));
            let into = json;
            for (const key of at.slice(0, -1)) into = into[key] ??= {};
            into[at.at(-1)] = list ? [value] : value;
        }
        return { json, line: [...line, "--format", "json"] };
    };
}
