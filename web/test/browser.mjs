// A built page in Chromium, from disk or from a server on this machine.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const DIST = fileURLToPath(new URL("../dist", import.meta.url));
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };

/** Serves the folder on a free port of 127.0.0.1: by the program that MESHWRIGHT names, with its headers, else by Node. */
export async function serve() {
    if (process.env.MESHWRIGHT) return serveBy(process.env.MESHWRIGHT);
    const server = createServer(async ({ url }, response) => {
        const path = url === "/" ? "/index.html" : url.split("?")[0];
        try {
            const bytes = await readFile(DIST + path);
            response.writeHead(200, { "content-type": TYPES[path.split(".").pop()] ?? "application/octet-stream" }).end(bytes);
        } catch {
            response.writeHead(404).end();
        }
    });
    await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
    return { address: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

async function serveBy(program) {
    const process = spawn(program, ["serve", "--port", "0", "--folder", DIST], { stdio: ["ignore", "pipe", "ignore"] });
    const [address] = await once(createInterface(process.stdout), "line");
    return { address, close: () => process.kill() };
}

export async function open(options = {}) {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, ...options });
    const page = await context.newPage();
    const [errors, requests] = [[], []];
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => requests.push(request.url()));
    return { browser, page, errors, requests };
}

/** Waits until the page shows the answer to its newest question. */
export async function answered(page) {
    await page.waitForSelector(".timing[data-took]", { timeout: 120_000 });
    await page.waitForFunction(() => document.querySelector("main")?.getAttribute("aria-busy") === "false", undefined, { timeout: 120_000 });
}
