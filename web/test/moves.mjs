// Times of the page: first paint, first answer, and re-planning over 50 moves of sliders.
//
// node test/moves.mjs MODEL CLUSTER [moves]
import { answered, open, serve } from "./browser.mjs";

const [model, cluster, moves = "50"] = process.argv.slice(2);
const server = await serve();
const { browser, page } = await open();
await page.goto(`${server.address}#model=${model}&cluster=${cluster}`);
await answered(page);
const first = await page.locator(".timing").getAttribute("data-took");
const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
const took = [];
// Each slider goes on until its end, then back: with four of them hardly a question is asked twice.
const labels = ["Network per GPU, Gb/s", "GPU memory, GB", "Global batch, sequences", "GPUs"];
const steps = [-1, 1, -1, -1];
for (let at = 0; at < Number(moves); at += 1) {
    const label = labels[at % labels.length];
    const [ms, isAtEnd] = await page.evaluate(async ({ label, step }) => {
        const slider = [...document.querySelectorAll("input[type=range]")].find((input) => document.querySelector(`label[for="${input.id}"]`)?.textContent === label);
        const changed = new Promise((done) => new MutationObserver((_, watch) => { watch.disconnect(); requestAnimationFrame(() => done(performance.now())); })
            .observe(document.querySelector(".timing"), { attributes: true, attributeFilter: ["data-took"] }));
        const started = performance.now();
        slider.value = String(Number(slider.value) + step);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        const ms = await Promise.race([changed.then((at) => at - started), new Promise((done) => setTimeout(() => done(-1), 8000))]);
        return [ms, Number(slider.value) <= Number(slider.min) || Number(slider.value) >= Number(slider.max)];
    }, { label, step: steps[at % labels.length] });
    if (isAtEnd) steps[at % labels.length] *= -1;
    if (ms >= 0) took.push(ms);
    await page.waitForTimeout(30);
}
took.sort((a, b) => a - b);
const at = (share) => Math.round(took[Math.min(took.length - 1, Math.floor(share * took.length))] ?? NaN);
console.log(`${model} on ${cluster}: first paint ${Math.round(paint)} ms, first answer ${first} ms; ${took.length} moves: least ${at(0)}, median ${at(0.5)}, p95 ${at(0.95)}, most ${at(1)} ms`);
await browser.close();
server.close();
