//! Plan of a row: its stated degrees, and its framework's defaults for the rest.

use super::cell::{Cells, text};
use super::map_stack;
use super::refusal::Refusal;
use super::release::Release;
use super::row::Row;
use meshwright_engine::model::Model;
use meshwright_engine::plan::{CpKind, Layout, Modules, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Dispatcher;

/// Largest micro-batch to assume for a blank cell.
const BLANK_MICRO_BATCH: u32 = 4;
/// MaxText's policy that keeps the outputs of matmuls on the host.
const OFFLOADED: &str = "minimal_offloaded";
/// Layers of one chunk of a mixture of experts that does not state its chunks.
const MOE_CHUNK: u32 = 4;

/// Plan of a row.
pub(super) fn plan(row: &Row, cells: &Cells, release: Release, model: &Model) -> Result<Plan, Refusal> {
    let Some(global_batch) = cells.global_batch else {
        return Refusal::unsupported("batch unknown");
    };
    let zero = zero_stage(row)?;
    if zero == ZeroStage::Three && model.is_moe() && cells.ep.is_none() {
        return Refusal::unsupported("EP degree not stated");
    }
    let dp = data_parallel(cells)?;
    if global_batch < dp {
        return Refusal::invalid(format!("a global batch of {global_batch} is under the {dp} data-parallel ranks"));
    }
    let layout = Layout { tp: cells.tp, cp: cells.cp, pp: cells.pp, dp, ep: cells.ep.unwrap_or(1), etp: 1 };
    let layout = Layout { etp: expert_tp(cells, release, model, &layout)?, ..layout };
    let micro_batch = micro_batch(cells, global_batch / dp);
    let micro_batches = f64::from(global_batch) / (f64::from(dp) * f64::from(micro_batch));
    let keeps_weights = release.is_torchtitan() || matches!(release, Release::Automodel | Release::FsdpCompiled);
    let pipelined_shards = keeps_weights && zero == ZeroStage::Three && layout.pp > 1;
    Ok(Plan {
        layout,
        sequence_parallel: map_stack::sequence_parallel(row, cells),
        cp_kind: match release {
            Release::Meta => CpKind::AllGather,
            _ if release.is_torchtitan() => CpKind::AllGather,
            Release::MegatronLm2023 | Release::MegatronLm2024 | Release::Core24 | Release::Core25 | Release::Core26 => {
                CpKind::Ring
            }
            _ => CpKind::AllToAll,
        },
        schedule: schedule(row, cells, release, model, micro_batches)?,
        split: if release == Release::Nanotron || (release.is_core() && model.mtp_depth > 0) {
            LayerSplit::CostBalanced
        } else {
            LayerSplit::Even
        },
        zero,
        shard_group: shard_group(text(row.fsdp.as_ref())),
        reshard_after_forward: !pipelined_shards,
        micro_batch,
        recompute: recompute(row, release),
        offload: Offload { optimizer: offloaded_update(row), activations: offloaded(row, release, model.layers()) },
        dispatcher: Dispatcher::AllToAll,
        order: RankOrder::PipelineOutermost,
    })
}

/// Data-parallel size: the stated one, or the quotient of the GPUs and the other degrees.
fn data_parallel(cells: &Cells) -> Result<u32, Refusal> {
    let product = |factors: &[u32]| factors.iter().try_fold(1_u64, |all, &factor| all.checked_mul(u64::from(factor)));
    let gpus = u64::from(cells.gpus);
    let mismatch = || {
        Refusal::Invalid(format!(
            "tp {} · pp {} · cp {} · dp {} does not multiply to {gpus} GPUs",
            cells.tp,
            cells.pp,
            cells.cp,
            cells.dp.map_or_else(|| "?".to_owned(), |dp| dp.to_string())
        ))
    };
    let others = product(&[cells.tp, cells.pp, cells.cp]).ok_or_else(mismatch)?;
    let dp = cells.dp.unwrap_or((gpus / others).max(1) as u32);
    if others.checked_mul(u64::from(dp)) == Some(gpus) { Ok(dp) } else { Err(mismatch()) }
}

/// Expert tensor-parallel size. If blank, Megatron-Core uses the tensor-parallel size where the grid allows it; others use
/// 1.
fn expert_tp(cells: &Cells, release: Release, model: &Model, layout: &Layout) -> Result<u32, Refusal> {
    if !model.is_moe() {
        return Ok(1);
    }
    let block = layout.tp * layout.cp * layout.dp;
    if let Some(etp) = cells.etp {
        let folded = u64::from(layout.ep) * u64::from(etp);
        if folded > u64::from(block) {
            return Refusal::invalid(format!("ep {} · etp {etp} is over the {block} ranks of a stage", layout.ep));
        }
        return Ok(etp);
    }
    if layout.ep > block {
        return Refusal::invalid(format!("ep {} is over the {block} ranks of a stage", layout.ep));
    }
    let folded = u64::from(layout.ep) * u64::from(layout.tp);
    let fits = release.is_core()
        && model.experts().is_multiple_of(layout.ep)
        && u64::from(block).is_multiple_of(folded)
        && layout.ep <= layout.dense_replicas();
    Ok(if fits { layout.tp } else { 1 })
}

/// ZeRO stage. If blank, 3 where `fsdp` means full sharding, else 0.
fn zero_stage(row: &Row) -> Result<ZeroStage, Refusal> {
    let Some(stage) = row.zero_stage.filter(|stage| !stage.is_nan()) else {
        return Ok(if text(row.fsdp.as_ref()).contains("full") { ZeroStage::Three } else { ZeroStage::Zero });
    };
    let wrong = || Refusal::Invalid(format!("`zero_stage` is {stage}, and not 0, 1, 2 or 3"));
    if stage.fract() != 0.0 || !(0.0..=3.0).contains(&stage) {
        return Err(wrong());
    }
    ZeroStage::try_from(stage as u8).map_err(|_| wrong())
}

/// Sequences per micro-batch, at most those of a rank. If blank, 1 in a pipeline, else the rank's own, up to 4.
fn micro_batch(cells: &Cells, local: u32) -> u32 {
    let blank = if cells.pp > 1 { 1 } else { local.min(BLANK_MICRO_BATCH) };
    cells.micro_batch.unwrap_or(blank).min(local).max(1)
}

fn schedule(
    row: &Row,
    cells: &Cells,
    release: Release,
    model: &Model,
    micro_batches: f64,
) -> Result<Schedule, Refusal> {
    let stated = text(row.schedule.as_ref());
    if stated.contains("zero-bubble") {
        return Ok(Schedule::ZbH1);
    }
    let chunks = match cells.vpp {
        _ if cells.pp == 1 => 1,
        Some(chunks) => chunks,
        None if micro_batches < f64::from(cells.pp) => 1,
        None => blank_chunks(stated, cells.pp, release, model),
    };
    if u64::from(cells.pp) * u64::from(chunks) > u64::from(model.layers()) + 2 {
        return Refusal::invalid(format!(
            "{} stages of {chunks} chunks are more than {} layers",
            cells.pp,
            model.layers()
        ));
    }
    Ok(if chunks > 1 { Schedule::Interleaved { virtual_stages: chunks } } else { Schedule::OneFOneB })
}

/// Chunks per rank of a row that does not state them: Megatron-Core takes one layer per chunk, four with experts; an
/// `interleaved` schedule of other frameworks has at least two.
fn blank_chunks(stated: &str, pp: u32, release: Release, model: &Model) -> u32 {
    let layers = model.layers();
    if release.is_core() && !model.is_moe() && layers.is_multiple_of(pp) {
        layers / pp
    } else if stated.contains("interleaved") {
        let own = (layers / pp).max(1);
        (1..=own).rev().find(|chunks| own.is_multiple_of(*chunks) && (own / chunks >= 2 || *chunks == 1)).unwrap_or(1)
    } else if release.is_core() && model.is_moe() && layers >= 8 * pp {
        (layers / (MOE_CHUNK * pp)).max(1)
    } else {
        1
    }
}

/// Recomputation. If blank, per-operation checkpointing on torchtitan and under JAX, else none.
fn recompute(row: &Row, release: Release) -> Recompute {
    let stated = text(row.recompute.as_ref());
    let has = |part: &str| stated.contains(part);
    let modules = Modules {
        core_attn: has("core_attn"),
        layernorm: has("layernorm"),
        act: has("moe_act"),
        mla_up_proj: has("mla_up"),
        mlp: has("(mlp") || has("+mlp"),
        moe: stated.split(['(', '+', ')']).any(|module| module == "moe"),
    };
    if let Some(recompute) = policy_of(row, release) {
        recompute
    } else if stated == "full" {
        Recompute::Full
    } else if leaves_policy_open(row, release) || release == Release::Jax && stated == "minimal" {
        Recompute::PerOp // the least policy of recipes, which keeps the outputs of matmuls
    } else if modules != Modules::default() {
        Recompute::Selective(modules)
    } else if has("every other") {
        Recompute::EveryOther
    } else if has("op") {
        Recompute::PerOp
    } else if stated.is_empty() && text(row.framework.as_ref()).contains("torchtitan") {
        debug_assert!(release.is_torchtitan());
        Recompute::PerOp
    } else {
        Recompute::None
    }
}

/// Whether a row of JAX recomputes nothing or does not say what, and names no policy that is known.
pub(super) fn leaves_policy_open(row: &Row, release: Release) -> bool {
    release == Release::Jax && matches!(text(row.recompute.as_ref()), "" | "none") && policy_of(row, release).is_none()
}

/// Recomputation that the checkpoint policy of a row is; none where it names no policy that is known, or is not of JAX.
///
/// MaxText's policy `none` is none of JAX's policies, under which a checkpoint keeps a layer's input alone.
///
/// Source: [maxtext] `layers/decoders.py`, `get_remat_policy` and `set_remat_policy`.
pub(super) fn policy_of(row: &Row, release: Release) -> Option<Recompute> {
    let name = text(row.recompute_modules.as_ref());
    match release {
        Release::Jax if name == "none" => {
            text(row.framework.as_ref()).to_lowercase().contains("maxtext").then_some(Recompute::Full)
        }
        Release::Jax => policy(name),
        _ => None,
    }
}

/// Recomputation that a checkpoint policy of MaxText or Praxis is, by its name. One that keeps QKV alone, on the device or on the
/// host, counts as one that keeps nothing.
///
/// Source: [maxtext] `layers/decoders.py`, `get_remat_policy`; [praxis] `AutodiffCheckpointType`; those of rows: [dgxc-pax].
fn policy(name: &str) -> Option<Recompute> {
    match name {
        "minimal_with_context" | "minimal_flash" | "minimal_with_context_and_quantization" | "save_everything" => {
            Some(Recompute::None)
        }
        "minimal" | "minimal_with_quantization" | OFFLOADED | "save_dot_only" | "save_dot_with_no_batch_dims" => {
            Some(Recompute::PerOp)
        }
        "save_dot_with_context_except_mlp" => Some(Recompute::Selective(Modules { mlp: true, ..Modules::default() })),
        "save_dot_except_mlp" | "save_qkv_out_proj" => Some(Recompute::Selective(Modules::ATTENTION_AND_MLP)),
        "full" | "save_nothing" | "save_out_proj" | "save_qkv_proj" | "qkv_proj_offloaded" => Some(Recompute::Full),
        _ => None,
    }
}

/// Share of the activations on the host, from `activations:95layers` in `offload`, or all that JAX's policy would keep.
fn offloaded(row: &Row, release: Release, layers: u32) -> f64 {
    if release == Release::Jax && text(row.recompute_modules.as_ref()) == OFFLOADED {
        return 1.0;
    }
    let number = text(row.offload.as_ref())
        .split('+')
        .find_map(|part| part.strip_prefix("activations:").and_then(|rest| rest.strip_suffix("layers")));
    number.and_then(|number| number.parse::<f64>().ok()).map_or(0.0, |some| (some / f64::from(layers)).min(1.0))
}

/// Share of the optimizer states on the host, with their update: all where `offload` lists `optimizer`.
fn offloaded_update(row: &Row) -> f64 {
    if text(row.offload.as_ref()).split('+').any(|part| part == "optimizer") { 1.0 } else { 0.0 }
}

/// Size of a shard group from `ZeRO-1 group K`, `hsdp K` or `shard K`.
fn shard_group(text: &str) -> Option<u32> {
    if text.contains("FSDP=1") {
        return None;
    }
    ["ZeRO-1 group ", "hsdp ", "shard "].iter().find_map(|label| {
        let after = &text[text.find(label)? + label.len()..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        after[..digits].parse().ok().filter(|group| *group > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_groups_are_read() {
        assert_eq!(shard_group("ZeRO-1 group 8"), Some(8));
        assert_eq!(shard_group("hsdp 128 x dp 4"), Some(128));
        assert_eq!(shard_group("full(Megatron-FSDP, shard 64)"), Some(64));
        assert_eq!(shard_group("ZeRO-1 group all dp ranks"), None);
        assert_eq!(shard_group("full (FSDP=1)"), None);
    }

    #[test]
    fn a_policy_of_jax_counts_before_the_stated_recomputation() {
        let cell = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (stated, policy, expected, on_host) in [
            ("", "", "per-op", 0.0),
            ("none", "", "per-op", 0.0),
            ("full", "", "full", 0.0),
            ("none", "minimal", "per-op", 0.0),
            ("none", "minimal_with_quantization", "per-op", 0.0),
            ("none", "minimal_with_context_and_quantization", "none", 0.0),
            ("none", "save_dot_with_context_except_mlp", "mlp", 0.0),
            ("full", "save_everything", "none", 0.0),
            ("none", "minimal_with_context", "none", 0.0),
            ("full", "minimal_offloaded", "per-op", 1.0),
            ("", "save_qkv_out_proj", "core_attn+mlp", 0.0),
            ("", "save_qkv_proj", "full", 0.0),
            ("full", "a policy of tomorrow", "full", 0.0),
        ] {
            let row = Row { recompute: cell(stated), recompute_modules: cell(policy), ..Row::default() };
            let read = (recompute(&row, Release::Jax).to_string(), offloaded(&row, Release::Jax, 32));
            assert_eq!(read, (expected.to_owned(), on_host), "{stated} {policy}");
        }
    }

    #[test]
    fn maxtexts_policy_of_no_policy_keeps_nothing() {
        let cell = |text: &str| Some(text.to_owned());
        let row = |framework| Row {
            framework: cell(framework),
            recompute: cell("none"),
            recompute_modules: cell("none"),
            ..Row::default()
        };
        let read = |framework| recompute(&row(framework), Release::Jax);
        assert_eq!(read("MaxText (JAX)"), Recompute::Full);
        assert_eq!(read("Paxml (JAX)"), Recompute::PerOp, "Praxis has no policy of that name");
        assert_eq!(recompute(&row("MaxText"), Release::Core25), Recompute::None, "a policy is one of JAX alone");
    }

    #[test]
    fn offload_lists_optimizer_and_activations() {
        for (stated, update, activations) in [
            ("", 0.0, 0.0),
            ("none", 0.0, 0.0),
            ("optimizer", 1.0, 0.0),
            ("activations:16layers", 0.0, 0.5),
            ("optimizer+activations:16layers", 1.0, 0.5),
            ("fine_grained:optimizer", 0.0, 0.0),
        ] {
            let row = Row { offload: Some(stated.to_owned()), ..Row::default() };
            assert_eq!(
                (offloaded_update(&row), offloaded(&row, Release::Core25, 32)),
                (update, activations),
                "{stated}"
            );
        }
    }
}
