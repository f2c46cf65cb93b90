/** Days, dollars and energy of a run, with failures and checkpoints. */

import type { PlanDocument, Priced } from "./documents";
import { count, dollars, energy, percent, seconds, significant, whole } from "./format";
import type { Question } from "./question";

const LOSSES: Record<string, string> = { checkpoints: "Pauses for checkpoints", rework: "Work since the last checkpoint, done again", restarts: "Restarts", maintenance: "Planned maintenance", straggler: "Waiting for the slowest device" };

export function Money({ document, shown, question }: { document: PlanDocument; shown: Priced; question: Question }) {
    const bill = document.bills?.[document.plans.findIndex((plan) => plan.plan === shown.plan)];
    if (bill === undefined) return <p>Give the number of tokens to train, under “Time and money” of the question.</p>;
    return (
        <>
            <p class="lead">{question.tokens} tokens in <strong>{significant(bill.days)} days</strong> for <strong>{dollars(bill.cost_usd)}</strong> ({dollars(bill.cost_low_usd)} to {dollars(bill.cost_high_usd)} at other prices), terms: {question.terms}.</p>
            <dl class="figures">
                <div><dt>Days</dt><dd>{significant(bill.days)}<small>{percent(bill.effective)} of the time makes progress</small></dd></div>
                <div><dt>GPU-hours</dt><dd>{count(bill.gpu_hours)}<small>${significant(bill.cost_usd / bill.gpu_hours)} each, all in</small></dd></div>
                <div><dt>Energy</dt><dd>{energy(bill.energy_mwh)}<small>{whole(bill.co2_kg / 1000)} t CO₂{bill.electricity_usd > 0 ? `, ${dollars(bill.electricity_usd)} of electricity` : ""}</small></dd></div>
                <div><dt>Interrupted every</dt><dd>{significant(bill.between_failures_h)} h<small>restarted in {seconds(bill.restart_s)}, {bill.spare_nodes} spare nodes</small></dd></div>
                <div><dt>Checkpoint every</dt><dd>{seconds(bill.checkpoint_interval_s)}<small>training pauses for {seconds(bill.checkpoint_pause_s)}</small></dd></div>
            </dl>
            <table>
                <thead><tr><th scope="col">Time lost</th><th scope="col" class="number">Share</th></tr></thead>
                <tbody>{Object.entries(bill.losses).sort((a, b) => b[1] - a[1]).map(([name, share]) => <tr key={name}><td>{LOSSES[name] ?? name}</td><td class="number">{percent(share)}</td></tr>)}</tbody>
            </table>
        </>
    );
}
