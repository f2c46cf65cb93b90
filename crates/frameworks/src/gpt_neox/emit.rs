//! GPT-NeoX: its YAML, the program that every rank runs, and a script with the launcher line.
//!
//! Keys: [gpt-neox] `megatron/neox_arguments/`, commit ea7aefd8, whose data class refuses unknown ones. Its own
//! launcher starts ranks on other nodes; under `torchrun` each node starts its own, and the program does what
//! `train.py` does with the YAML itself.

use super::limits::{LIMITS, PARALLEL};
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::{Python, Yaml};
use crate::emit::launcher::{MarkedFile, TorchrunScript, UNSET};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::rules::bytes_are;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::{Activation, Model, Norm, Span};
use meshwright_engine::plan::{Layout, Recompute, ZeroStage};
use meshwright_planner::limits::Obstacle;

/// The launch script, the YAML and the program.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), config(request, sizes), program()])
}

/// Name of the YAML.
const CONFIG: &str = "gpt_neox.yml";
/// Name of the program.
pub(crate) const PROGRAM: &str = "gpt_neox.py";

/// Program with the steps of `train.py` that follow the reading of its launcher's configuration.
const TRAIN: &str = "\
import sys

from megatron.neox_arguments import NeoXArgs
from megatron.training import pretrain

args = NeoXArgs.from_ymls(sys.argv[1:])
args.configure_distributed_args()
args.build_tokenizer()
args.initialize_tensorboard_writer()
args.initialize_comet()
pretrain(neox_args=args)";

fn program() -> EmittedFile {
    let mut text = Lines::<Python>::new();
    text.comments(["Training by the YAML files that are its arguments, on every rank that torchrun starts."]);
    text.fixed(TRAIN);
    text.into_file(PROGRAM)
}

fn config(request: &Request, sizes: &Sizes) -> EmittedFile {
    let problem = request.costs.problem;
    let model = problem.model();
    let mut notes =
        vec![format!("the vocabulary is that of the tokenizer in the file; the plan is for {} tokens", model.vocab)];
    notes.extend(unknown(model).map(|missing| {
        format!("the model's source does not say its {missing}: GPT-NeoX's defaults hold; set what it has")
    }));
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &notes));
    text.comments(["To be edited: all that says TO_BE_SET. Other files, with data and folders of a site, may stand \
    behind the script's name."]);
    parallelism(request, &mut text);
    architecture(request, sizes, &mut text);
    sharding(request, &mut text);
    run(request, &mut text);
    text.into_file(CONFIG)
}

/// Sizes of the mesh, and the batch.
fn parallelism(request: &Request, text: &mut Lines<Yaml>) {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (workload, Layout { tp, pp, .. }) = (problem.workload(), plan.layout);
    // 0 runs the layers without the pipeline engine.
    let stages = if pp == 1 { 0 } else { pp };
    text.line(snippet!("global_num_gpus: {}\npipe_parallel_size: {}", problem.cluster().gpus, stages));
    text.line(snippet!("model_parallel_size: {}\nsequence_parallel: {}", tp, plan.sequence_parallel));
    text.line(snippet!("train_batch_size: {}", workload.global_batch));
    text.line(snippet!("train_micro_batch_size_per_gpu: {}", plan.micro_batch));
    text.line(snippet!("gradient_accumulation_steps: {}", request.accumulation()));
    let full = plan.recompute == Recompute::Full;
    text.line(snippet!("checkpoint_activations: {}", full));
    if full {
        text.line(snippet!("checkpoint_num_layers: 1\ncheckpoint_in_cpu: {}", plan.offload.activations > 0.0));
    }
}

fn architecture(request: &Request, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let problem = request.costs.problem;
    let (model, seq_len) = (problem.model(), problem.workload().seq_len);
    text.line(snippet!("num_layers: {}\nhidden_size: {}", model.layers(), model.hidden));
    text.line(snippet!("num_attention_heads: {}", sizes.heads()));
    if let SharedMixer::Attention(attention) = &sizes.mixer
        && attention.kv_heads < attention.heads
    {
        text.line(snippet!("num_kv_heads: {}", attention.kv_heads));
    }
    let biases = sizes.biases();
    feed_forward(model, sizes, text);
    text.line(snippet!("use_bias_in_attn_linear: {}\nuse_bias_in_mlp: {}", biases.qkv, biases.mlp));
    text.line(snippet!("no_weight_tying: {}", !model.tied_embeddings));
    let parallel = model.details.others.iter().any(|(name, _)| name == PARALLEL);
    text.line(snippet!("gpt_j_residual: {}\ngpt_j_tied: false", parallel));
    norm(model, text);
    text.line(snippet!("seq_length: {}", seq_len));
    text.line(snippet!("max_position_embeddings: {}", seq_len.max(model.learned_positions)));
    if sizes.rope[0] {
        text.fixed("pos_emb: rotary");
        text.line(snippet!("rotary_pct: {}", model.details.rotary_share.unwrap_or(1.0)));
        if let Some(theta) = model.details.rope_theta {
            text.line(snippet!("rotary_emb_base: {}", theta as u64));
        }
    } else {
        text.fixed("pos_emb: learned");
    }
    let plain = matches!(problem.stack().attention, AttentionKernel::Unfused | AttentionKernel::Efficient);
    let kernel = if plain { "global" } else { "flash" };
    text.line(snippet!("attention_config: [[[{}], {}]]", kernel, model.layers()));
    if let Span::Window(width) = sizes.spans[0] {
        text.line(snippet!("sliding_window_width: {}", width));
    }
    let dropout = if model.dropout { 0.1 } else { 0.0 };
    text.line(snippet!("hidden_dropout: {}\nattention_dropout: {}", dropout, dropout));
}

/// Width and activation of the MLP. A gated one keeps a third of the width that the file says, in each of its matrices.
fn feed_forward(model: &Model, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let width = u64::from(sizes.dense.as_ref().map_or(0, |mlp| mlp.intermediate));
    let activation = match &model.details.activation {
        _ if sizes.gated() => "swiglu",
        Some(Activation::Silu) => "silu",
        _ => "gelu",
    };
    let tanh = model.details.activation == Some(Activation::GeluTanh);
    text.line(snippet!("intermediate_size: {}", if sizes.gated() { 3 * width } else { width }));
    text.line(snippet!("activation: {}\nbias_gelu_fusion: {}", activation, tanh));
}

fn norm(model: &Model, text: &mut Lines<Yaml>) {
    let (name, key) = match model.norm {
        Norm::Rms => ("rmsnorm", "rms_norm_epsilon"),
        Norm::Layer | Norm::LayerNoBias => ("layernorm", "layernorm_epsilon"),
        Norm::LayerPlain => ("non_parametric_layernorm", "layernorm_epsilon"),
    };
    text.line(snippet!("norm: {}", name));
    if let Some(epsilon) = model.details.norm_epsilon {
        text.line(snippet!("{}: {}", Snippet::fixed(key), epsilon));
    }
}

/// ZeRO, formats and the optimizer.
fn sharding(request: &Request, text: &mut Lines<Yaml>) {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (workload, stack) = (problem.workload(), problem.stack());
    let half = workload.half.name();
    let on_host = plan.offload.optimizer > 0.0;
    text.line(snippet!("zero_optimization:\n  stage: {}", u8::from(plan.zero)));
    text.line(snippet!(
        "  overlap_comm: {}\n  contiguous_gradients: {}",
        stack.overlap.dp && plan.zero != ZeroStage::Zero,
        plan.zero != ZeroStage::Zero
    ));
    text.fixed("  allgather_partitions: true\n  reduce_scatter: true");
    if let Some(bucket) = stack.bucket {
        let elements = (bucket.get() / stack.reduce_bytes).round() as u64;
        text.line(snippet!("  allgather_bucket_size: {}\n  reduce_bucket_size: {}", elements, elements));
    }
    if on_host {
        text.fixed("  offload_optimizer:\n    device: cpu\n    pin_memory: true");
    }
    text.line(snippet!("precision: {}", if half == "bf16" { "bfloat16" } else { "fp16" }));
    if half == "fp16" {
        text.fixed(
            "fp16:\n  enabled: true\n  loss_scale: 0\n  loss_scale_window: 1000\n  hysteresis: 2\n  min_loss_scale: 1",
        );
    }
    let gradients = if bytes_are(workload.recipe.gradient, 4.0) { "fp32" } else { half };
    text.line(snippet!("data_types:\n  grad_accum_dtype: {}", gradients));
    text.line(snippet!("optimizer:\n  type: {}", if on_host { "CPU_Adam" } else { "Adam" }));
    text.fixed("  params:\n    lr: 0.0003\n    betas: [0.9, 0.95]\n    eps: 0.00000001");
    text.fixed("min_lr: 0.00003\nlr_decay_style: cosine\nwarmup: 0.01\nweight_decay: 0.1\ngradient_clipping: 1.0");
}

/// Steps, data and folders.
fn run(request: &Request, text: &mut Lines<Yaml>) {
    for key in ["data_path", "vocab_file"] {
        text.line(snippet!("{}: {}", Snippet::fixed(key), Snippet::fixed(UNSET)));
    }
    text.fixed("tokenizer_type: HFTokenizer\ndistributed_backend: nccl\nlog_interval: 1\nsteps_per_print: 10");
    if let Some(steps) = request.steps {
        text.line(snippet!("train_iters: {}\nlr_decay_iters: {}", steps, steps));
        return;
    }
    for key in ["train_iters", "lr_decay_iters", "save"] {
        text.line(snippet!("{}: {}", Snippet::fixed(key), Snippet::fixed(UNSET)));
    }
    text.fixed("checkpoint_factor: 1000");
}

fn script(request: &Request) -> EmittedFile {
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &[
            "Run it once a node; under Slurm: sbatch launch.sbatch. Data and tokenizer are set in its YAML, or in \
            others whose names follow",
            "its own.",
        ],
        variables: &[("GPT_NEOX", "a checkout of GPT-NeoX")],
        marked: Some(MarkedFile { name: CONFIG, of: "data, tokenizer, and for training steps and a folder" }),
        exports: "export PYTHONPATH=\"$GPT_NEOX${PYTHONPATH:+:$PYTHONPATH}\" CUDA_DEVICE_MAX_CONNECTIONS=1\n",
        program: snippet!("{} {} \"$@\"", PROGRAM, CONFIG),
    };
    script.file(request, "gpt_neox.sh")
}
