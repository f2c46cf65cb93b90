//! nanotron: its YAML, and a script with the launcher line.
//!
//! Keys: [nanotron] `src/nanotron/config/`, commit 2411b022, which reads strictly.

use super::limits::LIMITS;
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{MarkedFile, TorchrunScript, UNSET};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::plan::{Layout, Recompute};
use meshwright_engine::schedule::Schedule;
use meshwright_planner::limits::Obstacle;

/// The launch script and the YAML.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), config(request, sizes)])
}

/// Name of the YAML.
const CONFIG: &str = "nanotron.yaml";

/// Checkpoints and data of a timing run; to be edited.
const RUN: &str = "\
# To be edited: data, checkpoints, tokenizer; without a dataset, tokens are made up.
checkpoints:
  checkpoint_interval: 1000
  checkpoints_path: checkpoints
  checkpoints_path_is_shared_file_system: false
  resume_checkpoint_path: null
  save_initial_state: false
data_stages:
- name: training
  start_training_step: 1
  data:
    dataset: null";

/// Settings of every run, between its data and its tokenizer.
const SHARED: &str = "    num_loading_workers: 1
    seed: 42
general:
  project: meshwright
  run: plan_%date_%jobid
  seed: 42
lighteval: null
logging:
  iteration_step_info_interval: 1
  log_level: info
  log_level_replica: info
tokenizer:
  tokenizer_max_length: null";

/// Checkpoints and data of a training run, with marks where the user sets values.
const TRAINING: &str = "\
# To be edited: all that says TO_BE_SET.
checkpoints:
  checkpoint_interval: 1000
  checkpoints_path: TO_BE_SET
  checkpoints_path_is_shared_file_system: true
  resume_checkpoint_path: null
  save_initial_state: false
data_stages:
- name: training
  start_training_step: 1
  data:
    dataset:
      dataset_folder: TO_BE_SET";

fn config(request: &Request, sizes: &Sizes) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (workload, Layout { tp, cp, pp, dp, .. }) = (problem.workload(), plan.layout);
    let missing = unknown(problem.model());
    let mut notes: Vec<String> = missing
        .map(|missing| {
            format!("the model's source does not say its {missing}: nanotron's defaults hold; set what it has")
        })
        .into_iter()
        .collect();
    if pp > 1 {
        notes.push(
            "nanotron cuts stages by the cost of their blocks: the plan has the layers that it gives them".into(),
        );
    }
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &notes));
    text.fixed("parallelism:");
    text.line(snippet!("  dp: {}\n  tp: {}\n  pp: {}", dp, tp, pp));
    text.line(snippet!("  pp_engine: {}", if plan.schedule == Schedule::GPipe { "afab" } else { "1f1b" }));
    text.line(snippet!("  context_parallel_size: {}\n  expert_parallel_size: 1", cp));
    text.line(snippet!("  tp_mode: {}", if plan.sequence_parallel { "REDUCE_SCATTER" } else { "ALL_REDUCE" }));
    text.line(snippet!(
        "  tp_linear_async_communication: {}",
        plan.sequence_parallel && plan.layout.tp <= problem.cluster().scale_up.gpus && problem.stack().overlap.tp > 0.0
    ));
    text.line(snippet!("  recompute_layer: {}", plan.recompute == Recompute::Full));
    text.fixed("tokens:");
    text.line(snippet!("  sequence_length: {}\n  micro_batch_size: {}", workload.seq_len, plan.micro_batch));
    text.line(snippet!("  batch_accumulation_per_replica: {}", request.accumulation()));
    text.line(snippet!("  train_steps: {}\n  val_check_interval: -1", request.steps.unwrap_or(100)));
    text.fixed("optimizer:");
    text.line(snippet!("  zero_stage: {}", u8::from(plan.zero)));
    text.fixed("  accumulate_grad_in_fp32: true\n  clip_grad: 1.0\n  weight_decay: 0.1");
    text.fixed(
        "  optimizer_factory:\n    name: adamW\n    adam_beta1: 0.9\n    adam_beta2: 0.95\n    adam_eps: 1.0e-08",
    );
    text.fixed("    torch_adam_is_fused: true");
    text.fixed(
        "  learning_rate_scheduler:\n    learning_rate: 0.0003\n    lr_warmup_steps: 5\n    lr_warmup_style: linear",
    );
    text.fixed("    lr_decay_style: cosine\n    lr_decay_steps: 95\n    min_decay_lr: 1.0e-05");
    architecture(request, sizes, &mut text);
    let is_timed = request.steps.is_some();
    text.fixed(if is_timed { RUN } else { TRAINING });
    text.fixed(SHARED);
    let tokenizer = if is_timed { "gpt2" } else { UNSET };
    text.line(snippet!("  tokenizer_name_or_path: {}\n  tokenizer_revision: null", Snippet::fixed(tokenizer)));
    text.into_file(CONFIG)
}

fn architecture(request: &Request, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let (model, plan) = (request.costs.problem.model(), &request.evaluation.plan);
    let (kv_heads, qkv_bias) = match &sizes.mixer {
        SharedMixer::Attention(a) => (a.kv_heads, a.qkv_bias),
        SharedMixer::Mla(m) => (m.heads, false),
    };
    text.fixed("model:\n  dtype: bfloat16\n  ddp_bucket_cap_mb: 25\n  make_vocab_size_divisible_by: 1");
    text.fixed("  init_method:\n    std: 0.02\n  model_config:\n    is_qwen2_config: true");
    text.line(snippet!("    hidden_size: {}", model.hidden));
    text.line(snippet!("    intermediate_size: {}", sizes.dense.as_ref().map_or(0, |mlp| mlp.intermediate)));
    text.line(snippet!("    num_hidden_layers: {}", model.layers()));
    text.line(snippet!("    num_attention_heads: {}", sizes.heads()));
    text.line(snippet!("    num_key_value_heads: {}", kv_heads));
    text.line(snippet!("    attention_bias: {}", qkv_bias));
    text.line(snippet!("    vocab_size: {}", model.vocab));
    text.line(snippet!("    tie_word_embeddings: {}", model.tied_embeddings));
    text.line(snippet!("    max_position_embeddings: {}", request.costs.problem.workload().seq_len));
    if let Some(theta) = model.details.rope_theta {
        text.line(snippet!("    rope_theta: {}", theta));
    }
    if let Some(epsilon) = model.details.norm_epsilon {
        text.line(snippet!("    rms_norm_eps: {}", epsilon));
    }
    text.fixed("    hidden_act: silu");
    if plan.layout.cp > 1 {
        text.fixed("    _attn_implementation: llama3_ring_attention\n    ring_attn_heads_k_stride: 1");
    } else {
        text.fixed("    _attn_implementation: flash_attention_2");
    }
}

fn script(request: &Request) -> EmittedFile {
    let marked = MarkedFile { name: CONFIG, of: "folders of data and checkpoints, tokenizer" };
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &[
            "Run it once a node; under Slurm: sbatch launch.sbatch. Data, tokenizer and folders are set in its YAML.",
        ],
        variables: &[("NANOTRON", "a checkout of nanotron")],
        marked: request.steps.is_none().then_some(marked),
        exports: "export CUDA_DEVICE_MAX_CONNECTIONS=1\n",
        program: snippet!("\"$NANOTRON\"/run_train.py --config-file {}", CONFIG),
    };
    script.file(request, "nanotron.sh")
}
