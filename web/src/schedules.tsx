/** One plan under every pipeline schedule. */

import { useEffect, useState } from "preact/hooks";

import { picture } from "./answers";
import type { Explanation, Priced } from "./documents";
import { Refused } from "./engine";
import { percent, seconds } from "./format";
import type { Question } from "./question";

const SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"];

interface Side { schedule: string; step: number | null; bubble: number; memory: number; why: string }

export function Schedules({ question, plan }: { question: Question; plan: Priced }) {
    const [sides, setSides] = useState<Side[] | null>(null);
    const [asked, setAsked] = useState(false);
    useEffect(() => {
        setSides(null);
        if (!asked || plan.pp < 2) return undefined;
        let current = true;
        void (async () => {
            const found: Side[] = [];
            for (const schedule of SCHEDULES) {
                found.push(await side(question, plan, schedule));
                if (!current) return;
                setSides([...found]);
            }
        })();
        return () => {
            current = false;
        };
    }, [question, plan.plan, asked]);
    if (plan.pp < 2) return null;
    if (!asked) return <p><button type="button" onClick={() => setAsked(true)}>Compare all schedules</button></p>;
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label="All schedules">
            <table>
                <thead><tr><th scope="col">Schedule</th><th scope="col" class="number">Step</th><th scope="col" class="number roomy">Bubble</th><th scope="col" class="number">GiB</th><th scope="col">Does it run?</th></tr></thead>
                <tbody>
                    {(sides ?? []).map((one) => (
                        <tr key={one.schedule}><th scope="row">{one.schedule}</th><td class="number">{one.step === null ? "" : seconds(one.step)}</td><td class="number roomy">{one.step === null ? "" : percent(one.bubble)}</td><td class="number">{one.memory > 0 ? one.memory.toFixed(1) : ""}</td><td class="reason">{one.why || "yes"}</td></tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

async function side(question: Question, plan: Priced, schedule: string): Promise<Side> {
    const settings = plan.plan.split(" ").filter((setting) => !/^(schedule|vpp|split)=/.test(setting));
    const vpp = schedule === "interleaved" ? [`vpp=${Math.max(2, plan.vpp)}`] : [];
    try {
        const told = JSON.parse((await picture(question, [...settings, `schedule=${schedule}`, ...vpp].join(" "))).explanation) as Explanation;
        const { prediction } = told;
        return {
            schedule,
            step: prediction?.step_time_s ?? null,
            bubble: prediction ? (prediction.terms["pipeline_bubble_s"] ?? 0) / prediction.step_time_s : 0,
            memory: Math.max(0, ...told.ranks.map((rank) => rank.peak_mem_gib)),
            why: told.reasons.map((reason) => reason.reason).join("; "),
        };
    } catch (why) {
        if (!(why instanceof Refused)) throw why;
        return { schedule, step: null, bubble: 0, memory: 0, why: why.message };
    }
}
