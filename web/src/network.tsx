/** Which group of a plan talks through which link. */

import type { Network as Groups, Priced } from "./documents";
import { percent, seconds, whole } from "./format";

const NAMES: Record<string, string> = { tp: "Tensor parallel", cp: "Context parallel", ep: "Expert parallel", dp: "Data parallel", pp: "Pipeline" };

export function Network({ network, plan }: { network: Groups; plan: Priced }) {
    const tiers = [
        { name: "GPU", gpus: 1, gbps: null as number | null, over: 1 },
        { name: network.domain > 1 ? "scale-up domain" : "node", gpus: network.domain, gbps: network.domain_gbps, over: 1 },
        ...network.levels.map((level) => ({ name: level.name, gpus: level.gpus, gbps: level.gbps, over: level.oversubscription })),
    ];
    return (
        <>
            <p class="lead">Every group of ranks, at the outermost link that it crosses. The nearer to the GPU a group stays, the more bandwidth it has.</p>
            <ol class="tiers">
                {tiers.map((tier, at) => {
                    const groups = network.groups.filter((group) => (group.level ?? (at === 1 ? tier.name : null)) === tier.name && (at === 1) === (group.level === null));
                    return (
                        <li key={`${tier.name}-${tier.gpus}`} style={{ marginInlineStart: `${(tiers.length - 1 - at) * 0.9}rem`, marginInlineEnd: `${(tiers.length - 1 - at) * 0.9}rem` }}>
                            <div class="tier">
                                <strong>{tier.name}</strong> <span>{whole(tier.gpus)} GPU{tier.gpus > 1 ? "s" : ""}</span>
                                {tier.gbps !== null && <span>{whole(tier.gbps)} Gb/s per GPU, one way{tier.over > 1 ? `, ${tier.over}:1 oversubscribed` : ""}</span>}
                            </div>
                            {groups.map((group) => {
                                const time = plan.terms[group.term] ?? 0;
                                return (
                                    <div class="group" key={group.group}>
                                        <span class="swatch-text">{NAMES[group.group] ?? group.group}</span>
                                        <span>{whole(group.ranks)} ranks, {group.stride === 1 ? "next to one another" : `${whole(group.stride)} GPUs apart`}{group.inside_domain > 1 && group.level !== null ? `, ${whole(group.inside_domain)} of them in each ${network.domain > 1 ? "domain" : "node"}` : ""}</span>
                                        <span class="number">{time > 0 ? `${seconds(time)} exposed, ${percent(time / plan.step_time_s)}` : "hidden, or none"}</span>
                                    </div>
                                );
                            })}
                        </li>
                    );
                })}
            </ol>
        </>
    );
}
