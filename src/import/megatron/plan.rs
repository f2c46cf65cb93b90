//! The plan that Megatron's arguments describe.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`, `validate_args`.

use super::super::finding::Finding;
use super::arguments::Arguments;
use crate::model::Model;
use crate::plan::{CpKind, Layout, Modules, Offload, Plan, RankOrder, Recompute, ZeroStage};
use crate::schedule::Schedule;
use crate::stack::{Dispatcher, Stack};

/// The plan on `world` GPUs, where their number is known; else on as few as its degrees need.
pub fn plan(list: &mut Arguments, model: Option<&Model>, world: Option<u32>, stack: &Stack) -> Plan {
    let tp = list.size("--tensor-model-parallel-size").unwrap_or(1);
    let pp = list.size("--pipeline-model-parallel-size").unwrap_or(1);
    let ulysses = list.size("--ds-sequence-parallel-size").unwrap_or(1);
    let cp = list.size("--context-parallel-size").unwrap_or(1).saturating_mul(ulysses);
    let sparse = model.is_some_and(Model::is_moe);
    let ep = list.size("--expert-model-parallel-size").or_else(|| list.size("--moe-expert-parallel-size")).unwrap_or(1);
    let etp = list.size("--expert-tensor-parallel-size").unwrap_or(if sparse { tp } else { 1 });
    let dp = world.map_or(1, |world| super::super::replicas(world, &[tp, cp, pp]));
    let layout = Layout { tp, cp, pp, dp, ep, etp };
    let schedule = schedule(list, pp, model);
    let (zero, shard_group) = sharding(list, &layout, world.is_some());
    Plan {
        layout,
        sequence_parallel: list.has("--sequence-parallel") && tp > 1,
        cp_kind: if ulysses > 1 { CpKind::AllToAll } else { cp_kind(list) },
        schedule,
        split: stack.split,
        zero,
        shard_group,
        reshard_after_forward: !list.has("--torch-fsdp2-no-reshard-after-forward"),
        micro_batch: list.size("--micro-batch-size").unwrap_or(1),
        recompute: recompute(list),
        offload: offload(list, model),
        dispatcher: if sparse { dispatcher(list, &layout, stack) } else { stack.dispatcher },
        order: if list.has("--use-tp-pp-dp-mapping") { RankOrder::DataOutermost } else { RankOrder::PipelineOutermost },
    }
}

fn cp_kind(list: &mut Arguments) -> CpKind {
    let kinds = list.words("--cp-comm-type").unwrap_or_default();
    if kinds.iter().any(|kind| *kind != kinds[0]) {
        let place = list.place("--cp-comm-type");
        let finding =
            Finding::warning("not-modelled", format!("layers with different exchanges are priced as `{}`", kinds[0]));
        list.findings.push(finding.at_maybe(place.as_ref()));
    }
    match kinds.first().map(String::as_str) {
        Some("allgather" | "all_gather") => CpKind::AllGather,
        Some("a2a") => CpKind::AllToAll,
        Some("a2a+p2p") => CpKind::Hierarchical,
        Some("p2p") | None => CpKind::Ring,
        Some(other) => {
            list.wrong("--cp-comm-type", other, "p2p, a2a, allgather or a2a+p2p");
            CpKind::Ring
        }
    }
}

fn schedule(list: &mut Arguments, pp: u32, model: Option<&Model>) -> Schedule {
    let per_chunk = list.size("--num-layers-per-virtual-pipeline-stage");
    let chunks = list.size("--num-virtual-stages-per-pipeline-rank");
    let layout = list.word("--pipeline-model-parallel-layout");
    let flags = [
        "--num-layers-per-virtual-pipeline-stage",
        "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-layout",
    ];
    let given: Vec<&str> = flags.into_iter().filter(|flag| list.place(flag).is_some()).collect();
    if given.len() > 1 {
        let place = list.place(given[1]);
        let finding = Finding::error("contradiction", format!("{} are given together", given.join(" and ")));
        list.findings.push(finding.at_maybe(place.as_ref()).expected("no more than one of them"));
    }
    let spare = ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"];
    let spare = spare.into_iter().filter(|flag| list.has(flag)).count() as u32;
    let virtual_stages = if let Some(layout) = layout {
        let stages = layout_stages(&layout);
        if stages == 0 || !stages.is_multiple_of(pp) {
            list.wrong(
                "--pipeline-model-parallel-layout",
                &layout,
                &format!("a multiple of {pp} stages, {stages} found"),
            );
            1
        } else {
            stages / pp
        }
    } else if let (Some(each), Some(model)) = (per_chunk, model) {
        let layers = model.layers() + spare;
        if layers.is_multiple_of(pp) && (layers / pp).is_multiple_of(each) {
            layers / pp / each
        } else {
            let place = list.place("--num-layers-per-virtual-pipeline-stage");
            let finding =
                Finding::error("does-not-divide", format!("{layers} layers on {pp} stages are no chunks of {each}"));
            list.findings.push(
                finding.at_maybe(place.as_ref()).expected("layers per stage, a multiple of the layers per chunk"),
            );
            1
        }
    } else {
        chunks.unwrap_or(1)
    };
    for flag in ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"] {
        if list.has(flag) {
            let place = list.place(flag);
            let finding =
                Finding::note("not-modelled", format!("`{flag}`: priced with layers split as evenly as they can be"));
            list.findings.push(finding.at_maybe(place.as_ref()));
        }
    }
    if list.has("--enable-zbh1-pipeline") && pp > 1 {
        return Schedule::ZbH1;
    }
    if virtual_stages > 1 { Schedule::Interleaved { virtual_stages } } else { Schedule::OneFOneB }
}

/// Stages of a layout string: `Et*3|(tt|)*14,tmL` has parts between bars, `( )*n` and `x*n` repeat.
fn layout_stages(layout: &str) -> u32 {
    const MOST: u32 = 100_000;
    let mut counts = vec![0_u32];
    let mut last = 0; // bars of the item that `*n` would repeat
    let mut chars = layout.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '(' => counts.push(0),
            ')' => {
                if counts.len() < 2 {
                    return 0;
                }
                last = counts.pop().unwrap_or(0);
                if let Some(top) = counts.last_mut() {
                    *top += last;
                }
            }
            '*' => {
                let mut digits = String::new();
                while let Some(d) = chars.next_if(char::is_ascii_digit) {
                    digits.push(d);
                }
                let Ok(times) = digits.parse::<u32>() else { return 0 };
                let more = last.saturating_mul(times.saturating_sub(1));
                match counts.last_mut() {
                    Some(top) if more < MOST => *top += more,
                    Some(_) | None => return 0,
                }
            }
            '|' => {
                last = 1;
                if let Some(top) = counts.last_mut() {
                    *top += 1;
                }
            }
            _ => last = 0,
        }
    }
    if counts.len() == 1 { counts[0] + 1 } else { 0 }
}

fn sharding(list: &mut Arguments, layout: &Layout, known: bool) -> (ZeroStage, Option<u32>) {
    let zero = if list.has("--use-torch-fsdp2") {
        ZeroStage::Three
    } else if list.has("--use-megatron-fsdp") || list.has("--use-custom-fsdp") {
        match list.word("--data-parallel-sharding-strategy").as_deref() {
            Some("optim_grads_params") => ZeroStage::Three,
            Some("optim_grads") => ZeroStage::Two,
            Some("optim") => ZeroStage::One,
            Some(_) | None => ZeroStage::Zero,
        }
    } else if list.has("--use-distributed-optimizer") {
        ZeroStage::One
    } else {
        match list.number("--zero-stage") {
            Some(stage @ 0..=3) => ZeroStage::try_from(stage as u8).unwrap_or_default(),
            Some(stage) => {
                list.wrong("--zero-stage", &stage.to_string(), "0, 1, 2 or 3");
                ZeroStage::Zero
            }
            None => ZeroStage::Zero,
        }
    };
    let instances = list.size("--num-distributed-optimizer-instances").unwrap_or(1);
    let ranks = layout.dense_replicas();
    let group = (instances > 1 && ranks.is_multiple_of(instances)).then(|| ranks / instances);
    if instances > 1 && group.is_none() && known {
        let expected = format!("a divisor of the {ranks} ranks with the same weights");
        list.wrong("--num-distributed-optimizer-instances", &instances.to_string(), &expected);
    }
    (zero, group)
}

fn recompute(list: &mut Arguments) -> Recompute {
    let granularity = list.word("--recompute-granularity");
    let method = list.word("--recompute-method");
    let layers = list.size("--recompute-num-layers");
    let modules = list.words("--recompute-modules");
    let everything = list.has("--checkpoint-activations") || list.has("--deepspeed-activation-checkpointing");
    let selective = list.has("--recompute-activations");
    match granularity.as_deref() {
        Some("full") => match (method.as_deref(), layers) {
            (Some("block"), Some(n)) => Recompute::FirstLayers(n),
            (Some("block" | "uniform"), _) => Recompute::Full,
            (other, _) => {
                let place = list.place("--recompute-granularity");
                let read =
                    other.map_or_else(|| "no --recompute-method".into(), |word| format!("`--recompute-method {word}`"));
                let finding = Finding::error("contradiction", format!("`--recompute-granularity full` with {read}"));
                list.findings.push(
                    finding
                        .at_maybe(place.as_ref())
                        .expected("--recompute-method uniform or block, and --recompute-num-layers"),
                );
                Recompute::Full
            }
        },
        Some("selective") => {
            if method.is_some() {
                let place = list.place("--recompute-method");
                let finding =
                    Finding::error("contradiction", "--recompute-method with `--recompute-granularity selective`");
                list.findings.push(finding.at_maybe(place.as_ref()).expected("it belongs to `full`: remove it"));
            }
            chosen(list, modules)
        }
        Some(other) => {
            list.wrong("--recompute-granularity", other, "full or selective");
            Recompute::None
        }
        None if selective => chosen(list, modules),
        None if everything => Recompute::Full,
        None => {
            if let Some(flag) = ["--recompute-modules", "--recompute-method", "--recompute-num-layers"]
                .iter()
                .find(|flag| list.place(flag).is_some())
            {
                let place = list.place(flag);
                let finding =
                    Finding::warning("contradiction", format!("`{flag}` without --recompute-granularity does nothing"));
                list.findings.push(finding.at_maybe(place.as_ref()).expected("--recompute-granularity"));
            }
            Recompute::None
        }
    }
}

/// Modules by name; `core_attn` where none is named.
fn chosen(list: &mut Arguments, names: Option<Vec<String>>) -> Recompute {
    let mut modules = Modules::default();
    for name in names.unwrap_or_else(|| vec!["core_attn".into()]) {
        match name.as_str() {
            "core_attn" => modules.core_attn = true,
            "layernorm" => modules.layernorm = true,
            "moe_act" => modules.act = true,
            "mla_up_proj" => modules.mla_up_proj = true,
            "mlp" => modules.mlp = true,
            "moe" => modules.moe = true,
            "shared_experts" => {
                let place = list.place("--recompute-modules");
                let finding = Finding::note("not-modelled", "`shared_experts` is priced as if it were kept");
                list.findings.push(finding.at_maybe(place.as_ref()));
            }
            other => list.wrong(
                "--recompute-modules",
                other,
                "of core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, shared_experts",
            ),
        }
    }
    if modules == Modules::default() { Recompute::None } else { Recompute::Selective(modules) }
}

fn offload(list: &mut Arguments, model: Option<&Model>) -> Offload {
    let fraction = list.real("--optimizer-offload-fraction").unwrap_or(1.0).clamp(0.0, 1.0);
    let optimizer = list.has("--optimizer-cpu-offload") || list.has("--cpu-optimizer");
    let layers = list.number("--cpu-offloading-num-layers").unwrap_or(0);
    let share = model.map_or(0.0, |model| (f64::from(layers) / f64::from(model.layers())).min(1.0));
    Offload { optimizer: if optimizer { fraction } else { 0.0 }, activations: share }
}

fn dispatcher(list: &mut Arguments, layout: &Layout, stack: &Stack) -> Dispatcher {
    let kind = list.word("--moe-token-dispatcher-type");
    let _ = list.word("--moe-flex-dispatcher-backend");
    if layout.tp.saturating_mul(layout.ep) == 1 {
        return stack.dispatcher; // no token leaves its rank
    }
    match kind.as_deref() {
        Some("flex") => Dispatcher::DeepEp,
        Some("alltoall" | "alltoall_seq") => Dispatcher::AllToAll,
        Some(_) | None => {
            let place = list.place("--moe-token-dispatcher-type");
            let read =
                if kind.is_none() { "no --moe-token-dispatcher-type is `allgather`, and" } else { "`allgather`" };
            let finding = Finding::note("not-modelled", format!("{read} is priced as `alltoall`"));
            list.findings.push(finding.at_maybe(place.as_ref()));
            Dispatcher::AllToAll
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_as_many_stages_as_bars_part() {
        for (layout, stages) in
            [("Et|t|tL", 3), ("Et*3|(tt|)*14,tmL", 16), ("E|(t|)*4L", 6), ("Ettttt|tttL", 2), ("EtL", 1)]
        {
            assert_eq!(layout_stages(layout), stages, "{layout}");
        }
        assert_eq!((layout_stages("(t|"), layout_stages("t)|"), layout_stages("(t|)*x")), (0, 0, 0));
    }
}
