//! axolotl: its YAML, DeepSpeed's JSON where that is the engine, and a script with the launcher line.
//!
//! Keys: [axolotl] `utils/schemas/`, release 0.19.0. Unknown keys are ignored there, so none is written.

use super::limits::LIMITS;
use crate::accelerate::emit::mesh_of;
use crate::deepspeed::emit as deepspeed;
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{MarkedFile, TorchrunScript, UNSET, recurrence_kernels};
use crate::emit::request::{EmittedFile, Program, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::hugging_face::limits::on_deepspeed;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::plan::{Recompute, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// The launch script and the YAML, with DeepSpeed's JSON.
#[allow(clippy::unnecessary_wraps)] // as every framework returns its files
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let mut files = vec![script(request), config(request)];
    if on_deepspeed(request.costs.problem) {
        files.push(deepspeed::config(request, Program::Trainer));
    }
    Ok(files)
}

/// Name of the YAML.
const CONFIG: &str = "axolotl.yaml";

fn config(request: &Request) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let workload = problem.workload();
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &[]));
    text.comments([format!("To be edited: all that says {UNSET}; the base model is {}.", problem.model().name)]);
    text.comments(recurrence_kernels(problem).map(|kernels| format!("The trainer must {kernels}.")));
    text.line(snippet!("base_model: {}", Snippet::fixed(UNSET)));
    data(request, &mut text);
    text.line(snippet!("sequence_len: {}", workload.seq_len));
    let attention = if problem.cluster().gpu.runs(AttentionKernel::Fa2) { "flash_attention_2" } else { "sdpa" };
    text.fixed("sample_packing: true\npad_to_sequence_len: true");
    text.line(snippet!("attn_implementation: {}", Snippet::fixed(attention)));
    text.line(snippet!(
        "micro_batch_size: {}\ngradient_accumulation_steps: {}",
        plan.micro_batch,
        request.accumulation()
    ));
    text.line(snippet!("{}: true", Snippet::fixed(workload.half.name())));
    text.line(snippet!("gradient_checkpointing: {}", plan.recompute == Recompute::Full));
    if plan.recompute == Recompute::Full {
        text.fixed("gradient_checkpointing_kwargs:\n  use_reentrant: false");
    }
    text.fixed("optimizer: adamw_torch_fused\nlearning_rate: 0.0003\nlr_scheduler: cosine\nweight_decay: 0.1");
    if workload.adaptation.is_lora() {
        text.fixed("adapter: lora");
        for key in ["lora_r", "lora_alpha", "lora_target_modules"] {
            text.line(snippet!("{}: {}", Snippet::fixed(key), Snippet::fixed(UNSET)));
        }
    }
    if on_deepspeed(problem) {
        text.line(snippet!("deepspeed: {}", deepspeed::CONFIG));
    } else if plan.zero == ZeroStage::Three {
        sharded(request, &mut text);
    }
    text.into_file(CONFIG)
}

/// FSDP2 and the mesh.
fn sharded(request: &Request, text: &mut Lines<Yaml>) {
    let plan = &request.evaluation.plan;
    text.fixed("fsdp_version: 2\nfsdp_config:");
    text.line(snippet!("  reshard_after_forward: {}", plan.reshard_after_forward));
    text.fixed("  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  offload_params: false");
    text.fixed("  cpu_ram_efficient_loading: true\n  state_dict_type: SHARDED_STATE_DICT");
    let mesh = mesh_of(plan);
    text.line(snippet!("dp_replicate_size: {}\ndp_shard_size: {}", mesh.copies, mesh.shard));
    text.line(snippet!("tensor_parallel_size: {}\ncontext_parallel_size: {}", plan.layout.tp, plan.layout.cp));
}

/// Data and outputs: marks, or synthetic data for a timing run.
fn data(request: &Request, text: &mut Lines<Yaml>) {
    let workload = request.costs.problem.workload();
    text.fixed("datasets:");
    if let Some(steps) = request.steps {
        text.fixed("  - path: synthetic\n    type: _synthetic");
        let rows = u64::from(steps) * u64::from(workload.global_batch);
        text.line(snippet!("    length: {}\n    sequence_length: {}", rows, workload.seq_len));
        text.line(snippet!("output_dir: timing\nmax_steps: {}", steps));
        text.fixed("save_strategy: \"no\"");
    } else {
        text.line(snippet!("  - path: {}\n    type: {}", Snippet::fixed(UNSET), Snippet::fixed(UNSET)));
        text.line(snippet!("output_dir: {}\nnum_epochs: 1", Snippet::fixed(UNSET)));
    }
}

fn script(request: &Request) -> EmittedFile {
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &[
            "Run it once a node; under Slurm: sbatch launch.sbatch. Model, data and folders are set in its YAML; what follows its",
            "name goes to axolotl, such as --learning-rate=1e-5.",
        ],
        variables: &[],
        marked: Some(MarkedFile { name: CONFIG, of: "base model, data, folders, and the rank of adapters" }),
        exports: "",
        program: snippet!("-m axolotl.cli.train {} \"$@\"", CONFIG),
    };
    script.file(request, "axolotl.sh")
}
