/** Files that are dropped on the page: a model's config.json, a model or a cluster as TOML, a launch script to check. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Change } from "./app";
import type { Question } from "./question";

/** Largest file that is read; no model, cluster or launch file comes near it. */
const LARGEST_BYTES = 2_000_000;

export interface LaunchText { name: string; text: string }

/** Kind of a dropped file, by its name and its keys. */
function kind(name: string, text: string): "model" | "cluster" | "launch" {
    if (name.endsWith(".json") && /"(model_type|architectures|hidden_size|n_embd)"/.test(text)) return "model";
    if (!name.endsWith(".toml")) return name === "config.json" ? "model" : "launch";
    if (/^\s*gpus\s*=/m.test(text) || /^\s*\[\[(pool|level)\]\]/m.test(text)) return "cluster";
    return /^\s*hidden\s*=/m.test(text) ? "model" : "launch";
}

/** Takes files into the question; a launch file is handed on to be checked. */
export async function readFiles(files: File[], change: Change, launch: (file: LaunchText) => void): Promise<void> {
    const texts: Record<string, string> = {};
    const part: Partial<Question> = {};
    for (const file of files) {
        if (file.size > LARGEST_BYTES) continue;
        const text = await file.text();
        const what = kind(file.name, text);
        if (what === "launch") {
            launch({ name: file.name, text });
            continue;
        }
        texts[file.name] = text;
        if (what === "model") Object.assign(part, { model: file.name, seq: null });
        else Object.assign(part, { cluster: file.name, gpus: null, nic: null, hbm: null });
    }
    if (Object.keys(texts).length > 0) change({ ...part, texts });
}

export function Drop({ change, launch, children }: { change: Change; launch: (file: LaunchText) => void; children: ComponentChildren }) {
    const [over, setOver] = useState(false);
    return (
        <div class={over ? "drop over" : "drop"}
            onDragOver={(event) => { event.preventDefault(); setOver(true); }}
            onDragLeave={(event) => { if (event.relatedTarget === null) setOver(false); }}
            onDrop={(event) => {
                event.preventDefault();
                setOver(false);
                void readFiles([...(event.dataTransfer?.files ?? [])], change, launch);
            }}>
            {children}
        </div>
    );
}
