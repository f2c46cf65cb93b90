//! The train module of a program.

use crate::emit::language::Python;
use crate::emit::request::Request;
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::olmo_core::{BLOCKS, MLPS};
use crate::rules::bytes_are;
use meshwright_engine::gpu::Format;
use meshwright_engine::plan::{CpKind, Layout, Plan, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;

/// The train module: batches in tokens, degrees, formats and recomputation.
pub(super) fn train_module(request: &Request, text: &mut Lines<Python>) {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (workload, stack) = (problem.workload(), problem.stack());
    text.fixed("\ndef build_train_module() -> TransformerTrainModuleConfig:\n    return TransformerTrainModuleConfig(");
    let mut put = |key: &'static str, value: Snippet<Python>| {
        text.line(snippet!("        {}={},", Snippet::fixed(key), value));
    };
    put("rank_microbatch_size", snippet!("{} * {}", plan.micro_batch, workload.seq_len));
    put("max_sequence_length", workload.seq_len.into());
    // To be edited: the learning rate.
    put("optim", Snippet::fixed("AdamWConfig(lr=3e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)"));
    put("scheduler", snippet!("CosWithWarmup(warmup_steps={})", request.warm_up()));
    put("max_grad_norm", 1.0.into());
    put("compile_model", stack.transformer_engine.into());
    match workload.format {
        Format::Fp8 => put(
            "float8_config",
            snippet!(
                "Float8Config(ao=AOFloat8LinearConfig(enable_fsdp_float8_all_gather={}))",
                stack.fp8_all_gather && plan.zero == ZeroStage::Three
            ),
        ),
        Format::Mxfp8 => {
            put("float8_config", Snippet::fixed("Float8Config(ao_mx=AOMXLinearConfig.mxfp8_cublas_rceil())"));
        }
        Format::Bf16 | Format::Fp8Block | Format::Nvfp4 => {}
    }
    for (key, value) in degrees(request) {
        put(key, value);
    }
    if let Some(mode) = recomputed(plan) {
        put("ac_config", snippet!("TransformerActivationCheckpointingConfig({})", mode));
    }
    text.fixed("    )\n");
}

/// Arguments of `TransformerActivationCheckpointingConfig`; none without recomputation. In pipelines blocks are named by patterns.
fn recomputed(plan: &Plan) -> Option<Snippet<Python>> {
    let named = |modules: &[&'static str]| {
        let modules = Snippet::joined(modules.iter().copied().map(Snippet::from), ", ");
        snippet!("mode=TransformerActivationCheckpointingMode.selected_modules, modules=[{}]", modules)
    };
    let code = match plan.recompute {
        Recompute::Full if plan.layout.pp > 1 => return Some(named(BLOCKS)),
        Recompute::Selective(modules) if modules.mlp => return Some(named(&[MLPS])),
        Recompute::Full => "mode=TransformerActivationCheckpointingMode.full",
        Recompute::EveryOther => "mode=TransformerActivationCheckpointingMode.selected_blocks, block_interval=2",
        Recompute::PerOp => "mode=TransformerActivationCheckpointingMode.selected_ops",
        Recompute::None | Recompute::Selective(_) | Recompute::FirstLayers(_) => return None,
    };
    Some(Snippet::fixed(code))
}

/// Parallel degrees. Weights are bf16 where they are gathered; under DDP they stay fp32, and GEMMs are cast.
fn degrees(request: &Request) -> Vec<(&'static str, Snippet<Python>)> {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let stack = problem.stack();
    let Layout { tp, cp, pp, dp, ep, .. } = plan.layout;
    let reduced = Snippet::fixed(if bytes_are(stack.reduce_bytes, 2.0) { "bfloat16" } else { "float32" });
    let sharded = |kind: &'static str, sizes: Snippet<Python>| {
        let formats = snippet!("param_dtype=DType.bfloat16, reduce_dtype=DType.{}", reduced.clone());
        snippet!(
            "TransformerDataParallelConfig(\n            name=DataParallelType.{}, {}{}\n        )",
            Snippet::fixed(kind),
            formats,
            sizes
        )
    };
    let mut found = Vec::new();
    let alone = tp * cp * pp == 1;
    let group = plan.dense_shards() / cp;
    if plan.zero == ZeroStage::Zero && alone {
        found.push(("autocast_precision", Snippet::fixed("DType.bfloat16")));
        if dp > 1 {
            found.push(("dp_config", Snippet::fixed("TransformerDataParallelConfig(name=DataParallelType.ddp)")));
        }
    } else if group < dp || (ep > 1 && tp == 1) {
        let sizes = snippet!(", num_replicas={}, shard_degree={}", dp / group, group);
        found.push(("dp_config", sharded("hsdp", sizes)));
    } else {
        found.push(("dp_config", sharded("fsdp", Snippet::fixed(""))));
    }
    if tp > 1 {
        let overlaps = stack.overlap.tp > 0.0 && tp <= problem.cluster().scale_up.gpus;
        found
            .push(("tp_config", snippet!("TransformerTensorParallelConfig(degree={}, enable_async={})", tp, overlaps)));
    }
    if cp > 1 {
        let kind = Snippet::fixed(if plan.cp_kind == CpKind::AllToAll { "ulysses" } else { "zig_zag" });
        found.push(("cp_config", snippet!("TransformerContextParallelConfig.{}(degree={})", kind, cp)));
    }
    if ep > 1 && tp == 1 {
        found.push(("ep_config", snippet!("TransformerExpertParallelConfig(degree={})", ep)));
    }
    if pp > 1 {
        let counts = request.layers_of_chunks();
        let ends = counts.iter().scan(0_u32, |end, count| {
            *end += count;
            Some(*end)
        });
        let points = Snippet::joined(ends.take(counts.len() - 1).map(Snippet::from), ", ");
        found.push((
            "pp_config",
            snippet!(
                "TransformerPipelineParallelConfig(\n            degree={}, schedule=PipelineScheduleType.{}, \
                split_points=[{}]\n        )",
                pp,
                Snippet::fixed(schedule(plan.schedule)),
                points
            ),
        ));
    }
    found
}

/// Name of a schedule in `PipelineScheduleType`.
const fn schedule(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::GPipe | Schedule::Naive => "gpipe",
        Schedule::OneFOneB => "single_1F1B",
        Schedule::Interleaved { .. } => "interleaved_1F1B",
        Schedule::LoopedBfs { .. } => "looped_bfs",
        Schedule::ZbV | Schedule::ZbH1 | Schedule::ZbH2 | Schedule::DualPipe | Schedule::DualPipeV => "zbv_zero_bubble",
    }
}
