// Opens a sweep's page in headless Chromium and reports what a reader would see, as JSON.
// Arguments: the page, the Chromium to run, where to put a screenshot of the light and of the dark page.
import { createRequire } from "node:module";
const require = createRequire(process.env.PLAYWRIGHT_FROM || import.meta.url);
const { chromium } = require("playwright-core");
const [page_path, executablePath, light, dark] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1240, height: 900 }, colorScheme: "light", offline: true });
const page = await context.newPage();
const errors = [], requests = [];
page.on("pageerror", error => errors.push(String(error)));
page.on("console", message => message.type() === "error" && errors.push(message.text()));
page.on("request", request => request.url().startsWith("file:") || requests.push(request.url()));
await page.goto("file://" + page_path);
const count = selector => page.locator(selector).count();
const seen = {
  title: await page.title(),
  dots: await count("#cost-days circle"),
  front: await page.locator("#cost-days path").getAttribute("d"),
  bars: await count("#step-bars rect"),
  tornado: await count("#tornado rect"),
  rows: await count("#options tbody tr"),
  overflow: await page.evaluate(() => document.documentElement.scrollWidth > innerWidth),
};
await page.locator("#cost-days circle").last().hover();
seen.tip = await page.locator("#tip").innerText();
seen.tip_visible = await page.locator("#tip").evaluate(tip => getComputedStyle(tip).opacity !== "0" || tip.style.opacity === "1");
await page.mouse.move(2, 2);
if (light) await page.screenshot({ path: light, fullPage: true });
await page.locator('[data-axis="mwh"]').click();
seen.energy_title = await page.locator("#scatter-title").innerText();
await page.locator("#theme").click();
seen.theme = await page.evaluate(() => document.documentElement.dataset.theme);
if (dark) await page.screenshot({ path: dark, fullPage: true });
await page.setViewportSize({ width: 420, height: 800 });
seen.narrow_overflow = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
await browser.close();
console.log(JSON.stringify({ ...seen, errors, requests }));
