/** Files that are dropped on the page: a model's config.json, a model or a cluster as TOML, a launch script, training logs, runs. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Change } from "./app";
import { whole } from "./format";
import type { Question } from "./question";
import type { TextFile } from "./runs";

/** Largest file that becomes a part of the question, and largest log or file of runs. */
const LARGEST_BYTES = 2_000_000;
const LARGEST_LOG_BYTES = 200_000_000;
/** Lines that only training logs have. */
const LOGGED = /iteration\s+\d+\s*\/\s*\d+|elapsed time per iteration|\bstep:\s*\d+.*\bloss:|samples\/sec/;

/** Files for the panels above the answer. */
export interface Panels { launch: TextFile | null; logs: TextFile[]; runs: TextFile | null; refused: string | null }

type Kind = "model" | "cluster" | "launch" | "log" | "runs";

/** Kind of a dropped file, by its name and its content. */
function kind(name: string, text: string): Kind {
    if (/\.csv$/i.test(name)) return "runs";
    if (/\.(log|out|err)$/i.test(name) || (/\.txt$/i.test(name) && LOGGED.test(text))) return "log";
    if (name.endsWith(".json") && /"(model_type|architectures|hidden_size|n_embd)"/.test(text)) return "model";
    if (!name.endsWith(".toml")) return name === "config.json" ? "model" : "launch";
    if (/^\s*gpus\s*=/m.test(text) || /^\s*\[\[(pool|level)\]\]/m.test(text)) return "cluster";
    return /^\s*hidden\s*=/m.test(text) ? "model" : "launch";
}

/** Takes files into the question; launch files, logs and runs are handed to their panels. */
export async function readFiles(files: File[], change: Change, show: (panels: Partial<Panels>) => void): Promise<void> {
    const texts: Record<string, string> = {};
    const part: Partial<Question> = {};
    const panels: Partial<Panels> = { refused: null };
    const logs: TextFile[] = [];
    for (const file of files) {
        const most = /\.(csv|log|out|err|txt)$/i.test(file.name) ? LARGEST_LOG_BYTES : LARGEST_BYTES;
        if (file.size > most) {
            panels.refused = `${file.name} has ${whole(file.size)} bytes; ${whole(most)} are read at most`;
            continue;
        }
        const text = await file.text();
        const one = { name: file.name, text };
        switch (kind(file.name, text)) {
            case "launch": panels.launch = one; break;
            case "log": logs.push(one); break;
            case "runs": panels.runs = one; break;
            case "model":
                texts[file.name] = text;
                Object.assign(part, { model: file.name, seq: null });
                break;
            case "cluster":
                texts[file.name] = text;
                Object.assign(part, { cluster: file.name, gpus: null, nic: null, hbm: null });
        }
    }
    if (logs.length > 0) panels.logs = logs;
    show(panels);
    if (Object.keys(texts).length > 0) change({ ...part, texts });
}

export function Drop({ change, show, children }: { change: Change; show: (panels: Partial<Panels>) => void; children: ComponentChildren }) {
    const [over, setOver] = useState(false);
    return (
        <div class={over ? "drop over" : "drop"}
            onDragOver={(event) => { event.preventDefault(); setOver(true); }}
            onDragLeave={(event) => { if (event.relatedTarget === null) setOver(false); }}
            onDrop={(event) => {
                event.preventDefault();
                setOver(false);
                void readFiles([...(event.dataTransfer?.files ?? [])], change, show);
            }}>
            {children}
        </div>
    );
}
