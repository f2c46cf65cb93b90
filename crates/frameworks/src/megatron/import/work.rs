//! Batch, number format and bytes per parameter; and properties of the software that the arguments state.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`.

use super::arguments::Arguments;
use crate::import::finding::Finding;
use crate::import::imported::{ImportedWorkload, NamedKernel, StackSettings};
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::plan::{Plan, ZeroStage};
use meshwright_engine::stack::{AmaxReduction, GraphScope, Overlap, Stack};
use meshwright_engine::workload::{Adaptation, Half, Optimizer, Recipe};

/// Workload of one step.
pub fn work(list: &mut Arguments, plan: &Plan, world: Option<u32>) -> ImportedWorkload {
    let seq_len = list.size("--seq-length").or_else(|| list.size("--encoder-seq-length"));
    if seq_len.is_none() && list.place("--seq-length").is_none() {
        list.findings.push(Finding::warning("missing-flag", "no --seq-length").expected("it is needed to train"));
    }
    let given = list.size("--global-batch-size");
    if given.is_some() && list.has("--step-batch-size-schedule") {
        let message = "--step-batch-size-schedule and --global-batch-size are given together";
        list.report("--step-batch-size-schedule", Finding::error("contradiction", message).expected("one of them"));
    }
    if list.has("--rampup-batch-size") {
        let message = "--rampup-batch-size: the batch at its end is priced";
        list.report("--rampup-batch-size", Finding::note("not-modelled", message));
    }
    let usual = world.map(|_| plan.micro_batch.saturating_mul(plan.layout.dp));
    let format = format(list);
    let optimizer = list.word("--optimizer").unwrap_or_else(|| "adam".into());
    ImportedWorkload {
        global_batch: given.or(usual),
        seq_len,
        document_len: None,
        format,
        half: if list.has("--fp16") && !list.has("--bf16") { Half::Fp16 } else { Half::Bf16 },
        recipe: recipe(list, &optimizer),
        optimizer: if optimizer.contains("muon") { Optimizer::Muon } else { Optimizer::Elementwise },
        drops_tokens: list.has("--moe-expert-capacity-factor"),
        adaptation: Adaptation::Full,
    }
}

/// Whether GEMMs are in FP8.
fn has_fp8_gemms(list: &mut Arguments) -> bool {
    list.word("--fp8-format").is_some() || list.has("--fp8-hybrid") || list.has("--fp8-e4m3")
}

/// Whether gradients are reduced in 16 bits: of bf16 where a flag says so or main gradients are not of 32 bits, of fp16 unless a flag
/// forbids it.
///
/// Source: [megatron-lm] `megatron/training/arguments.py` (`accumulate_allreduce_grads_in_fp32`).
fn reduces_in_half(list: &mut Arguments) -> bool {
    let narrow = list.word("--main-grads-dtype").is_some_and(|name| name == "bf16" || name == "fp16");
    list.has("--grad-reduce-in-bf16")
        || narrow
        || (list.has("--fp16") && !list.has("--accumulate-allreduce-grads-in-fp32"))
}

/// Number format of most GEMMs, with findings on formats that exclude one another or are priced as another.
fn format(list: &mut Arguments) -> Format {
    let (bf16, fp16) = (list.has("--bf16"), list.has("--fp16"));
    if bf16 && fp16 {
        let finding = Finding::error("contradiction", "--bf16 and --fp16 are given together");
        list.report("--fp16", finding.expected("one of them"));
    }
    let fp8 = has_fp8_gemms(list);
    let fp4 = list.word("--fp4-format").is_some();
    if fp8 && fp4 {
        let finding = Finding::error("contradiction", "--fp8-format and --fp4-format are given together");
        list.report("--fp4-format", finding.expected("one of them"));
    }
    let recipe = list.word("--fp8-recipe");
    // Forks on AMD's GPUs have GEMMs in MXFP4; no rate of theirs is known here.
    let mxfp4 = list.word("--fp4-recipe").is_some_and(|recipe| recipe == "mxfp4");
    if fp4 && mxfp4 {
        let finding = Finding::warning("not-modelled", "GEMMs in MXFP4 are priced as MXFP8, which is slower");
        list.report("--fp4-recipe", finding.expected("read the step time as an upper bound"));
    }
    if !bf16 && !fp16 {
        let finding =
            Finding::warning("not-modelled", "neither --bf16 nor --fp16: Megatron trains in fp32, priced as bf16");
        list.findings.push(finding.expected("--bf16"));
    }
    match recipe.as_deref() {
        _ if fp4 && mxfp4 => Format::Mxfp8,
        _ if fp4 => Format::Nvfp4,
        _ if !fp8 => Format::Bf16,
        Some("mxfp8") => Format::Mxfp8,
        Some("blockwise") => Format::Fp8Block,
        Some(_) | None => Format::Fp8,
    }
}

/// Bytes of one element in the format that a flag names; `usual` where it names none.
fn element_bytes(list: &mut Arguments, flag: &str, usual: f64) -> f64 {
    match list.word(flag).as_deref() {
        Some("fp32") => 4.0,
        Some("bf16" | "fp16") => 2.0,
        Some("fp8") => 1.0,
        Some(_) | None => usual,
    }
}

/// Weights, main gradients, master weights and moments, in bytes per parameter.
fn recipe(list: &mut Arguments, optimizer: &str) -> Recipe {
    let reduced = if reduces_in_half(list) { 2.0 } else { 4.0 };
    let precise = list.has("--use-precision-aware-optimizer");
    let usual = element_bytes(list, "--main-grads-dtype", reduced);
    let gradient = element_bytes(list, "--megatron-fsdp-main-grads-dtype", usual);
    let master = element_bytes(list, "--main-params-dtype", 4.0);
    let (first, second) = (element_bytes(list, "--exp-avg-dtype", 4.0), element_bytes(list, "--exp-avg-sq-dtype", 4.0));
    let one_moment = optimizer.contains("muon") || optimizer == "sgd";
    let changed = element_bytes(list, "--main-grads-dtype", 4.0) < 4.0 || master < 4.0 || first < 4.0 || second < 4.0;
    if changed && !precise {
        let flags = ["--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"];
        let place = flags.iter().find_map(|flag| list.place(flag));
        let finding =
            Finding::error("contradiction", "narrower optimizer states without --use-precision-aware-optimizer");
        list.findings.push(finding.at_maybe(place.as_ref()).expected("add it, or remove them"));
    }
    Recipe {
        weight: if list.switch("--fp8-param-gather", false) { 1.0 } else { 2.0 },
        gradient,
        master,
        state: if one_moment { 4.0 } else { first + second },
    }
}

/// Ranks that agree on maxima of FP8 tensors: all of a stage under delayed scaling, which is the default recipe.
fn amax_reduction(list: &mut Arguments) -> Option<AmaxReduction> {
    if !has_fp8_gemms(list) {
        return None;
    }
    match list.word("--fp8-recipe").as_deref() {
        None | Some("delayed") => Some(AmaxReduction::All),
        Some("tensorwise") => Some(AmaxReduction::None),
        Some(_) => None,
    }
}

/// Software settings of the arguments that differ from the nearest stack of the catalogue.
///
/// Sharded gradients are never accumulated in the GEMM: Megatron-FSDP asserts that the fusion is off, and what it costs
/// is in the price of its runs. So its flag is no setting of theirs.
pub fn settings(list: &mut Arguments, stack: &Stack, plan: &Plan) -> StackSettings {
    let mut settings = StackSettings::default();
    let interleaved = plan.schedule.virtual_stages() > 1;
    let overlaps = list.has("--overlap-grad-reduce");
    let gathers = list.has("--overlap-param-gather");
    let sharded = plan.zero >= ZeroStage::Three;
    if plan.layout.dense_replicas() > 1 {
        settings.put("overlap.dp", overlaps || gathers || sharded, stack.overlap.dp);
    }
    let own = if stack.overlap.tp > 0.0 { stack.overlap.tp } else { MEASURED_TP_OVERLAP };
    let hidden = if list.has("--tp-comm-overlap") { own } else { 0.0 };
    if plan.layout.tp > 1 {
        settings.put("overlap.tp", hidden, stack.overlap.tp);
    }
    let p2p = interleaved && !list.has("--no-overlap-p2p-communication");
    settings.put("overlap.pp", p2p, stack.overlap.pp && interleaved);
    if let Some(reduction) = amax_reduction(list) {
        settings.put("amax_reduction", reduction, stack.amax_reduction);
    }
    let implementation = list.word("--cuda-graph-impl").unwrap_or_else(|| "none".into());
    let graphs = implementation != "none" || list.has("--enable-cuda-graph") || list.has("--external-cuda-graph");
    if !graphs && plan.layout.ep > 1 && stack.graphs_mixtures_beside.is_some() {
        settings.put_word("cuda_graphs", "false");
    } else {
        settings.put("cuda_graphs", graphs, stack.cuda_graphs);
    }
    let whole_step = graphs && graphs_whole_step(list);
    settings.put("graphed_experts", whole_step, stack.graphed_experts);
    if graphs && !whole_step {
        let scope = graph_scope(list);
        settings.put("graph_scope.attention", scope.attention, stack.graph_scope.attention);
        if list.peek("--num-experts").is_none() || list.peek("--moe-layer-freq").is_some() {
            settings.put("graph_scope.mlp", scope.mlp, stack.graph_scope.mlp);
        }
    }
    if plan.layout.ep > 1 {
        let beside = list.has("--overlap-moe-expert-parallel-comm");
        let hidden = if beside { Overlap::share_beside_micro_batches(whole_step) } else { 0.0 };
        settings.put("overlap.ep", hidden, stack.overlap.ep);
    }
    settings.put("fused_cross_entropy", list.has("--cross-entropy-loss-fusion"), stack.fused_cross_entropy);
    if plan.zero < ZeroStage::Two {
        settings.put("fused_wgrad", !list.has("--no-gradient-accumulation-fusion"), stack.fused_wgrad);
    }
    let local = list.word("--transformer-impl").is_some_and(|name| name == "local");
    settings.put("transformer_engine", !local, stack.transformer_engine);
    let kernel = attention_kernel(list, local).unwrap_or(stack.attention);
    if kernel != stack.attention {
        settings.put_word("attention", kernel.name());
    }
    settings.put("reduce_bytes", if reduces_in_half(list) { 2.0 } else { 4.0 }, stack.reduce_bytes);
    settings
}

/// Whether one CUDA graph holds all of a step. All three flags are read.
fn graphs_whole_step(list: &mut Arguments) -> bool {
    let flags = ["--cuda-graph-impl", "--cuda-graph-scope", "--cuda-graph-modules"];
    let names =
        |words: Option<Vec<String>>| words.is_some_and(|words| words.iter().any(|word| word == WHOLE_ITERATION));
    flags.map(|flag| names(list.words(flag))).contains(&true)
}

/// Modules that CUDA graphs hold, by either flag.
fn graph_scope(list: &mut Arguments) -> GraphScope {
    let named = ["--cuda-graph-scope", "--cuda-graph-modules"].map(|flag| list.words(flag).unwrap_or_default());
    let modules: Vec<&str> = named.iter().flatten().map(String::as_str).collect();
    GraphScope::of_modules(&modules)
}

/// Attention kernel that the arguments name; none where Transformer Engine chooses. `local`: Megatron's own layers, without it.
fn attention_kernel(list: &mut Arguments, local: bool) -> Option<AttentionKernel> {
    let backend = list.word("--attention-backend").unwrap_or_else(|| "auto".into());
    let flash = list.has("--use-flash-attn");
    let version = list.number("--flash-attention-version");
    match backend.as_str() {
        "unfused" | "local" => Some(AttentionKernel::Unfused),
        "flash" if version == Some(3) => Some(AttentionKernel::Fa3),
        "flash" => Some(AttentionKernel::Fa2),
        "fused" => Some(AttentionKernel::Cudnn),
        _ if local && flash => Some(AttentionKernel::Fa2),
        _ if local => Some(AttentionKernel::Unfused),
        _ => None,
    }
}

/// Kernel that the arguments name and that not every GPU runs.
pub fn named_kernel(list: &Arguments) -> Option<NamedKernel> {
    let named = |flag: &str, name: String, kernel| NamedKernel {
        kernel,
        name,
        place: list.place(flag),
        instead: "`--attention-backend unfused`, without `--use-flash-attn`".into(),
    };
    let third = list.peek("--flash-attention-version").is_some_and(|version| version == "3");
    let backend = "--attention-backend";
    match list.peek(backend).as_deref() {
        Some("flash") if third => Some(named(backend, format!("`{backend} flash` of version 3"), AttentionKernel::Fa3)),
        Some("flash") => Some(named(backend, format!("`{backend} flash`"), AttentionKernel::Fa2)),
        Some("fused") => Some(named(backend, format!("`{backend} fused`"), AttentionKernel::Cudnn)),
        _ => {
            let flag = "--use-flash-attn";
            list.place(flag).map(|_| named(flag, format!("`{flag}`"), AttentionKernel::Fa2))
        }
    }
}

/// Hidden share of tensor-parallel collectives with Transformer Engine's overlap, where the stack has none: that of the
/// 2024 and 2025 stacks. Source: [calibration-1-1].
const MEASURED_TP_OVERLAP: f64 = 0.75;
/// Word of a CUDA graph that holds all of a step. Source: [megatron-cuda-graphs].
const WHOLE_ITERATION: &str = "full_iteration";
