//! The plan that Megatron's arguments describe.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`, `validate_args`.

use super::arguments::Arguments;
use super::split::pipeline;
use crate::import::finding::Finding;
use crate::rules::FusedExchange;
use meshwright_engine::model::Model;
use meshwright_engine::plan::{CpKind, Layout, Modules, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::{Dispatcher, Stack};

/// The plan on `world` GPUs, where their number is known; else on as few as its degrees need.
pub fn plan(list: &mut Arguments, model: Option<&Model>, world: Option<u32>, stack: &Stack) -> Plan {
    let tp = list.size("--tensor-model-parallel-size").unwrap_or(1);
    let pp = list.size("--pipeline-model-parallel-size").unwrap_or(1);
    let ulysses = list.size("--ds-sequence-parallel-size").unwrap_or(1);
    let cp = list.size("--context-parallel-size").unwrap_or(1).saturating_mul(ulysses);
    let ep = list.size("--expert-model-parallel-size").or_else(|| list.size("--moe-expert-parallel-size")).unwrap_or(1);
    let sparse = model.map_or(ep > 1, Model::is_moe);
    // A file that names no sizes, as one of ms-swift, may be of a model with experts on one rank each.
    let is_said = model.is_none() && list.peek("--moe-token-dispatcher-type").is_some();
    let etp = list.size("--expert-tensor-parallel-size").unwrap_or(if sparse { tp } else { 1 });
    let dp = world.map_or(1, |world| crate::import::imported::replicas(world, &[tp, cp, pp]));
    let layout = Layout { tp, cp, pp, dp, ep, etp };
    let (split, virtual_stages) = pipeline(list, pp, model);
    let schedule = if list.has("--enable-zbh1-pipeline") && pp > 1 {
        Schedule::ZbH1
    } else if virtual_stages > 1 {
        Schedule::Interleaved { virtual_stages }
    } else {
        Schedule::OneFOneB
    };
    let (zero, shard_group) = sharding(list, &layout, world.is_some());
    Plan {
        layout,
        sequence_parallel: list.has("--sequence-parallel") && tp > 1,
        cp_kind: if ulysses > 1 { CpKind::AllToAll } else { cp_kind(list) },
        schedule,
        split: split.unwrap_or_else(|| stack.split.clone()),
        zero,
        shard_group,
        reshard_after_forward: !list.has("--torch-fsdp2-no-reshard-after-forward"),
        micro_batch: list.size("--micro-batch-size").unwrap_or(1),
        recompute: recompute(list),
        offload: offload(list, model),
        dispatcher: if sparse || is_said { dispatcher(list, &layout, stack) } else { stack.dispatcher },
        order: if list.has("--use-tp-pp-dp-mapping") { RankOrder::DataOutermost } else { RankOrder::PipelineOutermost },
    }
}

/// Exchange of context parallelism, a ring where none is named; of several, that of the first layer.
fn cp_kind(list: &mut Arguments) -> CpKind {
    let kinds = list.words("--cp-comm-type").unwrap_or_default();
    if kinds.iter().any(|kind| *kind != kinds[0]) {
        let message = format!("layers with different exchanges are priced as `{}`", kinds[0]);
        list.report("--cp-comm-type", Finding::warning("not-modelled", message));
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

/// Message where stage 0 is read as stage 1.
pub const BF16_SHARDS: &str =
    "stage 0 with bf16: DeepSpeed's bf16 optimizer shards its states over the replicas, read as ZeRO 1";

/// The ZeRO stage of a run with DeepSpeed. With bf16 and stage 0, the bf16 optimizer of its pipeline engine, which runs
/// one stage too, shards its states over the replicas: ZeRO 1 in all but its name.
///
/// Source: [deepspeed] `runtime/engine.py` (`_do_optimizer_sanity_check`), `runtime/bf16_optimizer.py`, release 0.19.8.
fn deepspeed_stage(list: &mut Arguments) -> ZeroStage {
    let stage = match list.number("--zero-stage") {
        Some(stage @ 0..=3) => ZeroStage::try_from(stage as u8).unwrap_or_default(),
        Some(stage) => {
            list.wrong("--zero-stage", &stage.to_string(), "0, 1, 2 or 3");
            ZeroStage::Zero
        }
        None => ZeroStage::Zero,
    };
    let with_deepspeed = list.is_deepspeed();
    if stage != ZeroStage::Zero || !with_deepspeed || !list.has("--bf16") || list.has("--no-pipeline-parallel") {
        return stage;
    }
    list.report("--zero-stage", Finding::warning("stage-0", BF16_SHARDS).expected("`--zero-stage 1`, which says so"));
    ZeroStage::One
}

/// ZeRO stage, and the ranks of a shard group where there are several groups. `known`: the number of GPUs is known.
fn sharding(list: &mut Arguments, layout: &Layout, known: bool) -> (ZeroStage, Option<u32>) {
    let strategy = list.word("--data-parallel-sharding-strategy"); // Megatron FSDP's alone
    let zero = if list.has("--use-torch-fsdp2") {
        ZeroStage::Three
    } else if list.has("--use-megatron-fsdp") || list.has("--use-custom-fsdp") {
        match strategy.as_deref() {
            Some("optim_grads_params") => ZeroStage::Three,
            Some("optim_grads") => ZeroStage::Two,
            Some("optim") => ZeroStage::One,
            Some(_) | None => ZeroStage::Zero,
        }
    } else if list.has("--use-distributed-optimizer") {
        ZeroStage::One
    } else {
        deepspeed_stage(list)
    };
    let instances = list.size("--num-distributed-optimizer-instances").unwrap_or(1);
    let ranks = layout.dense_replicas();
    let group = (known && instances > 1 && ranks.is_multiple_of(instances)).then(|| ranks / instances);
    if instances > 1 && group.is_none() && known {
        let expected = format!("a divisor of the {ranks} ranks with the same weights");
        list.wrong("--num-distributed-optimizer-instances", &instances.to_string(), &expected);
    }
    (zero, group)
}

/// Recomputation, with findings on flags that contradict its granularity.
fn recompute(list: &mut Arguments) -> Recompute {
    let granularity = list.word("--recompute-granularity");
    let method = list.word("--recompute-method");
    let layers = list.number("--recompute-num-layers").filter(|layers| *layers > 0);
    let modules = list.words("--recompute-modules");
    let everything = list.has("--checkpoint-activations")
        || list.has("--deepspeed-activation-checkpointing")
        || list.word("--activations-checkpoint-method").is_some();
    let selective = list.has("--recompute-activations");
    match granularity.as_deref() {
        Some("full") => full_recompute(list, method.as_deref(), layers),
        Some("selective") => {
            let of_full = [("--recompute-method", method.is_some()), ("--recompute-num-layers", layers.is_some())];
            for (flag, _) in of_full.into_iter().filter(|(_, is_given)| *is_given) {
                let message = format!("{flag} with `--recompute-granularity selective`");
                let finding = Finding::error("contradiction", message);
                list.report(flag, finding.expected("it belongs to `full`: remove it"));
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
            let of_granularity = ["--recompute-modules", "--recompute-method", "--recompute-num-layers"];
            if let Some(flag) = of_granularity.into_iter().find(|flag| list.place(flag).is_some()) {
                let message = format!("`{flag}` without --recompute-granularity does nothing");
                list.report(flag, Finding::warning("contradiction", message).expected("--recompute-granularity"));
            }
            Recompute::None
        }
    }
}

/// Full recomputation: of the first `layers` by the method `block`, of all by `uniform`; Megatron refuses it without a method or a
/// number of layers, for which Megatron-DeepSpeed has the default 1.
fn full_recompute(list: &mut Arguments, method: Option<&str>, layers: Option<u32>) -> Recompute {
    let granularity = "--recompute-granularity";
    match (method, layers) {
        (Some("block"), Some(n)) => return Recompute::FirstLayers(n),
        (Some("uniform"), Some(_)) => {}
        (Some("block" | "uniform"), None) if list.is_deepspeed() => {}
        (Some("block" | "uniform"), None) => {
            let message = "`--recompute-granularity full` without --recompute-num-layers: Megatron refuses to start";
            let finding = Finding::error("contradiction", message);
            list.report_lacking(granularity, finding.expected("--recompute-num-layers 1"));
        }
        (other, _) => {
            let read =
                other.map_or_else(|| "no --recompute-method".into(), |word| format!("`--recompute-method {word}`"));
            let finding = Finding::error("contradiction", format!("`--recompute-granularity full` with {read}"))
                .expected("--recompute-method uniform or block, and --recompute-num-layers");
            if other.is_none() {
                list.report_lacking(granularity, finding);
            } else {
                list.report(granularity, finding);
            }
        }
    }
    Recompute::Full
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
                let finding = Finding::note("not-modelled", "`shared_experts` is priced as if it were kept");
                list.report("--recompute-modules", finding);
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

/// Backend of the `flex` dispatcher, which is DeepEP where none is named.
pub fn exchange(list: &Arguments) -> Option<FusedExchange> {
    let flex = list.peek("--moe-token-dispatcher-type").is_some_and(|kind| kind == "flex");
    let named = list.peek("--moe-flex-dispatcher-backend");
    flex.then(|| named.map_or(Some(FusedExchange::DeepEp), |name| FusedExchange::named(&name))).flatten()
}

fn dispatcher(list: &mut Arguments, layout: &Layout, stack: &Stack) -> Dispatcher {
    let kind = list.word("--moe-token-dispatcher-type");
    let _ = list.word("--moe-flex-dispatcher-backend"); // read by `exchange`; here its value is found to be set
    if layout.etp.saturating_mul(layout.ep) == 1 {
        return stack.dispatcher; // no token leaves its rank
    }
    match kind.as_deref() {
        Some("flex") => Dispatcher::DeepEp,
        Some("alltoall" | "alltoall_seq") => Dispatcher::AllToAll,
        Some(_) | None => {
            let read =
                if kind.is_none() { "no --moe-token-dispatcher-type is `allgather`, and" } else { "`allgather`" };
            let finding = Finding::note("not-modelled", format!("{read} is priced as `alltoall`"));
            list.report("--moe-token-dispatcher-type", finding);
            Dispatcher::AllToAll
        }
    }
}
