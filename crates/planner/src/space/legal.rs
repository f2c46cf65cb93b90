//! Legality rules of a plan: one function a rule, each with its source.

use super::rejection::Rejection;
use meshwright_engine::cost::Costs;
use meshwright_engine::cost::groups::TooFewDomains;
use meshwright_engine::model::{AttentionMamba, Mixer};
use meshwright_engine::plan::{CpKind, Layout, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::problem::{IndexScores, Problem};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::schedule::ops::MOST_PASSES;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::split::layers as split;
use meshwright_engine::stack::Family;

/// Checks the tensor- and context-parallel degrees.
///
/// Source: [megatron-lm] `megatron/training/arguments.py`: heads, groups and intermediate sizes divide by tp; groups may be
/// fewer than tp when tp is a multiple of them; the sequence divides by tp under sequence parallelism and by 2·cp for the
/// balanced causal split.
pub(crate) fn tensor_and_context(problem: &Problem, plan: &Plan, found: &mut Vec<Rejection>) {
    let (tp, cp, seq_len) = (plan.layout.tp, plan.layout.cp, problem.workload().seq_len);
    let model = problem.model();
    for layer in &model.kinds {
        mixer(&layer.mixer, plan, found);
    }
    if tp > 1 && plan.sequence_parallel && !(seq_len / cp).is_multiple_of(tp) {
        push(found, Rejection::Sequence { seq_len: seq_len / cp, by: tp, why: "sequence parallelism over tp" });
    }
    if cp > 1 && !seq_len.is_multiple_of(2 * cp) {
        push(found, Rejection::Sequence { seq_len, by: 2 * cp, why: "twice cp, for the balanced causal split" });
    }
}

/// Checks that tensor and context parallelism divide a mixer.
fn mixer(mixer: &Mixer, plan: &Plan, found: &mut Vec<Rejection>) {
    let tp = plan.layout.tp;
    match mixer {
        Mixer::Attention(a) => {
            heads(tp, a.heads, found);
            if !a.kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(a.kv_heads) {
                push(found, Rejection::KvHeads { tp, kv_heads: a.kv_heads });
            }
            ulysses(plan, (a.kv_heads / tp).max(1), found);
        }
        Mixer::Mla(m) => {
            heads(tp, m.heads, found);
            ulysses(plan, m.heads / tp, found);
            if m.indexer.is_some() {
                chosen_keys(plan, m.heads, found);
            }
        }
        Mixer::Mamba(m) => heads(tp, m.heads, found),
        Mixer::DeltaNet(d) => heads(tp, d.key_heads, found),
        Mixer::KimiDelta(_) => whole_states(plan, found),
        Mixer::ShortConv(_) => whole_channels(plan, found),
        Mixer::AttentionMamba(both) => side_by_side(both, plan, found),
        Mixer::None => {}
    }
}

/// Checks the degrees of attention and Mamba side by side: each by its own rules. The one framework that splits such layers,
/// Megatron-Bridge, divides the groups of Mamba, too.
///
/// Source: [megatron-bridge] `models/falcon_h1/modeling_falconh1/falconh1_layer.py`; [megatron-lm] `mamba_mixer.py`:
/// groups divide by tp; [transformers] `configuration_falcon_h1.py`, which has no plan for tensor parallelism.
fn side_by_side(both: &AttentionMamba, plan: &Plan, found: &mut Vec<Rejection>) {
    for part in &both.mixers() {
        mixer(part, plan, found);
    }
    if !both.mamba.groups.is_multiple_of(plan.layout.tp) {
        push(found, Rejection::MambaGroups { tp: plan.layout.tp, groups: both.mamba.groups });
    }
}

fn heads(tp: u32, heads: u32, found: &mut Vec<Rejection>) {
    if !heads.is_multiple_of(tp) {
        push(found, Rejection::Heads { tp, heads });
    }
}

fn ulysses(plan: &Plan, heads: u32, found: &mut Vec<Rejection>) {
    let cp = plan.layout.cp;
    if cp > 1 && plan.cp_kind == CpKind::AllToAll && !heads.is_multiple_of(cp) {
        push(found, Rejection::UlyssesHeads { cp, heads });
    }
}

/// Checks that ranks share neither the channels nor the sequences of a short convolution: no framework splits them.
///
/// Source: [transformers] `configuration_lfm2.py`, which has no plan for tensor parallelism; a rank's part of a
/// sequence would need the tokens before it.
fn whole_channels(plan: &Plan, found: &mut Vec<Rejection>) {
    if plan.layout.tp > 1 {
        push(found, Rejection::Combination("tp over 1: no framework splits gated short convolutions"));
    }
    if plan.layout.cp > 1 {
        push(found, Rejection::Combination("cp over 1: no framework shares the sequences of gated short convolutions"));
    }
}

/// Checks that ranks share neither the heads nor the sequences of Kimi Delta Attention.
///
/// Source: [transformers] `configuration_kimi_linear.py`, whose plan for tensor parallelism has MLPs and experts alone;
/// [flash-linear-attention] `fla/ops/cp/`: ranks that share a sequence exchange states of chunks.
fn whole_states(plan: &Plan, found: &mut Vec<Rejection>) {
    if plan.layout.tp > 1 {
        push(found, Rejection::Combination("tp over 1: no class of Kimi Linear splits Kimi Delta Attention"));
    }
    if plan.layout.cp > 1 {
        let why = "cp over 1: the states of Kimi Delta Attention that ranks would exchange have no price";
        push(found, Rejection::Combination(why));
    }
}

/// Checks that fused kernels run attention over the keys that an indexer chooses: on whole sequences, and of heads that
/// fill a block of 64 or divide it.
///
/// Source: [megatron-lm] `dsa_cudnn_kernels.py`, `run_fused_dsa_attention` and `_flash_mla_head_padding`;
/// `_indexer_topk_from_score_chunks` scores unpacked sequences that ranks share one head at a time, in fp32.
fn chosen_keys(plan: &Plan, heads: u32, found: &mut Vec<Rejection>) {
    let Layout { tp, cp, .. } = plan.layout;
    if cp > 1 {
        push(found, Rejection::SharedSequence { cp });
    }
    let of_rank = heads / tp;
    if heads.is_multiple_of(tp) && !of_rank.is_multiple_of(HEAD_BLOCK) && !HEAD_BLOCK.is_multiple_of(of_rank.max(1)) {
        push(found, Rejection::HeadBlock { heads: of_rank, block: HEAD_BLOCK });
    }
}

/// Heads of queries that a kernel of sparse attention computes together.
const HEAD_BLOCK: u32 = 64;

/// Rejection of a micro-batch whose index scores exceed those that one fused kernel computes.
pub(crate) fn index_scores(problem: &Problem, micro_batch: u32) -> Option<Rejection> {
    problem.model().indexer()?;
    let (needed, most) = (IndexScores::of(micro_batch, problem.workload().seq_len), IndexScores::MOST);
    (needed > most).then_some(Rejection::IndexScores { micro_batch, needed, most })
}

fn push(found: &mut Vec<Rejection>, rejection: Rejection) {
    if !found.contains(&rejection) {
        found.push(rejection);
    }
}

/// Checks that intermediate sizes divide by their tensor-parallel degree.
pub fn ffn_widths(costs: &Costs, plan: &Plan, found: &mut Vec<Rejection>) {
    let tp = plan.layout.tp;
    for width in costs.ffn_widths() {
        if !width.is_multiple_of(tp) {
            push(found, Rejection::FfnWidth { tp, width });
        }
    }
}

/// Checks the expert grid, which reuses the ranks of one stage, and that the scale-up domains have room for the groups.
///
/// Source: specification §0.2; [megatron-lm]: `--expert-model-parallel-size` divides the experts, and sequence parallelism is
/// on where experts meet tensor parallelism.
pub fn experts(problem: &Problem, plan: &Plan, found: &mut Vec<Rejection>) {
    let Layout { tp, cp, dp, ep, etp, .. } = plan.layout;
    let (model, cluster) = (problem.model(), problem.cluster());
    if let Some(TooFewDomains { filled, needed, had }) = TooFewDomains::of(plan, cluster) {
        found.push(Rejection::Domains { filled, domain: cluster.scale_up.gpus, needed, had });
    }
    if !model.is_moe() {
        if ep > 1 {
            found.push(Rejection::Dense { what: "ep" });
        }
        if etp > 1 {
            found.push(Rejection::Dense { what: "etp" });
        }
        return;
    }
    for moe in model.kinds.iter().filter_map(|layer| layer.moe()) {
        if !moe.experts.is_multiple_of(ep) {
            push(found, Rejection::Experts { ep, experts: moe.experts });
        }
        if !moe.intermediate.is_multiple_of(etp) {
            push(found, Rejection::FfnWidth { tp: etp, width: moe.intermediate });
        }
    }
    let ranks = tp * cp * dp;
    if !u64::from(ranks).is_multiple_of(u64::from(ep) * u64::from(etp)) {
        found.push(Rejection::ExpertGrid { ep, etp, ranks });
    }
    if etp > tp {
        found.push(Rejection::Combination("etp over tp: experts would be split finer than attention"));
    }
    if tp > 1 && !plan.sequence_parallel {
        found.push(Rejection::Combination("experts under tp > 1 need sequence parallelism"));
    }
}

/// Checks schedule, split and number of micro-batches of the pipeline.
///
/// Source: [megatron-lm] `schedules.py`: interleaving needs whole groups of pp micro-batches; [zero-bubble] and [dualpipe]:
/// enough micro-batches to fill both directions, as many from one end as from the other. Embedding and loss may each stand for a
/// layer, so that 126 layers lie on 16 × 8 chunks (§4.3).
pub fn pipeline(problem: &Problem, plan: &Plan, found: &mut Vec<Rejection>) {
    let (pp, schedule) = (plan.layout.pp, plan.schedule);
    let virtual_stages = schedule.virtual_stages();
    let chunks = pp * virtual_stages;
    let spare = if plan.split == LayerSplit::Even && chunks > 2 { 2 } else { 0 };
    let layers = problem.model().layers() + spare;
    if plan.split.is_spelled_out() {
        found.extend(
            spelled_out(problem, plan).err().map(|why| Rejection::Split { split: plan.split.to_string(), why }),
        );
    } else if chunks > layers {
        found.push(Rejection::TooFewLayers { pp, virtual_stages, chunks, layers });
    }
    if let Some(why) = keys_of_another_stage(problem, plan) {
        push(found, Rejection::Split { split: plan.split.to_string(), why });
    }
    let refuse = |why| Rejection::Schedule { schedule, pp, why };
    let micro_batches = plan.micro_batches(problem.workload().global_batch);
    let chunked = schedule.takes_chunks();
    if chunked && virtual_stages < 2 {
        found.push(refuse("it needs at least two chunks per rank"));
    }
    if (chunked || schedule.splits_backward() || schedule == Schedule::DualPipeV) && pp == 1 {
        found.push(refuse("it needs at least two ranks"));
    }
    if schedule == Schedule::DualPipe && !pp.is_multiple_of(2) {
        found.push(refuse("it needs an even pp"));
    }
    if schedule.is_bidirectional() && micro_batches < 2.0 * f64::from(pp) {
        found.push(refuse("it needs at least 2·pp micro-batches"));
    }
    if schedule == Schedule::DualPipe && micro_batches.fract() == 0.0 && !(micro_batches as u32).is_multiple_of(2) {
        found.push(refuse("it needs an even number of micro-batches, half from each end"));
    }
    let whole_groups = micro_batches.fract() != 0.0 || (micro_batches as u32).is_multiple_of(pp);
    if matches!(schedule, Schedule::Interleaved { .. }) && !whole_groups {
        found.push(Rejection::InterleavedBatch { micro_batches: micro_batches as u32, pp });
    }
    let passes = plan.pipeline().passes(micro_batches.ceil() as u32);
    if pp > 1 && passes > MOST_PASSES {
        found.push(Rejection::TooManyPasses { micro_batches: micro_batches.ceil() as u32, chunks, passes });
    }
}

/// Reason why a chunk would need the keys that a layer of another chunk chose; none where each chunk chooses its own.
///
/// Source: [megatron-lm] `experimental_attention_variant_module_specs.py`, `_validate_dsa_index_share_pipeline_split`.
fn keys_of_another_stage(problem: &Problem, plan: &Plan) -> Option<String> {
    let (model, pp) = (problem.model(), plan.layout.pp);
    let chunks = plan.pipeline().chunks();
    let layers = model.layers();
    if chunks == 1 || !model.shares_any_keys() {
        return None;
    }
    if plan.split == LayerSplit::CostBalanced {
        return Some("layers share chosen keys, and costs would part them: name the layers of each stage".to_owned());
    }
    let counts = split::layers_of_chunks(&plan.split, layers, pp, chunks.min(layers), 0.0);
    let starts = counts.iter().scan(0, |next, layers| Some(std::mem::replace(next, *next + *layers)));
    let parted = starts.zip(&counts).find(|(start, count)| **count > 0 && model.shares_keys(*start as usize));
    parted.map(|(start, _)| {
        let layer = start + 1;
        format!("layer {layer} takes the keys that a layer of the stage before chose, and stages exchange none")
    })
}

/// Checks that a split that names layers fits the model and the pipeline.
fn spelled_out(problem: &Problem, plan: &Plan) -> Result<(), String> {
    let (model, pp, v) = (problem.model(), plan.layout.pp, plan.schedule.virtual_stages());
    let (layers, chunks) = (model.layers(), pp * v);
    match &plan.split {
        LayerSplit::Even | LayerSplit::CostBalanced => Ok(()),
        LayerSplit::Ends { .. } if plan.schedule.folds() => {
            Err(format!("{} folds its stages into a V: spell out all {chunks}", plan.schedule.name()))
        }
        LayerSplit::Ends { first, last } => split::fits_ends(*first, *last, layers, pp, chunks),
        LayerSplit::Stages(list) => {
            let (stages, named) = (list.layers().len(), list.layers().iter().map(|n| u64::from(*n)).sum::<u64>());
            if stages != chunks as usize {
                Err(format!("it has {stages} stages; pp={pp} with {v} chunks per rank has {chunks}"))
            } else if named != u64::from(layers) {
                Err(format!("it places {named} layers; the model has {layers}"))
            } else if list.mtp() != model.mtp_depth {
                let (has, held) = (model.mtp_depth, list.mtp());
                Err(format!("it places {held} multi-token-prediction layers (`m`); the model has {has}"))
            } else {
                Ok(())
            }
        }
    }
}

/// First pipeline rule that a plan breaks.
pub(crate) fn first_of_pipeline(problem: &Problem, plan: &Plan) -> Option<Rejection> {
    let mut found = Vec::new();
    pipeline(problem, plan, &mut found);
    found.into_iter().next()
}

/// Checks that the global batch divides by micro-batch · dp. Source: [megatron-lm] `arguments.py`.
pub fn batch(problem: &Problem, plan: &Plan, found: &mut Vec<Rejection>) {
    let global_batch = problem.workload().global_batch;
    let (dp, micro_batch) = (plan.layout.dp, plan.micro_batch);
    if !u64::from(global_batch).is_multiple_of(u64::from(dp) * u64::from(micro_batch)) {
        found.push(Rejection::Batch { global_batch, dp, micro_batch });
    }
}

/// Rejection of expert groups wider than tp·cp under `tp-cp-ep-pp-dp`, which would span a pipeline.
///
/// Source: [megatron-lm] `parallel_state.py`: pipeline groups of experts are those of the other layers.
pub(crate) fn spans_pipeline(plan: &Plan) -> Option<Rejection> {
    let Layout { tp, cp, pp, dp, ep, etp } = plan.layout;
    let spans = plan.order == RankOrder::DataOutermost && pp > 1 && dp > 1 && ep * etp > tp * cp;
    spans.then_some(Rejection::Combination("expert groups wider than tp·cp would span a pipeline in this rank order"))
}

/// Checks ZeRO stage, shard group, offload and their combinations.
///
/// Source: [torchtitan] (FSDP with a pipeline), [deepspeed] (ZeRO 2 and 3 do not combine with its pipeline engine; ZeRO 2
/// with a pipeline is refused here too), [llama3-infrastructure] §3.3.2 (an in-house framework shards gradients with a
/// pipeline).
pub fn sharding(problem: &Problem, plan: &Plan, found: &mut Vec<Rejection>) {
    let can_reduce = problem.stack().family == Family::Internal;
    if plan.zero == ZeroStage::Two && plan.layout.pp > 1 && !can_reduce {
        found.push(Rejection::Combination("ZeRO 2 would reduce gradients after every micro-batch of the pipeline"));
    }
    if let Some(group) = plan.shard_group
        && (group == 0 || !plan.layout.dense_replicas().is_multiple_of(group) || plan.zero == ZeroStage::Zero)
    {
        found.push(Rejection::Combination("a shard group must divide dp·cp, and needs ZeRO 1 or more"));
    }
    found.extend(spans_pipeline(plan));
    if plan.sequence_parallel && plan.layout.tp == 1 {
        found.push(Rejection::Combination("sequence parallelism needs tp > 1"));
    }
    let share = |x: f64| (0.0..=1.0).contains(&x);
    if !share(plan.offload.optimizer) || !share(plan.offload.activations) {
        found.push(Rejection::Combination("an offloaded share is between 0 and 1"));
    }
    if let Recompute::FirstLayers(0) = plan.recompute {
        found.push(Rejection::Combination("recomputing the first 0 layers recomputes none"));
    }
}
