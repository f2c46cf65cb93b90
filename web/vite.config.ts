import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Module as a classic script that holds it as text: a page opened from disk may load scripts, and nothing else. */
function moduleAsText(): Plugin {
    return {
        name: "module-as-text",
        apply: "build",
        generateBundle() {
            const path = process.env["MODULE"];
            if (path === undefined) this.error("MODULE names the .wasm file; web/build.sh sets it");
            const text = gzipSync(readFileSync(path), { level: 9 }).toString("base64");
            this.emitFile({ type: "asset", fileName: "engine.js", source: `globalThis.MESHWRIGHT_MODULE="${text}";` });
        },
    };
}

/** The page's script as a classic one, which browsers also load from disk. */
function classicScript(): Plugin {
    return {
        name: "classic-script",
        apply: "build",
        transformIndexHtml: {
            order: "post",
            handler: (html) => html.replace(/<script type="module" crossorigin /, "<script defer ").replace(/ crossorigin /g, " "),
        },
    };
}

export default defineConfig({
    base: "./",
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
