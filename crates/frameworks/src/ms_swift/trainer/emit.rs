//! Files of ms-swift's `Trainer`: a script with `swift sft`, and the JSON of DeepSpeed or of FSDP2.
//!
//! Names: [ms-swift] `swift/arguments/sft_args.py`, `swift/trainers/arguments.py`, `swift/config/`, commit 3602360a.

use serde_json::json;

use crate::deepspeed::emit as deepspeed;
use crate::emit::language::Shell;
use crate::emit::launcher::{RequiredVariable, check_variables, launch_script};
use crate::emit::request::{EmittedFile, Program, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::hugging_face::limits::on_deepspeed;
use crate::ms_swift::launch::{VARIABLES, processes};
use crate::ms_swift::limits::LIMITS;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{Plan, Recompute, ZeroStage};

/// Variables of a run that trains adapters.
const ADAPTERS: &[RequiredVariable] = &[
    ("LORA_RANK", "the rank of the adapters"),
    ("LORA_TARGETS", "the modules that have adapters, such as all-linear"),
];

/// Name of FSDP2's JSON.
const SHARDED: &str = "fsdp_config.json";

/// The launch script, and the JSON of its engine.
pub(crate) fn files(request: &Request) -> Vec<EmittedFile> {
    let problem = request.costs.problem;
    let mut files = vec![script(request)];
    if on_deepspeed(problem) {
        files.push(deepspeed::config(request, Program::Trainer));
    } else if request.evaluation.plan.zero == ZeroStage::Three {
        files.push(fsdp(&request.evaluation.plan));
    }
    files
}

/// FSDP2's settings, which turn recomputation on instead of the `Trainer`'s.
fn fsdp(plan: &Plan) -> EmittedFile {
    let config = json!({
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {
            "fsdp_version": 2,
            "reshard_after_forward": plan.reshard_after_forward,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": true,
            "state_dict_type": "SHARDED_STATE_DICT",
            "activation_checkpointing": plan.recompute == Recompute::Full,
        }
    });
    let text = serde_json::to_string_pretty(&config).expect("maps of strings and switches have a JSON form");
    EmittedFile { name: SHARDED.into(), text: text + "\n" }
}

fn script(request: &Request) -> EmittedFile {
    let problem = request.costs.problem;
    let notes = [format!("the model is what MODEL names; the plan is for {}", problem.model().name)];
    let mut text = launch_script(
        &LIMITS,
        request,
        &notes,
        ["Run it once a node; under Slurm: sbatch launch.sbatch. What follows its name goes to ms-swift, such as \
            --learning_rate 1e-5."],
    );
    let adapts = problem.workload().adaptation.is_lora();
    let variables: Vec<RequiredVariable> =
        VARIABLES.iter().chain(if adapts { ADAPTERS } else { &[] }).copied().collect();
    check_variables(&mut text, &variables);
    processes(request, &mut text);
    text.array("PLAN_ARGS", settings(request));
    text.array("RUN_ARGS", run(request, adapts));
    text.fixed("\nswift sft \"${RUN_ARGS[@]}\" \"${PLAN_ARGS[@]}\" \"$@\"");
    text.into_file("ms_swift.sh")
}

/// Arguments of the plan.
fn settings(request: &Request) -> Vec<Snippet<Shell>> {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let workload = problem.workload();
    let sharded = !on_deepspeed(problem) && plan.zero == ZeroStage::Three;
    let types = workload.half.name();
    let attention = if problem.cluster().gpu.runs(AttentionKernel::Fa2) { "flash_attn" } else { "sdpa" };
    let mut all = vec![
        snippet!("--max_length {}", workload.seq_len),
        snippet!("--per_device_train_batch_size {}", plan.micro_batch),
        snippet!("--gradient_accumulation_steps {}", request.accumulation()),
        snippet!("--torch_dtype {}", if types == "fp16" { "float16" } else { "bfloat16" }),
        snippet!("--{} true", types),
        snippet!("--gradient_checkpointing {}", !sharded && plan.recompute == Recompute::Full),
        snippet!("--attn_impl {}", Snippet::fixed(attention)),
        Snippet::fixed("--optim adamw_torch_fused"),
    ];
    if plan.layout.cp > 1 {
        all.push(snippet!("--sequence_parallel_size {}", plan.layout.cp));
    }
    if on_deepspeed(problem) {
        all.push(snippet!("--deepspeed {}", deepspeed::CONFIG));
    } else if sharded {
        all.push(snippet!("--fsdp {}", SHARDED));
    }
    all
}

/// Model, data and steps.
fn run(request: &Request, adapts: bool) -> Vec<Snippet<Shell>> {
    let given = ["--model \"$MODEL\"", "--dataset \"$DATASET\"", "--output_dir \"$OUTPUT\"", "--packing true"];
    let mut all: Vec<Snippet<Shell>> = given.into_iter().map(Snippet::fixed).collect();
    all.push(Snippet::fixed(if adapts { "--tuner_type lora" } else { "--tuner_type full" }));
    if adapts {
        all.push(Snippet::fixed("--lora_rank \"$LORA_RANK\""));
        all.push(Snippet::fixed("--target_modules \"$LORA_TARGETS\""));
    }
    all.push(match request.steps {
        Some(steps) => snippet!("--max_steps {} --save_strategy no", steps),
        None => Snippet::fixed("--num_train_epochs 1"),
    });
    all
}
