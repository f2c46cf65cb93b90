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
const labels = ["Network per GPU, Gb/s", "GPU memory, GB", "Global batch, sequences", "GPUs"];
for (let at = 0; at < Number(moves); at += 1) {
    const label = labels[at % labels.length];
    const key = Math.floor(at / labels.length) % 2 === 0 ? "ArrowLeft" : "ArrowRight";
    const ms = await page.evaluate(async ({ label, key }) => {
        const slider = [...document.querySelectorAll("input[type=range]")].find((input) => document.querySelector(`label[for="${input.id}"]`)?.textContent === label);
        const changed = new Promise((done) => new MutationObserver((_, watch) => { watch.disconnect(); requestAnimationFrame(() => done(performance.now())); })
            .observe(document.querySelector(".timing"), { attributes: true, attributeFilter: ["data-took"] }));
        const started = performance.now();
        slider.value = String(Number(slider.value) + (key === "ArrowLeft" ? -1 : 1));
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        return Promise.race([changed.then((at) => at - started), new Promise((done) => setTimeout(() => done(-1), 8000))]);
    }, { label, key });
    if (ms >= 0) took.push(ms);
    await page.waitForTimeout(30);
}
took.sort((a, b) => a - b);
const at = (share) => Math.round(took[Math.min(took.length - 1, Math.floor(share * took.length))] ?? NaN);
console.log(`${model} on ${cluster}: first paint ${Math.round(paint)} ms, first answer ${first} ms; ${took.length} moves: least ${at(0)}, median ${at(0.5)}, p95 ${at(0.95)}, most ${at(1)} ms`);
await browser.close();
server.close();
