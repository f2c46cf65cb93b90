/** Launch files of the chosen plan. */

import { strToU8, zipSync } from "fflate";
import { useEffect, useState } from "preact/hooks";

import { ask } from "./answers";
import type { LaunchFiles, Priced } from "./documents";
import { Superseded } from "./engine";
import { Copyable, Refusal, save, Waiting } from "./parts";
import { explainLine, problem, type Question } from "./question";

const FRAMEWORKS: [string, string][] = [["megatron", "Megatron-LM"], ["megatron-bridge", "Megatron-Bridge / NeMo"], ["deepspeed", "DeepSpeed"], ["torchtitan", "torchtitan"], ["accelerate", "Accelerate"], ["nanotron", "nanotron"], ["maxtext", "MaxText"], ["axolotl", "axolotl"], ["llama-factory", "LLaMA-Factory"], ["gpt-neox", "GPT-NeoX"], ["ms-swift", "ms-swift"], ["llm-foundry", "llm-foundry"], ["olmo-core", "OLMo-core"], ["primus", "Primus"]];

export function Launch({ question, plan, stack }: { question: Question; plan: Priced; stack: string }) {
    const [framework, setFramework] = useState(question.framework && question.framework !== "any" ? question.framework : "megatron");
    const [told, setTold] = useState<LaunchFiles | null>(null);
    const [error, setError] = useState<string | null>(null);
    useEffect(() => {
        let current = true;
        setError(null);
        ask<LaunchFiles>({ ask: "emit", question: { framework, problem: problem(question), plan: plan.plan } })
            .then((files) => current && setTold(files))
            .catch((why: unknown) => {
                if (!current || why instanceof Superseded) return;
                setTold(null);
                setError(why instanceof Error ? why.message : String(why));
            });
        return () => {
            current = false;
        };
    }, [question, plan.plan, framework]);
    const zip = () => {
        if (told !== null) save(`${framework}.zip`, zipSync(Object.fromEntries(told.files.map((file) => [file.name, strToU8(file.text)]))) as BlobPart, "application/zip");
    };
    return (
        <>
            <div class="what-if">
                <label>Framework
                    <select value={framework} onChange={(event) => setFramework(event.currentTarget.value)}>
                        {FRAMEWORKS.map(([name, title]) => <option key={name} value={name} selected={name === framework}>{title}</option>)}
                    </select>
                </label>
                <button type="button" disabled={told === null} onClick={zip}>Save all as zip</button>
            </div>
            <p class="notes">Predicted for {stack}. The command line explains the plan: </p>
            <Copyable label="explain" text={explainLine(question, plan.plan)} />
            {error !== null && <Refusal text={error} />}
            {told === null && error === null && <Waiting what="Writing the files." />}
            {told?.notes.map((note) => <p class={note.startsWith("warning") ? "warning" : "notes"} key={note}>{note}</p>)}
            {told?.files.map((file) => (
                <details key={file.name} open={told.files.length === 1 || file === told.files[0]} class="emitted">
                    <summary>{file.name}</summary>
                    <p class="row"><button type="button" onClick={() => save(file.name, file.text, "text/plain")}>Save {file.name}</button></p>
                    <pre tabIndex={0} aria-label={file.name}>{file.text}</pre>
                </details>
            ))}
        </>
    );
}
