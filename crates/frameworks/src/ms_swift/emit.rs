//! ms-swift on Megatron core: a script with `megatron sft` and every argument of the plan. That of its `Trainer` is in
//! `trainer.rs`.
//!
//! Names: [ms-swift] `swift/megatron/arguments/megatron_args.py`, commit 3602360a: Megatron's, with underscores, and a word behind
//! every switch. The model is that of the hub or of a folder, whose own configuration says its sizes.

use super::launch::{VARIABLES, processes};
use super::limits::{LIMITS, narrow_gradients};
use super::trainer::emit as trainer;
use super::trainer::limits::trains;
use crate::emit::flags::{FlagSetting, FlagValue};
use crate::emit::language::Shell;
use crate::emit::launcher::{check_variables, launch_script};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::megatron::emit::ArgumentGroups;
use crate::sizes::Sizes;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{Recompute, ZeroStage};
use meshwright_engine::stack::Dispatcher;
use meshwright_planner::limits::Obstacle;

/// Arguments of Megatron-LM that it takes under the same name.
const SAME: &str = "tensor-model-parallel-size sequence-parallel context-parallel-size cp-comm-type pipeline-model-parallel-size \
    decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers pipeline-model-parallel-layout expert-model-parallel-size \
    expert-tensor-parallel-size overlap-grad-reduce overlap-param-gather use-distributed-optimizer micro-batch-size \
    global-batch-size bf16 fp16 accumulate-allreduce-grads-in-fp32 optimizer use-precision-aware-optimizer \
    optimizer-cpu-offload optimizer-offload-fraction recompute-granularity recompute-method recompute-num-layers recompute-modules \
    cross-entropy-loss-fusion cross-entropy-fusion-impl tp-comm-overlap";

/// Arguments of Megatron-LM that it has under another name, or takes as a word.
const OTHERS: &[(&str, &str)] = &[
    ("seq-length", "max_length {}"),
    ("num-virtual-stages-per-pipeline-rank", "virtual_pipeline_model_parallel_size {}"),
    ("no-gradient-accumulation-fusion", "gradient_accumulation_fusion false"),
    ("no-overlap-p2p-communication", "overlap_p2p_comm false"),
];

/// Groups of Megatron-LM's arguments that set the plan; the architecture is read from the model's own configuration.
const GROUPS: [&str; 5] = ["PARALLEL_ARGS", "BATCH_ARGS", "PRECISION_ARGS", "MEMORY_ARGS", "KERNEL_ARGS"];

/// The launch script of a plan for Megatron core, or that of its `Trainer` with the JSON of its engine.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    if trains(request.costs.problem) {
        return Ok(trainer::files(request));
    }
    let sizes = Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request, &ArgumentGroups::new(request, &sizes, None))])
}

fn script(request: &Request, arguments: &ArgumentGroups) -> EmittedFile {
    let problem = request.costs.problem;
    let mut notes = arguments.notes.clone();
    notes.push(format!("the model is what MODEL names; the plan is for {}", problem.model().name));
    let mut text = launch_script(
        &LIMITS,
        request,
        &notes,
        [
            "Run it once a node; under Slurm: sbatch launch.sbatch. What follows its name goes to ms-swift, such as --lr 1e-5.",
        ],
    );
    check_variables(&mut text, VARIABLES);
    processes(request, &mut text);
    text.array("PLAN_ARGS", settings(request, arguments));
    text.array("RUN_ARGS", run(request));
    text.fixed("\nmegatron sft \"${RUN_ARGS[@]}\" \"${PLAN_ARGS[@]}\" \"$@\"");
    text.into_file("ms_swift.sh")
}

/// Arguments of the plan.
fn settings(request: &Request, arguments: &ArgumentGroups) -> Vec<Snippet<Shell>> {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let groups = arguments.groups.iter().filter(|(name, ..)| GROUPS.contains(name));
    let mut all: Vec<Snippet<Shell>> = groups.flat_map(|(_, _, group)| &group.settings).filter_map(renamed).collect();
    if narrow_gradients(problem) {
        all.push(Snippet::fixed("--main_grads_dtype bf16"));
        if plan.offload.optimizer <= 0.0 {
            all.push(Snippet::fixed("--use_precision_aware_optimizer true")); // offloading has said so already
        }
    }
    if plan.zero == ZeroStage::Zero {
        all.push(Snippet::fixed("--use_distributed_optimizer false"));
    }
    if plan.recompute == Recompute::None {
        all.push(Snippet::fixed("--recompute_granularity none"));
    }
    let kernel = match problem.stack().attention {
        AttentionKernel::Unfused | AttentionKernel::Efficient => "unfused",
        AttentionKernel::Fa1 | AttentionKernel::Fa2 => "flash",
        AttentionKernel::Fa3 => "flash_3",
        AttentionKernel::Cudnn => "fused",
    };
    all.push(snippet!("--attention_backend {}", kernel));
    if problem.model().is_moe() {
        let fused = plan.layout.ep * plan.layout.etp > 1 && plan.dispatcher == Dispatcher::DeepEp;
        all.push(snippet!("--moe_token_dispatcher_type {}", if fused { "flex" } else { "alltoall" }));
        if fused {
            all.push(Snippet::fixed("--moe_enable_deepep true"));
        }
    }
    if problem.model().mtp_depth > 0 {
        all.push(snippet!("--mtp_num_layers {}", problem.model().mtp_depth));
    }
    all
}

/// An argument of Megatron-LM as ms-swift has it; none where it has no such argument.
fn renamed(setting: &FlagSetting) -> Option<Snippet<Shell>> {
    let value: Snippet<Shell> = match &setting.value {
        FlagValue::On => Snippet::fixed("true"),
        FlagValue::Word(word) => word.as_str().into(),
        FlagValue::Words(words) => Snippet::joined(words.iter().map(|word| word.as_str().into()), " "),
    };
    if let Some((_, other)) = OTHERS.iter().find(|(flag, _)| *flag == setting.flag) {
        let written = if other.contains("{}") { Snippet::filled(other, &[value]) } else { Snippet::fixed(other) };
        return Some(snippet!("--{}", written));
    }
    let is_same = SAME.split_whitespace().any(|flag| flag == setting.flag);
    let name = setting.flag.replace('-', "_");
    is_same.then(|| snippet!("--{} {}", name.as_str(), value))
}

/// Model, data and steps.
fn run(request: &Request) -> Vec<Snippet<Shell>> {
    let given = [
        "--model \"$MODEL\"",
        "--dataset \"$DATASET\"",
        "--output_dir \"$OUTPUT\"",
        "--tuner_type full",
        "--packing true",
    ];
    let steps = match request.steps {
        Some(steps) => snippet!("--train_iters {} --save_steps 1000000 --no_save_optim true", steps),
        None => Snippet::fixed("--num_train_epochs 1"),
    };
    given.map(Snippet::fixed).into_iter().chain([steps]).collect()
}
