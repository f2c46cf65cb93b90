//! Software of a row: the nearest stack of the catalogue, with the settings that the row states.

use super::cell::{Cells, flag, text};
use super::map_attention;
use super::map_documents::documents;
use super::refusal::Refusal;
use super::release::{Release, fuses, is_405b};
use super::row::Row;
use meshwright_engine::gpu::{AttentionKernel, Format, Gpu};
use meshwright_engine::model::Model;
use meshwright_engine::plan::{Plan, ZeroStage};
use meshwright_engine::stack::{AdapterTraffic, Dispatcher, Family, GraphScope, MemoryUse, Overlap, Stack, TpGather};
use meshwright_engine::units::Bytes;
use meshwright_engine::workload::{self, Adaptation, Half, Optimizer, Recipe, Workload};
use meshwright_planner::catalog::{CachedCatalog, defaults};

/// Extra memory passes of dynamic scaling by row.
const ROWWISE_PASSES: f64 = 2.0;
/// Bytes of an fp16 gradient in memory under Megatron-DeepSpeed; the bf16 value is the catalogue's.
const DEEPSPEED_FP16_GRADIENT: f64 = 4.0;
/// Words of `optimizer_states` for torch's Adam on a 16-bit model.
const IN_HALF: &str = "in parameter dtype (bf16)";
/// Operators of PEFT's adapters on a 16-bit model without autocast, as specification §2.11 counts them: the input is
/// cast to fp32 and the sum back (2+4 and 4+2 bytes), all between is in fp32. Source: [peft].
const FP32_ADAPTERS: AdapterTraffic = AdapterTraffic {
    input_forward: 19.0,
    input_backward: 29.0,
    output_forward: 28.0,
    output_backward: 28.0,
    kernels_forward: 7.0,
    kernels_backward: 10.0,
};
/// Year of PyTorch 2.1, in its October.
const TORCH_2_1: f64 = 2023.0;
/// Year of the first runs with Transformers 5.
const TRANSFORMERS_5: f64 = 2026.0;
/// Words of `notes` for checkpoints whose second forward does not stop at the last tensor that backward needs.
const WITHOUT_EARLY_STOP: &str = "no early stop";
/// Year of torchtitan's release 0.3.
const TORCHTITAN_0_3: f64 = 2026.0;
/// Chunks of torchtitan's loss, the default of its wrapper. Source: [torchtitan] `components/loss.py`.
const LOSS_CHUNKS: u32 = 8;
/// Hidden share of tensor-parallel collectives under async TP.
const ASYNC_TP: f64 = 0.5;

/// Whether the device is older than the H100 generation.
fn is_old(row: &Row) -> bool {
    ["A100", "A800", "V100"].iter().any(|old| text(row.gpu.as_ref()).starts_with(old))
}

/// Number format of most GEMMs.
pub(super) fn format(row: &Row, gpu: &Gpu) -> Result<Format, Refusal> {
    let detail = text(row.dtype_detail.as_ref());
    let has = |format: Format| gpu.gemm.contains_key(&format);
    let format = match text(row.dtype.as_ref()) {
        "" | "bf16" | "fp16" => Format::Bf16,
        "fp8" if detail.contains("mxfp8") && has(Format::Mxfp8) => Format::Mxfp8,
        "fp8" if detail.contains("block") && !detail.contains("32") && has(Format::Fp8Block) => Format::Fp8Block,
        "fp8" => Format::Fp8,
        "nvfp4" => Format::Nvfp4,
        other => return Refusal::unsupported(format!("number format unknown: {other}")),
    };
    if has(format) { Ok(format) } else { Refusal::unsupported(format!("{} has no {format} GEMMs", gpu.name)) }
}

/// Year from which PyTorch asks cuDNN for attention first. Source: [pytorch-sdpa].
const CUDNN_FIRST: f64 = 2026.0;

/// Stack of a row; also sets the plan values that the stack decides.
pub(super) fn stack(
    row: &Row,
    cells: &Cells,
    release: Release,
    gpu: &Gpu,
    plan: &mut Plan,
    catalog: &CachedCatalog,
) -> Result<Stack, Refusal> {
    let name = match release {
        // On AMD's GPUs Transformer Engine has none of its kernels for CUDA, whatever the year.
        Release::Core25 | Release::Core26 => defaults::stack_of(release.stack(), Family::Megatron, gpu),
        _ => release.stack(),
    };
    let mut stack = catalog.stack(name).map_err(Refusal::Unsupported)?;
    let within_node = plan.layout.ep.saturating_mul(plan.layout.etp) <= cells.gpus_per_node;
    let (notes, detail) = (text(row.notes.as_ref()), text(row.dtype_detail.as_ref()));
    let old = is_old(row);
    match release {
        Release::MegatronDeepspeed | Release::MegatronDeepspeed2023 | Release::Deepspeed2022 => {
            if text(row.dtype.as_ref()) == "fp16" {
                stack.gradient_bytes = Some(DEEPSPEED_FP16_GRADIENT);
            }
        }
        Release::Foundry => {
            if old {
                stack.attention = AttentionKernel::Fa1;
            }
            stack.reduce_bytes = if detail == "bf16" { 2.0 } else { 4.0 };
        }
        Release::Nanotron => stack.quirks.sync_every_micro_batch = true,
        Release::Torchtitan
        | Release::Torchtitan2025
        | Release::Torchtitan02
        | Release::Torchtitan2026
        | Release::TorchtitanEager => apply_torchtitan(row, release, catalog, &mut stack)?,
        // Paxml has fused attention from Transformer Engine alone.
        Release::Jax if notes.starts_with("no Transformer Engine") => stack.attention = AttentionKernel::Unfused,
        Release::Jax | Release::MegatronWithoutOverlap if old => stack.attention = AttentionKernel::Fa2,
        Release::Automodel if notes.contains("DeepEP") => stack.dispatcher = Dispatcher::DeepEp,
        Release::MegatronLm2023 | Release::MegatronLm2024 => {
            apply_stated_settings(row, old, within_node, &mut stack);
            // `--tp-comm-overlap` and `--overlap-grad-reduce` are off unless given ([megatron-lm] arguments.py).
            if text(row.overlap.as_ref()).is_empty() {
                (stack.overlap.tp, stack.overlap.dp) = (0.0, false);
            }
        }
        Release::Core24 | Release::Core25 | Release::Core26 => apply_stated_settings(row, old, within_node, &mut stack),
        // PyTorch asks cuDNN first on Hopper and Blackwell from release 2.10 on ([pytorch-sdpa]).
        Release::FsdpEager | Release::FsdpCompiled
            if row.year >= Some(CUDNN_FIRST) && gpu.attention.contains_key(&AttentionKernel::Cudnn) =>
        {
            stack.attention = AttentionKernel::Cudnn;
        }
        Release::Jax
        | Release::MegatronWithoutOverlap
        | Release::GaudiMegatronDeepspeed
        | Release::Neuron
        | Release::Automodel
        | Release::FsdpEager
        | Release::FsdpCompiled
        | Release::Deepspeed2024
        | Release::Megatron2021
        | Release::Megatron2022
        | Release::Internevo
        | Release::Meta => {}
    }
    if row.zero_stage.is_none_or(f64::is_nan)
        && plan.zero == ZeroStage::Zero
        && let Some(stage) = stack.default_zero.and_then(|stage| ZeroStage::try_from(stage).ok())
    {
        plan.zero = stage;
    }
    let framework = text(row.framework.as_ref());
    if framework == "NeMo Framework" && text(row.gpu.as_ref()) == "A100-80GB" {
        stack.attention = AttentionKernel::Unfused;
        stack.scatter_gather = true;
        stack.overlap.tp = 0.0;
    }
    if release == Release::FsdpEager && is_half_without_autocast(row) {
        stack.adapters = Some(FP32_ADAPTERS);
    }
    // Tensor parallelism that is not PyTorch's own has plain tensors; DTensor's comes with FSDP2.
    if matches!(release, Release::FsdpEager | Release::FsdpCompiled) && !framework.contains("FSDP2") {
        stack.launches.sharded_layer = 0.0;
    }
    // Graphs of plain PyTorch are captured by hand, of forward and backward as a whole ([torch-cuda-graphs]).
    if let (Release::FsdpEager | Release::FsdpCompiled, Some((graphs, experts))) = (release, stated_graphs(row)) {
        (stack.cuda_graphs, stack.graphed_experts) = (graphs, experts);
        stack.memory.graph_pools = Bytes::ZERO;
    }
    stack.generic = release.is_generic(row);
    apply_stated_reduction(row, release, &mut stack);
    stack.checkpoint_early_stop &= stops_early(row, release);
    if let (false, Some(one_copy)) = (release.is_core(), stated_copies(row)) {
        stack.dispatcher = dispatcher(row, one_copy, within_node);
    }
    map_attention::apply(row, &mut stack);
    apply_fused_kernels(row, &mut stack);
    debug_assert!(stack.check().is_ok(), "{} on {}", stack.name, gpu.name);
    plan.dispatcher = stack.dispatcher;
    Ok(stack)
}

/// Applies the settings that rows of torchtitan state.
fn apply_torchtitan(row: &Row, release: Release, catalog: &CachedCatalog, stack: &mut Stack) -> Result<(), Refusal> {
    let (notes, detail) = (text(row.notes.as_ref()), text(row.dtype_detail.as_ref()));
    stack.overlap.tp = if text(row.overlap.as_ref()).contains("async TP") { ASYNC_TP } else { 0.0 };
    // torchtitan's configuration of 405B gathers in 8 bits, those of its other models do not ([torchtitan] train_configs).
    stack.fp8_all_gather = detail.contains("fp8 all-gather") || is_405b(row);
    // Chunks are the default since release 0.3, which is after all rows that do not name them.
    stack.memory.loss_chunks = if notes.contains("loss chunks") { LOSS_CHUNKS } else { 1 };
    if detail.contains("rowwise") {
        stack.cast_passes = ROWWISE_PASSES;
        stack.tp_gather = TpGather::Bf16;
    }
    // Release 0.3 captures forward, loss and backward, compiled or not ([torchtitan] `distributed/cudagraph.py`).
    if let Some((graphs, experts)) = stated_graphs(row) {
        (stack.cuda_graphs, stack.graphed_experts) = (graphs, experts);
        stack.memory.graph_pools = Bytes::ZERO;
    }
    // Its experts' tokens are permuted, and kept by checkpoints, by code that nobody compiles.
    if release == Release::TorchtitanEager && row.year >= Some(TORCHTITAN_0_3) {
        let later = catalog.stack(Release::Torchtitan2026.stack()).map_err(Refusal::Unsupported)?;
        stack.permute_traffic = later.permute_traffic;
        stack.sorts_received_tokens = later.sorts_received_tokens;
        stack.memory.keeps_exchanged_tokens = later.memory.keeps_exchanged_tokens;
    }
    Ok(())
}

/// Whether CUDA graphs replay the layers and, with them, the experts, by what a row states.
fn stated_graphs(row: &Row) -> Option<(bool, bool)> {
    match text(row.cuda_graph.as_ref()) {
        "" => None,
        "none" => Some((false, false)),
        graphs => Some((true, ["full_iteration", "local:full_step"].contains(&graphs))),
    }
}

/// Modules that Transformer Engine's graphs hold, by what a row states.
fn stated_scope(row: &Row) -> GraphScope {
    let modules = text(row.cuda_graph.as_ref()).strip_prefix("transformer_engine:").unwrap_or_default();
    GraphScope::of_modules(&modules.split('+').collect::<Vec<_>>())
}

/// Applies the software settings that rows of the Megatron-Core family state.
fn apply_stated_settings(row: &Row, old: bool, within_node: bool, stack: &mut Stack) {
    let (notes, overlap) = (text(row.notes.as_ref()), text(row.overlap.as_ref()));
    let default_tp = stack.overlap.tp;
    if old {
        stack.attention = AttentionKernel::Fa2;
        stack.overlap.tp = 0.0;
    }
    let noted = |parts: &[&str]| parts.iter().any(|part| notes.contains(part));
    let drops = stack.drops_by_all_to_all && drops_tokens(row);
    let framework = text(row.framework.as_ref());
    let is_recipe = ["NeMo", "Megatron-Bridge"].iter().any(|name| framework.contains(name));
    let assumed = !drops && ((is_recipe && text(row.gpu.as_ref()) != "H100") || noted(&["deepep", "hybridep"]));
    stack.dispatcher = dispatcher(row, stated_copies(row).unwrap_or(assumed), within_node);
    (stack.cuda_graphs, stack.graphed_experts) = stated_graphs(row).unwrap_or_else(|| {
        (noted(&["cuda graphs: full", "cuda graphs: transformer", "CUDA graph"]), noted(&["cuda graphs: full"]))
    });
    stack.graph_scope = stated_scope(row);
    stack.memory.graph_pools = Bytes::ZERO; // no run states a peak with graphs, and the intervals of the others are without pools
    if text(row.fused_kernels.as_ref()).contains("fused_grouped_mlp") {
        stack.expert_bias = 0.0;
        stack.expert_casts = None;
        stack.expert_streams = stack.expert_streams.map(|_| 0.0);
    }
    stack.fp8_attention = noted(&["fp8 attention"]);
    if overlap.contains("EP a2a overlap") || text(row.ep_overlap.as_ref()).starts_with("true") {
        stack.overlap.ep = Overlap::share_beside_micro_batches(stack.graphed_experts);
    }
    if overlap.starts_with("none") {
        stack.overlap.tp = 0.0;
        stack.overlap.dp = false;
        stack.overlap.pp = false;
    } else if !overlap.is_empty() && overlap != "EP a2a overlap" {
        stack.overlap.tp = if overlap.contains("tp-comm") { default_tp } else { 0.0 };
        stack.overlap.dp |= overlap.contains("grad-reduce");
    }
}

/// Applies the format in which a row says that gradients are reduced. Megatron-Core's buffer holds them in it ([megatron-lm]
/// `grad_reduce_in_fp32`); PyTorch's FSDP returns their shards to the format of the parameters (`MixedPrecisionPolicy`).
fn apply_stated_reduction(row: &Row, release: Release, stack: &mut Stack) {
    let states = text(row.optimizer_states.as_ref());
    let stated = [("grad_reduce=bf16", 2.0), ("grad_reduce=fp32", 4.0)];
    if let Some((_, bytes)) = stated.into_iter().find(|(words, _)| states.contains(words)) {
        if !release.is_core() {
            stack.gradient_bytes.get_or_insert(stack.reduce_bytes);
        }
        stack.reduce_bytes = bytes;
    }
}

/// Whether a checkpoint's second forward may stop at the last tensor that backward needs. PyTorch stops it from release 2.1 on
/// ([torch-checkpoint]), unless it re-enters autograd as under the trainer of Transformers up to release 4 ([transformers]
/// `gradient_checkpointing_enable`); Paddle's ([paddle-recompute]) and code adapted from an older PyTorch run it to its end.
fn stops_early(row: &Row, release: Release) -> bool {
    let framework = text(row.framework.as_ref());
    let reenters = framework.contains("HF Trainer") && row.year < Some(TRANSFORMERS_5);
    let paddle = framework.contains("Paddle");
    let plain = matches!(release, Release::FsdpEager | Release::FsdpCompiled);
    let old = plain && row.year.is_some_and(|year| year < TORCH_2_1);
    !(reenters || paddle || old || text(row.notes.as_ref()).contains(WITHOUT_EARLY_STOP))
}

/// Whether one copy goes to each rank, by the dispatcher that a row states, if it does.
fn stated_copies(row: &Row) -> Option<bool> {
    match text(row.dispatcher.as_ref()) {
        "" => None,
        dispatcher => Some(dispatcher == "deepep" || dispatcher == "hybridep"),
    }
}

/// Dispatcher of one copy a rank or of one an expert, as the row's network allows; `within_node` where a node holds the ranks of all experts.
fn dispatcher(row: &Row, one_copy: bool, within_node: bool) -> Dispatcher {
    // DeepEP's kernels send from the GPU (IBGDA), which EFA cannot: a processor sends for them, no faster than NCCL's all-to-all.
    // Within a node they use NVLink alone ([deepep]).
    let proxied = text(row.interconnect_inter.as_ref()).contains("EFA") && !within_node;
    if one_copy && !proxied { Dispatcher::DeepEp } else { Dispatcher::AllToAll }
}

/// Whether a row trains a 16-bit model by torch's Adam, without autocast.
fn is_half_without_autocast(row: &Row) -> bool {
    text(row.optimizer_states.as_ref()).contains(IN_HALF) && !text(row.notes.as_ref()).contains("autocast")
}

/// Applies the kernels that a row of plain PyTorch has beside PyTorch's own.
fn apply_fused_kernels(row: &Row, stack: &mut Stack) {
    if fuses(row, &["norm_fusion"]) {
        stack.fused_norms = true;
        stack.memory.unfused_norms = false;
        stack.eager_operators &= !fuses(row, &["rope_fusion"]);
    }
    let by_chunk = fuses(row, &["ce_liger"]);
    stack.fused_cross_entropy |= by_chunk || fuses(row, &["ce_triton"]);
    if let (true, Some(hidden), Some(vocab)) = (by_chunk, row.hidden, row.vocab) {
        stack.logit_bytes = Some(MemoryUse::chunked_logit_bytes(hidden, vocab));
    }
}

/// Whether experts take a fixed number of tokens and drop the others.
fn drops_tokens(row: &Row) -> bool {
    match text(row.dispatcher.as_ref()) {
        "" => text(row.notes.as_ref()).contains("tokendrop"),
        dispatcher => dispatcher.ends_with("+drop"),
    }
}

/// Workload of a row: batch, format, bytes per parameter and routing.
pub(super) fn workload(
    row: &Row,
    cells: &Cells,
    release: Release,
    model: &Model,
    stack: &Stack,
    format: Format,
) -> Result<Workload, Refusal> {
    let (Some(global_batch), Some(seq_len)) = (cells.global_batch, cells.seq_len) else {
        return Refusal::unsupported("batch unknown");
    };
    let notes = text(row.notes.as_ref());
    let drops_tokens = drops_tokens(row);
    let uneven = model.is_moe()
        && release.is_core()
        && release != Release::MegatronWithoutOverlap
        && !drops_tokens
        && !notes.contains("balanced");
    let gradient = stack.gradient_bytes.unwrap_or(stack.reduce_bytes);
    let usual = || workload::recipe(stack.usual_recipe(format)).is_some_and(|usual| usual.weight < 2.0);
    let narrow = match text(row.fp8_params.as_ref()) {
        "true" => format != Format::Bf16,
        "false" => false,
        _ => usual(),
    };
    Ok(Workload {
        global_batch,
        seq_len,
        document_len: documents(row),
        format,
        half: Half::default(),
        recipe: recipe(text(row.optimizer_states.as_ref()), gradient, narrow),
        optimizer: optimizer(text(row.optimizer_states.as_ref())),
        adaptation: match text(row.purpose.as_ref()) {
            "lora" if notes.contains("on the attention projections") => Adaptation::LoraAttention,
            "lora" => Adaptation::Lora,
            _ => Adaptation::Full,
        },
        imbalance: if uneven { stack.expert_imbalance } else { 1.0 },
        drops_tokens,
    })
}

/// Update rule, by the name that the states begin with.
fn optimizer(states: &str) -> Optimizer {
    if states.to_lowercase().split([';', ' ']).any(|word| word.ends_with("muon")) {
        Optimizer::Muon
    } else {
        Optimizer::Elementwise
    }
}

/// Bytes per parameter, from formats such as `m=bf16 v=bf16 master=fp32 main_grad=bf16`; fp32 where nothing is stated.
/// `narrow`: the weights are held in 8 bits.
fn recipe(states: &str, gradient: f64, narrow: bool) -> Recipe {
    let in_half = |name: &str| states.contains(&format!("{name}=bf16"));
    let all_in_half = states.contains(IN_HALF);
    let moment = |name: &str| if in_half(name) || all_in_half { 2.0 } else { 4.0 };
    let moments = match optimizer(states) {
        Optimizer::Muon => moment("m"),
        Optimizer::Elementwise => moment("m") + moment("v"),
    };
    Recipe {
        weight: if narrow { 1.0 } else { 2.0 },
        gradient: if in_half("main_grad") || all_in_half { 2.0 } else { gradient },
        master: if states.contains("no master copy") { 0.0 } else { 4.0 },
        state: moments,
    }
}

/// Whether sequence parallelism is enabled.
pub(super) fn sequence_parallel(row: &Row, cells: &Cells) -> bool {
    let jax = Release::of(row) == Release::Jax; // `activation_embed` is split over the tensor axis ([maxtext] base.yml)
    cells.tp > 1 && (jax || flag(row.sp).unwrap_or(cells.year >= 2023))
}
