// Opens reports in headless Chromium and prints what a reader would meet, as JSON by file.
// Arguments: the Chromium to run, a folder for screenshots, the files.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
const require = createRequire(process.env.PLAYWRIGHT_FROM || import.meta.url);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [executablePath, folder, ...files] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const seen = {};
for (const file of files) {
  const found = (seen[basename(file)] = { errors: [], requests: [], wide: [], serious: [] });
  for (const [width, colorScheme] of [[390, "dark"], [1024, "light"], [1920, "light"]]) {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, offline: true, bypassCSP: true });
    const page = await context.newPage();
    page.on("pageerror", error => found.errors.push(String(error)));
    page.on("console", message => ["error", "warning"].includes(message.type()) && found.errors.push(message.text()));
    page.on("request", request => request.url().startsWith("file:") || found.requests.push(request.url()));
    await page.goto("file://" + file);
    found.title = await page.title();
    found.texts = await page.locator("svg text").count();
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1)) found.wide.push(width);
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    found.serious.push(...serious.map(({ id, nodes }) => [width, id, nodes[0].html.slice(0, 200)]));
    await page.screenshot({ path: join(folder, `${basename(file)}-${width}.png`), fullPage: true });
    await context.close();
  }
}
await browser.close();
console.log(JSON.stringify(seen));
