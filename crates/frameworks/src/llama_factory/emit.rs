//! LLaMA-Factory: its YAML, the configuration of the engine below it, and a script with the launcher line.
//!
//! Keys: [llama-factory] `hparams/`, release 0.9.5, whose parser refuses unknown keys; `launcher.py`, which runs as a module.

use super::limits::LIMITS;
use crate::accelerate::emit as accelerate;
use crate::deepspeed::emit as deepspeed;
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{
    MarkedFile, UNSET, environment, launch_script, no_marks, recurrence_kernels, torchrun_options,
};
use crate::emit::request::{EmittedFile, Program, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::hugging_face::limits::on_deepspeed;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{Recompute, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// The launch script and the YAML, with Accelerate's or DeepSpeed's.
#[allow(clippy::unnecessary_wraps)] // as every framework returns its files
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let mut files = vec![script(request), config(request)];
    if on_deepspeed(request.costs.problem) {
        files.push(deepspeed::config(request, Program::Trainer));
    } else if is_sharded(request) {
        files.push(accelerate::config(request, lines(&LIMITS, request, &[]), Program::Trainer));
    }
    Ok(files)
}

/// Name of the YAML.
const CONFIG: &str = "llama_factory.yaml";

/// Whether FSDP2 shards the weights.
fn is_sharded(request: &Request) -> bool {
    !on_deepspeed(request.costs.problem) && request.evaluation.plan.zero == ZeroStage::Three
}

fn config(request: &Request) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let workload = problem.workload();
    let adapts = workload.adaptation.is_lora();
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &[]));
    text.comments([format!("To be edited: all that says {UNSET}; the model is {}.", problem.model().name)]);
    text.comments(recurrence_kernels(problem).map(|kernels| format!("The trainer must {kernels}.")));
    for key in ["model_name_or_path", "dataset", "template"] {
        text.line(snippet!("{}: {}", Snippet::fixed(key), Snippet::fixed(UNSET)));
    }
    text.fixed("stage: sft\ndo_train: true");
    text.line(snippet!("finetuning_type: {}", if adapts { "lora" } else { "full" }));
    if adapts {
        text.line(snippet!("lora_rank: {}\nlora_target: {}", Snippet::fixed(UNSET), Snippet::fixed(UNSET)));
    }
    text.line(snippet!("cutoff_len: {}", workload.seq_len));
    let attention = if problem.cluster().gpu.runs(AttentionKernel::Fa2) { "fa2" } else { "sdpa" };
    text.fixed("packing: true");
    text.line(snippet!("flash_attn: {}", Snippet::fixed(attention)));
    text.line(snippet!(
        "per_device_train_batch_size: {}\ngradient_accumulation_steps: {}",
        plan.micro_batch,
        request.accumulation()
    ));
    text.line(snippet!("{}: true", Snippet::fixed(workload.half.name())));
    text.line(snippet!("disable_gradient_checkpointing: {}", plan.recompute != Recompute::Full));
    text.fixed("optim: adamw_torch_fused\nlearning_rate: 0.0003\nlr_scheduler_type: cosine\nweight_decay: 0.1");
    text.fixed("logging_steps: 10\nreport_to: none");
    match request.steps {
        Some(steps) => text.line(snippet!("output_dir: timing\nmax_steps: {}\nsave_strategy: \"no\"", steps)),
        None => text.line(snippet!("output_dir: {}\nnum_train_epochs: 1", Snippet::fixed(UNSET))),
    }
    if on_deepspeed(problem) {
        text.line(snippet!("deepspeed: {}", deepspeed::CONFIG));
    }
    text.into_file(CONFIG)
}

fn script(request: &Request) -> EmittedFile {
    let mut text = launch_script(
        &LIMITS,
        request,
        &[],
        [
            "Run it once a node; under Slurm: sbatch launch.sbatch. Model, data and folders are set in its YAML; what follows its",
            "name goes to LLaMA-Factory, such as learning_rate=1e-5.",
        ],
    );
    no_marks(&mut text, MarkedFile { name: CONFIG, of: "model, data, template, folder, and the rank of adapters" });
    environment(&mut text, request);
    let launcher = if is_sharded(request) {
        accelerate::launcher(request)
    } else {
        torchrun_options(&mut text, request);
        text.fixed("");
        Snippet::fixed("torchrun \"${DISTRIBUTED_ARGS[@]}\"")
    };
    text.line(snippet!("{} \\\n    -m llamafactory.launcher {} \"$@\"", launcher, CONFIG));
    text.into_file("llama_factory.sh")
}
