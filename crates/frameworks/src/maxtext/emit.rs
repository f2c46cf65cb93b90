//! `MaxText`: a YAML over its `base.yml`, and a script that starts it once a host.
//!
//! Keys: [maxtext] `src/maxtext/configs/base.yml`, commit e591f30c.

use super::limits::{LIMITS, OFFLOADED, POLICIES, inside_and_across};
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{FIRST, NODE, Nodes, PORT, RequiredVariable, check_variables, launch_script};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::model::QkNorm;
use meshwright_planner::limits::Obstacle;

/// Name of the YAML.
pub(super) const CONFIG: &str = "maxtext.yml";

/// The launch script and the YAML.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), config(request, sizes)])
}

fn config(request: &Request, sizes: &Sizes) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let workload = problem.workload();
    let notes: Vec<String> = unknown(problem.model())
        .map(|missing| {
            format!("the model's source does not say its {missing}: MaxText's defaults hold; set what it has")
        })
        .into_iter()
        .collect();
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &notes));
    text.fixed("base_config: base.yml\nrun_name: plan");
    let on_gpus = problem.cluster().gpu.vendor != "Google";
    let nodes = Nodes::of_request(request).count;
    let hardware = match (on_gpus, nodes) {
        (false, _) => "tpu",
        (true, 1) => "gpu",
        (true, _) => "gpu_multiprocess",
    };
    text.line(snippet!("hardware: {}", hardware));
    text.fixed(if on_gpus { "attention: cudnn_flash_te\nmax_segments_per_seq: 32" } else { "attention: flash" });
    architecture(request, sizes, &mut text);
    text.fixed("# degrees: inside a slice, and across slices");
    let domain = problem.cluster().scale_up.gpus;
    for (axis, inside, across) in inside_and_across(plan, domain).unwrap_or_default() {
        text.line(snippet!("ici_{}_parallelism: {}", Snippet::fixed(axis), inside));
        text.line(snippet!("dcn_{}_parallelism: {}", Snippet::fixed(axis), across));
    }
    if plan.layout.cp > 1 {
        text.fixed("context_parallel_strategy: all_gather");
    }
    text.fixed("# batch: sequences per device and micro-batch; a fraction under tensor or context parallelism");
    let share = f64::from(plan.micro_batch) / f64::from(plan.layout.tp * plan.layout.cp);
    text.line(snippet!("per_device_batch_size: {}", share));
    text.line(snippet!(
        "gradient_accumulation_steps: {}\nmax_target_length: {}",
        request.accumulation(),
        workload.seq_len
    ));
    text.fixed("# formats and memory");
    text.fixed("dtype: bfloat16\nweight_dtype: float32\ngrad_dtype: float32\nopt_type: adamw");
    let on_device =
        POLICIES.iter().find(|(recompute, _)| *recompute == plan.recompute).map_or("full", |(_, name)| name);
    let policy = if plan.offload.activations > 0.0 { OFFLOADED } else { on_device };
    text.line(snippet!("remat_policy: {}", Snippet::fixed(policy)));
    text.fixed("# To be edited: learning rate.\nlearning_rate: 3.0e-4");
    match request.steps {
        Some(steps) => {
            text.fixed("dataset_type: synthetic\nenable_checkpointing: false");
            text.line(snippet!("steps: {}", steps));
        }
        None => text.fixed("dataset_type: grain\ntokenizer_type: huggingface\nenable_checkpointing: true"),
    }
    text.into_file(CONFIG)
}

fn architecture(request: &Request, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let model = request.costs.problem.model();
    let SharedMixer::Attention(a) = &sizes.mixer else { return };
    let normed = a.qk_norm == QkNorm::PerHead;
    let decoder = match (&sizes.moe, normed) {
        (None, false) => "llama2",
        (None, true) => "qwen3",
        (Some(_), false) => "mixtral",
        (Some(_), true) => "qwen3_moe",
    };
    text.fixed("# architecture");
    text.line(snippet!("decoder_block: {}\nbase_emb_dim: {}", decoder, model.hidden));
    text.line(snippet!("base_num_decoder_layers: {}\nbase_num_query_heads: {}", model.layers(), a.heads));
    text.line(snippet!("base_num_kv_heads: {}\nhead_dim: {}", a.kv_heads, a.head_dim));
    let width = sizes.dense.as_ref().map(|mlp| mlp.intermediate);
    let width = width.or(sizes.moe.as_ref().map(|moe| moe.intermediate)).unwrap_or(0);
    text.line(snippet!("base_mlp_dim: {}", width));
    text.fixed("mlp_activations: [silu, linear]");
    text.line(snippet!("vocab_size: {}\nlogits_via_embedding: {}", model.vocab, model.tied_embeddings));
    text.line(snippet!("use_qk_norm: {}\nenable_dropout: false", normed));
    let details = &model.details;
    if let Some(theta) = details.rope_theta {
        text.line(snippet!("rope_max_timescale: {}", theta.round()));
    }
    if details.rope_scaling.is_some() {
        text.fixed("rope_type: llama3.1");
    }
    if let Some(epsilon) = details.norm_epsilon {
        text.line(snippet!("normalization_layer_epsilon: {}", epsilon));
    }
    if let Some(moe) = &sizes.moe {
        text.line(snippet!("num_experts: {}\nnum_experts_per_tok: {}", moe.experts, moe.top_k));
        text.line(snippet!("base_moe_mlp_dim: {}", moe.intermediate));
        if normed {
            text.line(snippet!("norm_topk_prob: {}", details.router.normalized.unwrap_or(true)));
        }
        if let Some(loss) = details.router.aux_loss.filter(|loss| *loss > 0.0) {
            text.line(snippet!("load_balance_loss_weight: {}", loss));
        }
    }
}

/// Variables of a training run; a timing run needs the first two.
const VARIABLES: &[RequiredVariable] = &[
    ("MAXTEXT", "a checkout of MaxText"),
    ("SAVE", "a folder for checkpoints and metrics"),
    ("DATA", "the files of a dataset in ArrayRecord, as Grain takes them"),
    ("TOKENIZER", "a tokenizer of Hugging Face: a name or a folder"),
    ("STEPS", "the number of steps"),
];

fn script(request: &Request) -> EmittedFile {
    let nodes = Nodes::of_request(request).count;
    let mut text = launch_script(
        &LIMITS,
        request,
        &[],
        ["Run it in this folder, once a host; on GPUs under Slurm: sbatch launch.sbatch"],
    );
    check_variables(&mut text, if request.steps.is_some() { &VARIABLES[..2] } else { VARIABLES });
    if request.costs.problem.cluster().gpu.vendor != "Google" && nodes > 1 {
        text.comments(["The first node runs JAX's coordinator."]);
        text.line(snippet!("export NNODES={} NODE_RANK={}", nodes, Snippet::fixed(NODE)));
        text.line(snippet!(
            "export JAX_COORDINATOR_IP={} JAX_COORDINATOR_PORT={}",
            Snippet::fixed(FIRST),
            Snippet::fixed(PORT)
        ));
        text.fixed("");
    }
    text.fixed("export PYTHONPATH=\"$MAXTEXT/src${PYTHONPATH:+:$PYTHONPATH}\"\n");
    let run = match request.steps {
        Some(_) => "base_output_directory=\"$SAVE\"",
        None => {
            "base_output_directory=\"$SAVE\" grain_train_files=\"$DATA\" tokenizer_path=\"$TOKENIZER\" steps=\"$STEPS\""
        }
    };
    text.line(snippet!(
        "python3 -m maxtext.trainers.pre_train.train {} \\\n    {} \"$@\"",
        CONFIG,
        Snippet::fixed(run)
    ));
    text.into_file("maxtext.sh")
}
