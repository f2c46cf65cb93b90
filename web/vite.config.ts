import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Folder of the module's parts and the catalogue. */
function parts(): string {
    const folder = process.env["PARTS"];
    if (folder === undefined) throw new Error("PARTS names the folder that web/module/split.mjs has written; web/build.sh sets it");
    return folder;
}

/** Definitions of the terms of the step time and of the memory, from the project's glossary. */
function glossary(): Record<string, string> {
    const text = readFileSync("../docs/glossary.toml", "utf8");
    const entries = text.matchAll(/^\[\[(time|memory)\]\]\nname = "(.+)"\nis = "(.+)"$/gm);
    return Object.fromEntries([...entries].map(([, kind, name, is]) => [`${name}_${kind === "time" ? "s" : "gib"}`, is ?? ""]));
}

/** Parts of the module as classic scripts that hold them as text: a page opened from disk may load scripts, and nothing else. */
function moduleAsText(): Plugin {
    return {
        name: "module-as-text",
        apply: "build",
        generateBundle() {
            for (const [name, file] of [["engine", "engine.wasm"], ["rest", "rest.bin"]] as const) {
                const text = gzipSync(readFileSync(`${parts()}/${file}`), { level: 9 }).toString("base64");
                this.emitFile({ type: "asset", fileName: `${name}.js`, source: `(globalThis.MESHWRIGHT??={}).${name}="${text}";` });
            }
        },
    };
}

/** The page's script as a classic one, which browsers also load from disk; the engine's is fetched beside it. */
function classicScript(): Plugin {
    return {
        name: "classic-script",
        apply: "build",
        transformIndexHtml: {
            order: "post",
            handler: (html) => html.replace(/<script type="module" crossorigin /, "<script defer ").replace(/ crossorigin /g, " ")
                .replace("</head>", '<link rel="preload" as="script" href="./engine.js">\n</head>'),
        },
    };
}

export default defineConfig({
    base: "./",
    define: { CATALOGUE: readFileSync(`${parts()}/catalogue.json`, "utf8"), GLOSSARY: JSON.stringify(glossary()) },
    esbuild: { jsx: "automatic", jsxImportSource: "preact" },
    build: {
        target: "es2022",
        modulePreload: false,
        cssCodeSplit: false,
        chunkSizeWarningLimit: 1024,
        rollupOptions: {
            output: { format: "iife", entryFileNames: "page.js", assetFileNames: "page[extname]" },
        },
    },
    worker: { format: "iife" },
    plugins: [moduleAsText(), classicScript()],
});
