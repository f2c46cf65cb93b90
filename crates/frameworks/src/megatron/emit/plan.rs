//! The plan as Megatron's flags: degrees, pipeline, sharding, batch, formats, recomputation, overlap.

use crate::emit::flags::FlagGroup;
use crate::emit::request::Request;
use crate::megatron::graphs;
use crate::megatron::hybrid::is_hybrid;
use crate::megatron::overlap::can_overlap_experts;
use crate::rules::bytes_are;
use crate::scaling;
use meshwright_engine::cost::context_inside;
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::plan::{CpKind, Modules, RankOrder, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stages::StagedPlan;
use meshwright_engine::workload::{Half, Optimizer, Recipe};

/// Degrees, rank order, pipeline layout, sharding of the optimizer and of FSDP.
pub(super) fn parallelism(request: &Request) -> FlagGroup {
    let plan = &request.evaluation.plan;
    let layout = plan.layout;
    let mut group = FlagGroup::default();
    group.set("tensor-model-parallel-size", layout.tp);
    group.on_if(plan.sequence_parallel, "sequence-parallel");
    group.set("context-parallel-size", layout.cp);
    if layout.cp > 1 {
        let kind = match plan.cp_kind {
            CpKind::Ring => "p2p",
            CpKind::AllGather => "all_gather",
            CpKind::AllToAll => "a2a",
            CpKind::Hierarchical => "a2a+p2p",
        };
        group.set("cp-comm-type", kind);
        if plan.cp_kind == CpKind::Hierarchical {
            let inside = context_inside(plan, request.costs.problem.cluster().scale_up.gpus);
            group.list("hierarchical-context-parallel-sizes", [inside, layout.cp / inside]);
        }
    }
    group.set("pipeline-model-parallel-size", layout.pp);
    pipeline(request, &mut group);
    if request.costs.problem.model().is_moe() {
        group.set("expert-model-parallel-size", layout.ep);
        group.set("expert-tensor-parallel-size", layout.etp);
    }
    group.on_if(plan.order == RankOrder::DataOutermost, "use-tp-pp-dp-mapping");
    sharding(request, &mut group);
    group
}

/// Flags of the pipeline: equal chunks by their number; other layers on the first and the last rank by theirs; others
/// as a layout string of every stage, in model order.
fn pipeline(request: &Request, group: &mut FlagGroup) {
    let plan = &request.evaluation.plan;
    // The bars of a hybrid pattern separate the stages.
    if plan.layout.pp == 1 || is_hybrid(request.costs.problem.model()) {
        return;
    }
    if let (None, LayerSplit::Ends { first, last }) = (request.staged, &plan.split) {
        for (flag, layers) in [("decoder-first-pipeline-num-layers", first), ("decoder-last-pipeline-num-layers", last)]
        {
            if let Some(layers) = layers {
                group.set(flag, layers);
            }
        }
        if let Schedule::Interleaved { virtual_stages } = plan.schedule {
            group.set("num-virtual-stages-per-pipeline-rank", virtual_stages);
        }
        return;
    }
    let layers = request.layers_of_chunks();
    if layers.iter().all(|count| *count == layers[0]) {
        if let Schedule::Interleaved { virtual_stages } = plan.schedule {
            group.set("num-virtual-stages-per-pipeline-rank", virtual_stages);
        }
        return;
    }
    let stages = match request.staged {
        Some(staged) => staged.clone(),
        None => StagedPlan::uniform(request.costs.problem.model(), plan, &layers),
    };
    group.set("pipeline-model-parallel-layout", stages.megatron_layout());
}

fn sharding(request: &Request, group: &mut FlagGroup) {
    let (plan, overlap) = (&request.evaluation.plan, &request.costs.problem.stack().overlap);
    group.on_if(overlap.dp, "overlap-grad-reduce");
    if plan.zero == ZeroStage::Zero {
        return;
    }
    group.on("use-distributed-optimizer");
    group.on_if(overlap.dp, "overlap-param-gather");
    let (shards, replicas) = (plan.dense_shards(), plan.layout.dense_replicas());
    if shards < replicas {
        group.set("num-distributed-optimizer-instances", replicas / shards);
    }
    if plan.zero >= ZeroStage::Two {
        group.on("use-megatron-fsdp");
        let strategy = if plan.zero == ZeroStage::Two { "optim_grads" } else { "optim_grads_params" };
        group.set("data-parallel-sharding-strategy", strategy);
        group.on("init-model-with-meta-device");
        group.set("ckpt-format", "fsdp_dtensor");
    }
}

/// Batch and sequence.
pub(super) fn batch(request: &Request) -> FlagGroup {
    let (plan, workload) = (&request.evaluation.plan, request.costs.problem.workload());
    let mut group = FlagGroup::default();
    group.set("micro-batch-size", plan.micro_batch);
    group.set("global-batch-size", workload.global_batch);
    group.set("seq-length", workload.seq_len);
    group
}

/// Formats of GEMMs, weights, gradients and moments.
pub(super) fn precision(request: &Request, notes: &mut Vec<String>) -> FlagGroup {
    let problem = request.costs.problem;
    let (plan, workload, stack) = (&request.evaluation.plan, problem.workload(), problem.stack());
    let Recipe { weight, gradient, master: _, state } = workload.recipe;
    let mut group = FlagGroup::default();
    let half = workload.half;
    group.on(half.name());
    if let Some((format, recipe)) = scaling::words(workload.format, stack.amax_reduction) {
        let (formats, recipes) =
            if workload.format == Format::Nvfp4 { ("fp4-format", "fp4-recipe") } else { ("fp8-format", "fp8-recipe") };
        group.set(formats, format);
        group.set(recipes, recipe);
        let narrow = workload.format != Format::Nvfp4 && bytes_are(weight, 1.0);
        group.on_if(narrow, "fp8-param-gather");
        // Weights in MXFP8 have no place in the buffer of weights, so their all-gather takes that of gradients; Megatron FSDP has
        // buffers of its own ([megatron-lm] `param_and_grad_buffer.py`, `arguments.py`).
        group.on_if(
            narrow && workload.format == Format::Mxfp8 && plan.zero < ZeroStage::Two,
            "reuse-grad-buf-for-mxfp8-param-ag",
        );
        let oldest = scaling::oldest_engine(&problem.cluster().gpu, recipe);
        if let Some(oldest) = oldest.filter(|oldest| *oldest != scaling::FIRST_ENGINE) {
            notes.push(format!("its recipe `{recipe}` needs Transformer Engine {oldest} or newer on these GPUs"));
        }
    }
    group.on_if(problem.model().is_moe() && workload.format != Format::Bf16, "moe-router-padding-for-quantization");
    let fp32_gradients = bytes_are(gradient, 4.0);
    group.on_if(fp32_gradients, "accumulate-allreduce-grads-in-fp32");
    if plan.zero >= ZeroStage::Two && fp32_gradients {
        // Megatron FSDP does not read the flag above ([megatron-lm] `distributed_data_parallel_config.py`).
        group.set("megatron-fsdp-main-grads-dtype", "fp32");
    }
    // Gradients of float16 are float16 where nothing is said.
    group.on_if(!fp32_gradients && half == Half::Bf16, "grad-reduce-in-bf16");
    let on_the_wire = if fp32_gradients { 4.0 } else { 2.0 };
    if plan.layout.dense_replicas() > 1 && !bytes_are(stack.reduce_bytes, on_the_wire) {
        notes.push(format!(
            "the prediction reduced gradients of {} B, these flags reduce {on_the_wire} B: choose the other --optimizer recipe",
            stack.reduce_bytes
        ));
    }
    optimizer(request, state, &mut group);
    group
}

fn optimizer(request: &Request, state: f64, group: &mut FlagGroup) {
    let (plan, workload) = (&request.evaluation.plan, request.costs.problem.workload());
    let name = match (workload.optimizer, request.recipe) {
        (Optimizer::Muon, _) => "muon",
        (Optimizer::Elementwise, Some("sgd")) => "sgd",
        (Optimizer::Elementwise, _) => "adam",
    };
    group.set("optimizer", name);
    if name != "adam" {
        return;
    }
    let offloads = plan.offload.optimizer > 0.0;
    let moments = if bytes_are(state, 8.0) {
        None
    } else if bytes_are(state, 4.0) {
        Some("bf16")
    } else {
        Some("fp8")
    };
    group.on_if(moments.is_some() || offloads, "use-precision-aware-optimizer");
    if let Some(moments) = moments {
        group.set("exp-avg-dtype", moments);
        group.set("exp-avg-sq-dtype", moments);
    }
    if offloads {
        group.on("optimizer-cpu-offload");
        group.set("optimizer-offload-fraction", plan.offload.optimizer);
        group.on("overlap-cpu-optimizer-d2h-h2d");
    }
}

/// Recomputation and offloaded activations.
pub(super) fn memory(request: &Request, notes: &mut Vec<String>) -> FlagGroup {
    let (plan, model) = (&request.evaluation.plan, request.costs.problem.model());
    let mut group = FlagGroup::default();
    let mut full = |method, layers| {
        group.set("recompute-granularity", "full");
        group.set("recompute-method", method);
        group.set("recompute-num-layers", layers);
    };
    match plan.recompute {
        Recompute::None | Recompute::PerOp | Recompute::EveryOther => {}
        Recompute::Full => full("uniform", 1),
        Recompute::FirstLayers(layers) => full("block", layers),
        Recompute::Selective(modules) => {
            group.set("recompute-granularity", "selective");
            group.list("recompute-modules", module_names(modules));
            if modules.act && model.kinds.iter().any(|layer| layer.moe().is_none()) {
                notes.push("`moe_act` recomputes the activation of experts; dense layers keep theirs".into());
            }
        }
    }
    if plan.offload.activations > 0.0 {
        let layers = (plan.offload.activations * f64::from(model.layers())).round();
        group.set("cpu-offloading-num-layers", layers);
    }
    group
}

fn module_names(modules: Modules) -> Vec<&'static str> {
    modules
        .named()
        .into_iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| if name == "act" { "moe_act" } else { name })
        .collect()
}

/// Whether the prediction hides expert exchange behind another micro-batch, and the plan can do that.
pub(super) fn overlaps_experts(request: &Request) -> bool {
    let problem = request.costs.problem;
    problem.stack().overlap.ep > 0.0 && can_overlap_experts(problem, &request.evaluation.plan)
}

/// Kernels and overlap of the stack that was priced.
pub(super) fn kernels(request: &Request, notes: &mut Vec<String>) -> FlagGroup {
    let (plan, problem) = (&request.evaluation.plan, request.costs.problem);
    let stack = problem.stack();
    let mut group = FlagGroup::default();
    // Fused attention, context parallelism and FP8 are Transformer Engine's.
    let unfused = stack.attention == AttentionKernel::Unfused;
    let plain = plan.layout.cp == 1 && problem.workload().format == Format::Bf16;
    let is_local = !stack.transformer_engine && unfused && plain;
    group.set("transformer-impl", if is_local { "local" } else { "transformer_engine" });
    // Its backend `local` is for `--spec local`, a module of the user's ([megatron-lm] arguments.py); local layers read none.
    let backend = match stack.attention {
        AttentionKernel::Unfused | AttentionKernel::Efficient => "unfused",
        AttentionKernel::Fa1 | AttentionKernel::Fa2 | AttentionKernel::Fa3 => "flash",
        AttentionKernel::Cudnn => "fused",
    };
    group.set("attention-backend", backend);
    if stack.attention == AttentionKernel::Fa3 {
        group.set("flash-attention-version", 3);
    }
    if stack.fused_cross_entropy {
        group.on("cross-entropy-loss-fusion");
        group.set("cross-entropy-fusion-impl", "native");
    }
    group.on_if(!stack.fused_wgrad || plan.zero >= ZeroStage::Two, "no-gradient-accumulation-fusion");
    let inside = plan.layout.tp <= problem.cluster().scale_up.gpus;
    group.on_if(inside && plan.sequence_parallel && stack.overlap.tp > 0.0, "tp-comm-overlap");
    let chunked = matches!(plan.schedule, Schedule::Interleaved { .. });
    group.on_if(chunked && !stack.overlap.pp && plan.layout.pp > 2, "no-overlap-p2p-communication");
    if overlaps_experts(request) {
        group.on("overlap-moe-expert-parallel-comm");
        group.on("delay-wgrad-compute");
    } else if stack.overlap.ep > 0.0 && plan.layout.ep > 1 {
        notes.push(
            "the prediction hides expert exchange behind compute, which this plan cannot: expect it exposed".into(),
        );
    }
    graphs::set(request, &mut group, notes);
    group
}
