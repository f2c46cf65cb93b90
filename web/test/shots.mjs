// Screenshots of the page, to be looked at, at the widths of a phone, a small and a large screen: the whole page once at each,
// and the other views alone.
//
// node test/shots.mjs [folder] (web/screenshots unless given, as WebP of few bytes; PNG=folder keeps them as they are, too)
import { mkdir, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { answered, open, serve } from "./browser.mjs";

const folder = process.argv[2] ?? fileURLToPath(new URL("../screenshots", import.meta.url));
const QUESTION = "#model=llama3-70b&cluster=h100-512";
/** Eight ranks with 64 micro-batches. */
const MANY = "&fix.pp=8&fix.mbs=1&fix.tp=4&fix.cp=1&batch=1024";
const SHOTS = [
    [390, 844, "dark", "Where time goes"], [390, 844, "light", "Memory"], [390, 844, "light", "Pipeline", MANY], [390, 844, "dark", "Tune"],
    [1024, 768, "light", "Where time goes"], [1024, 768, "light", "Pipeline", MANY], [1024, 768, "dark", "Compare"],
    [1024, 768, "light", "Network"], [1024, 768, "dark", "Tune"], [1024, 768, "light", "Sensitivity"],
    [1920, 1080, "light", "Where time goes"], [1920, 1080, "light", "Pipeline", MANY], [1024, 768, "dark", "Memory"], [1920, 1080, "dark", "Roofline"], [1920, 1080, "light", "Time and money"],
    [1920, 1080, "light", "Launch files"],
];
const whole = new Set();

/** A picture as WebP, encoded by the browser itself. */
async function webp(page, png, quality) {
    const encoded = await page.evaluate(async ({ text, quality }) => {
        const image = new Image();
        image.src = `data:image/png;base64,${text}`;
        await image.decode();
        const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.toDataURL("image/webp", quality).split(",")[1];
    }, { text: png.toString("base64"), quality });
    return Buffer.from(encoded, "base64");
}

await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
const server = await serve();
let all = 0;
for (const [width, height, colorScheme, view, more = ""] of SHOTS) {
    const { browser, page } = await open({ viewport: { width, height }, colorScheme, bypassCSP: true });
    await page.goto(server.address + QUESTION + more);
    await answered(page);
    await page.getByRole("tab", { name: view }).click();
    await page.locator(".views").waitFor();
    await page.waitForFunction(() => !document.querySelector(".views .waiting"), undefined, { timeout: 240_000 }).catch(() => undefined);
    await page.addStyleTag({ content: ".controls { position: static !important; }" }); // else it stands in the middle of a whole page
    await page.waitForTimeout(3000);
    const name = `${view.toLowerCase().replaceAll(" ", "-")}-${width}${colorScheme === "dark" ? "-dark" : ""}`;
    const path = process.env.PNG && `${process.env.PNG}/${name}.png`;
    const png = whole.has(width) ? await page.locator(".views").screenshot({ path }) : await page.screenshot({ path, fullPage: true });
    whole.add(width);
    const bytes = await webp(page, png, 0.2);
    await writeFile(`${folder}/${name}.webp`, bytes);
    all += bytes.length;
    await browser.close();
}
server.close();
console.log(`${SHOTS.length} screenshots in ${folder}: ${all} bytes`);
