// The page in Chromium: every view, every export, errors, permalinks, requests, accessibility.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { test } from "node:test";

import { answered, DIST, open, serve } from "./browser.mjs";
import { start } from "./module.mjs";

const SMALL = "#model=llama3-8b&cluster=dgx-h100-8";
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** A page at an address, closed afterwards; it must not complain, and must ask nobody. */
async function on(fragment, body, options) {
    const server = await serve();
    const { browser, page, errors, requests } = await open(options);
    try {
        await page.goto(server.address + fragment);
        await answered(page);
        await body(page);
        assert.deepEqual(errors, []);
        const elsewhere = requests.filter((url) => !url.startsWith(server.address) && !/^(blob|data):/.test(url));
        assert.deepEqual(elsewhere, []);
    } finally {
        await browser.close();
        server.close();
    }
}

const tab = (page, name) => page.getByRole("tab", { name }).click();

test("a question is answered as the module answers it, in every view", async () => {
    const ask = await start();
    const question = { problem: { model: "llama3-8b", cluster: "dgx-h100-8" }, plans: { economy: { tokens: "15.6 T" } } };
    const { plans, recommended } = JSON.parse(ask({ ask: "plan", question }).document);
    await on(SMALL, async (page) => {
        const plan = plans[recommended.rank - 1].plan;
        assert.equal(await page.locator(".lines code").first().textContent(), `--plan "${plan}"`);
        assert.equal(await page.locator("tbody tr").count() >= plans.length, true);
        for (const [name, text] of [
            ["Where time goes", "A step of"], ["Memory", "is the fullest"], ["Pipeline", "One pipeline of"], ["Compare", "takes"],
            ["Network", "Every group of ranks"], ["Roofline", "FLOP per byte"], ["Time and money", "days"], ["Sensitivity", "The optimum takes"],
        ]) {
            await tab(page, name);
            await page.locator("#view").getByText(text).first().waitFor({ timeout: 120_000 });
        }
    });
});

test("controls ask again, and the address keeps the question", async () => {
    await on(SMALL, async (page) => {
        const before = await page.locator(".heading").textContent();
        await page.getByLabel("Sequence length, tokens", { exact: true }).press("ArrowLeft");
        await page.waitForFunction((text) => document.querySelector(".heading")?.textContent !== text, before);
        await answered(page);
        await page.waitForFunction(() => location.hash.includes("seq=4096"));
        const line = await page.getByLabel("command line", { exact: true }).textContent();
        assert.match(line, /--seq-len 4096/);
        await page.reload();
        await answered(page);
        assert.equal(await page.getByLabel("command line", { exact: true }).textContent(), line);
    });
});

test("the address keeps the view and the plan, and other values reach the engine", async () => {
    await on(`${SMALL}&set=${encodeURIComponent("model.hidden=2048")}`, async (page) => {
        await tab(page, "Memory");
        await page.getByRole("button", { name: "Show plan 2" }).click();
        await page.waitForFunction(() => /view=memory/.test(location.hash) && /plan=/.test(location.hash));
        const line = await page.getByLabel("plan", { exact: true }).textContent();
        await page.reload();
        await answered(page);
        assert.equal(await page.getByRole("tab", { name: "Memory" }).getAttribute("aria-selected"), "true");
        assert.equal(await page.getByLabel("plan", { exact: true }).textContent(), line);
        assert.match(await page.getByLabel("command line", { exact: true }).textContent(), /--set model\.hidden=2048/);
    });
});

test("nothing moves while the first answer arrives", async () => {
    await on(SMALL, async (page) => {
        await page.locator("button:not([disabled])", { hasText: "Save the document (JSON)" }).waitFor();
        const moved = await page.evaluate(() => new Promise((done) => {
            new PerformanceObserver((list) => done(list.getEntries().reduce((sum, { value }) => sum + value, 0))).observe({ type: "layout-shift", buffered: true });
            setTimeout(() => done(0), 1000);
        }));
        assert.ok(moved <= 0.05, `layout shift ${moved}`);
    });
});

test("where no plan runs, the page says why", async () => {
    await on("#model=llama3-405b&cluster=dgx-h100-8", async (page) => {
        await page.getByRole("heading", { name: "No plan runs" }).waitFor();
        assert.match(await page.locator("#answer").textContent(), /weights and gradients alone need .* at least \d+ GPUs/);
    });
});

test("a pipeline of many micro-batches is folded, zoomed and told from the keyboard", async () => {
    await on("#model=llama3-8b&cluster=dgx-h100-64&fix.pp=4&fix.mbs=1&batch=1024&view=pipeline", async (page) => {
        const canvas = page.locator(".timeline canvas");
        await canvas.waitFor();
        const height = async () => (await canvas.boundingBox()).height;
        const folded = await height();
        await canvas.press("f");
        await page.waitForFunction((before) => document.querySelector(".timeline canvas").getBoundingClientRect().height < before / 2, folded);
        const whole = await canvas.getAttribute("aria-label");
        await canvas.press("+");
        await page.waitForFunction((before) => document.querySelector(".timeline canvas").getAttribute("aria-label") !== before, whole);
    });
});

test("a config.json that is dropped becomes the model, and errors say what the command line says", async () => {
    const config = { model_type: "llama", hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 22, num_attention_heads: 32, num_key_value_heads: 4, vocab_size: 32000, max_position_embeddings: 2048 };
    await on(SMALL, async (page) => {
        const files = page.locator("input[type=file]");
        await files.setInputFiles({ name: "config.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(config)) });
        await page.waitForFunction(() => location.hash.includes("model=config.json"));
        await page.locator(".heading", { hasText: "2,048 tokens" }).waitFor();
        const cluster = await readFile(new URL("../../clusters/dgx-h100-64.toml", import.meta.url));
        await files.setInputFiles({ name: "mine.toml", mimeType: "text/plain", buffer: cluster });
        await page.locator(".heading", { hasText: "64 × H100" }).waitFor();
        assert.match(await page.locator(".heading").textContent(), /2,048 tokens/);
        await files.setInputFiles({ name: "config.json", mimeType: "application/json", buffer: Buffer.from("{}") });
        await page.getByRole("alert").waitFor();
        assert.match(await page.getByRole("alert").textContent(), /config\.json/);
    });
});

test("a launch script that is dropped is checked against the cluster", async () => {
    const script = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
        + "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 3 --bf16 --vocab-size 32000\n";
    const cluster = await readFile(new URL("../../clusters/dgx-h100-8.toml", import.meta.url));
    await on(SMALL, async (page) => {
        const files = page.locator("input[type=file]");
        await files.setInputFiles({ name: "train.sh", mimeType: "text/plain", buffer: Buffer.from(script) });
        await page.getByRole("region", { name: "Findings" }).waitFor();
        assert.match(await page.locator(".lint").textContent(), /does not run as written/);
        await files.setInputFiles({ name: "mine.toml", mimeType: "text/plain", buffer: cluster });
        await page.getByRole("heading", { name: "train.sh on mine.toml" }).waitFor();
        await page.getByRole("region", { name: "Findings" }).waitFor();
        assert.match(await page.locator(".lint").textContent(), /does not run as written/);
    });
});

test("logs are held against their predictions, and runs are scored", async () => {
    const repository = (path) => readFile(new URL(`../../${path}`, import.meta.url));
    const log = await repository("tests/logs/megatron-llama3-8b.log");
    const runs = (await repository("tests/published/runs.csv")).toString().split("\n").slice(0, 30).join("\n");
    await on(SMALL, async (page) => {
        const files = page.locator("input[type=file]");
        await files.setInputFiles({ name: "train.log", mimeType: "text/plain", buffer: log });
        await page.getByRole("region", { name: "Runs of the logs" }).waitFor();
        assert.match(await page.locator(".lint").first().textContent(), /train\.log.* to .* s.* %/s); // measured, predicted, its interval, the error
        await files.setInputFiles({ name: "runs.csv", mimeType: "text/csv", buffer: Buffer.from(runs) });
        await page.getByRole("region", { name: "Errors by class" }).waitFor();
        assert.match(await page.getByLabel("Predictions against runs.csv").textContent(), /29 of these a prediction: off by/);
        await files.setInputFiles({ name: "runs.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n1") });
        await page.getByRole("alert").waitFor();
    });
});

test("a plan that was timed moves what is believed of the others", async () => {
    await on(SMALL, async (page) => {
        await tab(page, "Tune");
        const first = page.getByRole("region", { name: "Plans and timings" }).locator("tbody tr").first();
        await first.waitFor();
        const before = await first.locator("td").nth(3).textContent();
        await first.locator("input[type=text]").fill("30");
        await first.locator("input[type=text]").blur();
        await page.getByText("The fastest that was timed").waitFor();
        assert.notEqual(await first.locator("td").nth(3).textContent(), before);
    });
});

test("planning loads the first part of the module alone, and launch files load the rest", async () => {
    await on(SMALL, async (page) => {
        const loaded = (name) => page.evaluate((name) => performance.getEntriesByType("resource").some((entry) => entry.name.endsWith(name)), name);
        for (const view of ["Memory", "Pipeline", "Compare", "Network", "Roofline", "Time and money"]) {
            await tab(page, view);
            await page.waitForTimeout(300);
        }
        await page.locator("button:not([disabled])", { hasText: "Save the document (JSON)" }).waitFor();
        assert.deepEqual([await loaded("engine.js"), await loaded("rest.js")], [true, false]);
        await tab(page, "Launch files");
        await page.locator(".emitted pre").first().waitFor();
        assert.equal(await loaded("rest.js"), true);
    });
});

test("a search that is obsolete is given up, and its worker ended", async () => {
    await on("#model=deepseek-v3&cluster=h100-24576", async (page) => {
        const slider = page.getByLabel("Network per GPU, Gb/s", { exact: true });
        for (let move = 0; move < 6; move += 1) {
            await slider.press(move % 2 ? "ArrowRight" : "ArrowLeft");
            await slider.press(move % 3 ? "ArrowRight" : "ArrowLeft");
            await page.waitForTimeout(25);
        }
        await answered(page);
        const given = await page.evaluate(() => performance.getEntriesByName("given up").map(({ duration }) => duration));
        assert.ok(given.length > 0, "no search was given up");
        console.log(`given up after ${given.map(Math.round).join(", ")} ms`);
        assert.ok(given.sort((a, b) => a - b)[Math.floor(given.length / 2)] <= 50, `given up after ${given} ms`);
        // A worker ends a moment after it is told to: what is left is the one in use, the one that stands by, and its successor.
        for (let wait = 0; wait < 50 && page.workers().length > 3; wait += 1) await page.waitForTimeout(100);
        assert.ok(page.workers().length <= 3, `${page.workers().length} workers`);
    });
});

test("the memory view sizes the plan with shorter and longer sequences, as the engine does", async () => {
    await on(`${SMALL}&view=memory`, async (page) => {
        const figure = page.getByRole("img", { name: /^Memory of the fullest rank by sequence length/ });
        await figure.waitFor();
        await page.waitForFunction(() => /131,072 tokens/.test(document.querySelector("#view svg[aria-label^='Memory of the fullest rank by']")?.getAttribute("aria-label") ?? ""));
        const [label, plan] = [await figure.getAttribute("aria-label"), await page.getByLabel("plan", { exact: true }).textContent()];
        const ask = await start();
        const options = { precision: "bf16", seq_len: 16_384, global_batch: 128 };
        const text = ask({ ask: "explain", problem: { model: "llama3-8b", cluster: "dgx-h100-8", options }, plan: /"(.*)"/.exec(plan)[1] });
        const most = Math.max(...JSON.parse(text).ranks.map(({ peak_mem_gib: peak }) => peak));
        assert.ok(label.includes(`16,384 tokens ${most.toFixed(1)} GiB`), `${label}: not ${most}`);
        assert.match(await page.locator(".lengths").textContent(), /is the longest that fits/);
    });
});

test("launch files and the document are saved", async () => {
    await on(SMALL, async (page) => {
        await tab(page, "Launch files");
        await page.locator(".emitted pre").first().waitFor();
        const saved = async (name) => {
            const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name, exact: true }).click()]);
            return readFile(await download.path());
        };
        const zip = await saved("Save all as zip");
        assert.equal(zip.subarray(0, 2).toString(), "PK");
        await page.locator("button:not([disabled])", { hasText: "Save the document (JSON)" }).waitFor();
        const ask = await start();
        const question = { problem: { model: "llama3-8b", cluster: "dgx-h100-8" }, plans: { economy: { tokens: "15.6 T" } } };
        assert.equal((await saved("Save the document (JSON)")).toString(), ask({ ask: "plan", question }).document);
    });
});

test("the page works from disk", async () => {
    const { browser, page, errors, requests } = await open();
    try {
        await page.goto(`file://${DIST}/index.html${SMALL}`);
        await answered(page);
        assert.match(await page.locator(".best").textContent(), /Recommended/);
        assert.deepEqual(errors, []);
        assert.deepEqual(requests.filter((url) => !/^(file|blob|data):/.test(url)), []);
    } finally {
        await browser.close();
    }
});

for (const [name, options] of [
    ["a desk, light", { viewport: { width: 1440, height: 900 }, colorScheme: "light" }],
    ["a phone, dark", { viewport: { width: 390, height: 844 }, colorScheme: "dark" }],
]) {
    test(`axe-core finds nothing serious on ${name}`, async () => {
        await on(SMALL, async (page) => {
            await page.evaluate(AXE);
            for (const view of ["Where time goes", "Memory", "Pipeline", "Compare", "Network", "Roofline", "Tune", "Time and money", "Launch files", "Sensitivity", "Scaling"]) {
                await tab(page, view);
                await page.waitForTimeout(300);
                const { violations } = await page.evaluate(() => globalThis.axe.run());
                const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
                assert.deepEqual(serious.map(({ id, nodes }) => [view, id, nodes[0].html]), []);
            }
            const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1);
            assert.equal(wide, false, "the page is wider than its window");
        }, { ...options, bypassCSP: true });
    });
}
