// Screenshots of the page at three widths, to be looked at: node test/shots.mjs FOLDER
import { mkdir } from "node:fs/promises";
import { answered, open, serve } from "./browser.mjs";

const [folder = "."] = process.argv.slice(2);
await mkdir(folder, { recursive: true });
const server = await serve();
const QUESTION = "#model=llama3-70b&cluster=h100-512";
for (const [width, height, colorScheme, view] of [
    [390, 844, "dark", "Memory"], [1024, 768, "light", "Pipeline"], [1920, 1080, "light", "Where time goes"],
    [1024, 768, "dark", "Tune"], [1024, 768, "light", "Network"],
]) {
    const { browser, page } = await open({ viewport: { width, height }, colorScheme });
    await page.goto(server.address + QUESTION);
    await answered(page);
    await page.getByRole("tab", { name: view }).click();
    await page.waitForTimeout(4000);
    const name = view.toLowerCase().replaceAll(" ", "-");
    await page.screenshot({ path: `${folder}/${name}-${width}.png`, fullPage: true });
    await browser.close();
}
server.close();
