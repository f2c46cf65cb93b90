/** A launch file checked against the cluster of the question. */

import { useEffect, useState } from "preact/hooks";

import { degrees } from "./answer";
import { ask } from "./answers";
import type { LintDocument } from "./documents";
import { Superseded } from "./engine";
import { gib, percent, seconds } from "./format";
import { Copyable, Refusal, Waiting } from "./parts";
import type { Question } from "./question";
import type { TextFile } from "./runs";

export function Lint({ file, question, close }: { file: TextFile; question: Question; close(): void }) {
    const [told, setTold] = useState<LintDocument | null>(null);
    const [error, setError] = useState<string | null>(null);
    const { cluster, texts } = question;
    useEffect(() => {
        let current = true;
        setTold(null);
        setError(null);
        ask<string>({ ask: "lint", question: { file: { file: file.name, text: file.text }, cluster, texts } })
            .then((document) => current && setTold(JSON.parse(document) as LintDocument))
            .catch((why: unknown) => current && !(why instanceof Superseded) && setError(why instanceof Error ? why.message : String(why)));
        return () => {
            current = false;
        };
    }, [file, cluster, texts]);
    return (
        <section class="card lint" aria-labelledby="lint">
            <h2 id="lint">{file.name} on {cluster}</h2>
            {error !== null && <Refusal text={error} />}
            {told === null && error === null && <Waiting what="Reading the launch file and looking for faster plans." />}
            {told !== null && <Checked told={told} />}
            <p class="row"><button type="button" onClick={close}>Close</button></p>
        </section>
    );
}

function Checked({ told }: { told: LintDocument }) {
    const { prediction, best, findings } = told;
    return (
        <>
            <p class="lead">
                {told.ok ? "It runs as written." : "It does not run as written."}
                {prediction && ` ${degrees(prediction)} takes ${seconds(prediction.step_time_s)} a step, ${percent(prediction.mfu)} MFU, ${gib(prediction.peak_mem_gib)}.`}
                {prediction && best && ` The fastest plan of this problem takes ${seconds(best.step_time_s)}.`}
            </p>
            {best && <Copyable label="fastest plan" text={`--plan "${best.plan}"`} />}
            <div class="scroll" tabIndex={0} role="region" aria-label="Findings">
                <table>
                    <thead><tr><th scope="col">Level</th><th scope="col" class="number">Line</th><th scope="col">Finding</th><th scope="col">Expected, or to do</th><th scope="col">Rule</th></tr></thead>
                    <tbody>
                        {findings.map((finding, at) => (
                            <tr key={at}><td class={finding.level === "error" ? "bad" : ""}>{finding.level}</td><td class="number">{finding.line ?? ""}</td><td>{finding.message}</td><td>{finding.expected ?? ""}</td><td>{finding.rule}</td></tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </>
    );
}
