//! llm-foundry: its YAML with the sizes of an MPT, and a script with the line of Composer's launcher.
//!
//! Keys: [llm-foundry-code] `utils/config_utils.py` (`TrainConfig`, which refuses others),
//! `models/mpt/configuration_mpt.py`, commit 8c8dd48f; [composer] `utils/parallelism.py`, `cli/launcher.py`, release
//! 0.32.1.

use super::limits::{CAP, LIMITS};
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::Yaml;
use crate::emit::launcher::{
    FIRST, MarkedFile, NODE, Nodes, PORT, UNSET, check_variables, environment, launch_script, no_marks,
};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::rules::bytes_are;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::{Activation, Attention, Model, Moe, Norm, QkNorm, RopeScaling, RopeScalingKind, Span};
use meshwright_engine::plan::{Recompute, ZeroStage};
use meshwright_engine::workload::Half;
use meshwright_planner::limits::Obstacle;

/// The launch script and the YAML.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), config(request, sizes)])
}

/// Weight of the loss that balances experts where the model's source has none: MegaBlocks' own.
const LOSS_WEIGHT: f64 = 0.1;

/// Name of the YAML.
const CONFIG: &str = "llm_foundry.yaml";

fn config(request: &Request, sizes: &Sizes) -> EmittedFile {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    let (model, workload) = (problem.model(), problem.workload());
    let mut notes = vec![format!("the tokenizer must have at most the {} tokens of the plan", model.vocab)];
    notes.extend(unknown(model).map(|missing| {
        format!("the model's source does not say its {missing}: llm-foundry's defaults hold; set what it has")
    }));
    if sizes.moe.is_some() && (model.details.router.normalized.is_none() || model.details.router.aux_loss.is_none()) {
        notes.push(format!(
            "the model's source does not say all of its router: scores are divided by their sum, and the loss weighs {LOSS_WEIGHT}"
        ));
    }
    if plan.zero == ZeroStage::Zero && plan.layout.dp > 1 && !bytes_are(problem.stack().reduce_bytes, 4.0) {
        notes.push("DDP reduces gradients in fp32, the plan is priced otherwise".into());
    }
    let mut text = Lines::<Yaml>::new();
    text.comments(lines(&LIMITS, request, &notes));
    text.comments(["To be edited: all that says TO_BE_SET."]);
    text.line(snippet!("max_seq_len: {}\nglobal_train_batch_size: {}", workload.seq_len, workload.global_batch));
    text.line(snippet!("device_train_microbatch_size: {}", plan.micro_batch));
    text.line(snippet!("precision: {}", if workload.half == Half::Fp16 { "amp_fp16" } else { "amp_bf16" }));
    sharding(request, &mut text);
    architecture(request, sizes, &mut text);
    run(request, &mut text);
    text.into_file(CONFIG)
}

/// `fsdp_config`; without it Composer wraps by DDP.
fn sharding(request: &Request, text: &mut Lines<Yaml>) {
    let (plan, stack) = (&request.evaluation.plan, request.costs.problem.stack());
    if plan.zero != ZeroStage::Three {
        return;
    }
    let shard = plan.dense_shards();
    let copies = plan.layout.dp / shard;
    text.line(snippet!("fsdp_config:\n  data_parallel_shard_degree: {}", shard));
    // Two degrees make a mesh of two dimensions, over which its names of strategies differ.
    let strategy = match (copies > 1, plan.reshard_after_forward) {
        (false, true) => "FULL_SHARD",
        (false, false) => "SHARD_GRAD_OP",
        (true, true) => "HYBRID_SHARD",
        (true, false) => "_HYBRID_SHARD_ZERO2",
    };
    if copies > 1 {
        text.line(snippet!("  data_parallel_replicate_degree: {}", copies));
    }
    text.line(snippet!("  sharding_strategy: {}", Snippet::fixed(strategy)));
    let narrow = bytes_are(stack.reduce_bytes, 2.0);
    text.line(snippet!("  mixed_precision: {}", if narrow { "PURE" } else { "DEFAULT" }));
    text.line(snippet!("  activation_checkpointing: {}", plan.recompute == Recompute::Full));
    text.line(snippet!("  activation_checkpointing_reentrant: {}", false));
    text.line(snippet!("  activation_cpu_offload: {}", plan.offload.activations > 0.0));
    text.line(snippet!("  backward_prefetch: {}", if stack.overlap.dp { "BACKWARD_PRE" } else { "BACKWARD_POST" }));
    text.fixed("  limit_all_gathers: true\n  state_dict_type: sharded");
}

fn architecture(request: &Request, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let problem = request.costs.problem;
    let (model, seq_len) = (problem.model(), problem.workload().seq_len);
    let sharded = request.evaluation.plan.zero == ZeroStage::Three;
    // Weights are made where they are sharded; DDP wants them whole.
    text.line(snippet!("model:\n  name: mpt_causal_lm\n  init_device: {}", if sharded { "meta" } else { "cpu" }));
    text.line(snippet!("  d_model: {}\n  n_heads: {}\n  n_layers: {}", model.hidden, sizes.heads(), model.layers()));
    text.line(snippet!("  max_seq_len: {}", seq_len.max(model.learned_positions)));
    text.line(snippet!("  vocab_size: {}\n  tie_word_embeddings: {}", model.vocab, model.tied_embeddings));
    let biases = sizes.biases();
    text.line(snippet!("  no_bias: {}\n  attention_bias: {}", !biases.mlp, biases.qkv));
    norm("  ", model, text);
    let dropout = if model.dropout { 0.1 } else { 0.0 };
    text.line(snippet!("  resid_pdrop: {}\n  emb_pdrop: {}", dropout, dropout));
    if let SharedMixer::Attention(of_model) = &sizes.mixer {
        let unfused = matches!(problem.stack().attention, AttentionKernel::Unfused | AttentionKernel::Efficient);
        attention(model, of_model, sizes, unfused, text);
    }
    feed_forward(request, sizes, text);
}

fn norm(indent: &'static str, model: &Model, text: &mut Lines<Yaml>) {
    let indent = Snippet::fixed(indent);
    let kind = if model.norm == Norm::Rms { "low_precision_rmsnorm" } else { "low_precision_layernorm" };
    text.line(snippet!("{}norm_type: {}", indent.clone(), kind));
    if let Some(epsilon) = model.details.norm_epsilon {
        text.line(snippet!("{}norm_eps: {}", indent, epsilon));
    }
}

fn attention(model: &Model, attention: &Attention, sizes: &Sizes, unfused: bool, text: &mut Lines<Yaml>) {
    let grouped = attention.kv_heads < attention.heads;
    let kind = if grouped { "grouped_query_attention" } else { "multihead_attention" };
    text.line(snippet!("  attn_config:\n    attn_type: {}", kind));
    if grouped {
        text.line(snippet!("    kv_n_heads: {}", attention.kv_heads));
    }
    text.line(snippet!("    attn_impl: {}", if unfused { "torch" } else { "flash" }));
    text.line(snippet!("    attn_pdrop: {}", if model.dropout { 0.1 } else { 0.0 }));
    if let Some((_, cap)) = model.details.others.iter().find(|(name, _)| name == CAP) {
        text.line(snippet!("    clip_qkv: {}", *cap));
    }
    match attention.qk_norm {
        QkNorm::None => {}
        QkNorm::PerHead => text.fixed("    qk_gn: true"),
        QkNorm::Full => text.fixed("    qk_ln: true"),
    }
    if attention.qk_norm != QkNorm::None {
        // Its attention does not take the model's.
        norm("    ", model, text);
    }
    if let Span::Window(width) = sizes.spans[0] {
        // The keys before the query's own.
        text.line(snippet!("    sliding_window_size: {}", width.saturating_sub(1)));
    }
    text.line(snippet!("    rope: {}", sizes.rope[0]));
    if sizes.rope[0] {
        text.fixed("    rope_impl: hf");
        if let Some(theta) = model.details.rope_theta {
            text.line(snippet!("    rope_theta: {}", theta as u64));
        }
        if let Some(scaling) = &model.details.rope_scaling {
            frequencies(scaling, text);
        }
    }
}

/// `rope_hf_config`, which Hugging Face's rotary embedding reads.
fn frequencies(scaling: &RopeScaling, text: &mut Lines<Yaml>) {
    text.line(snippet!("    rope_hf_config:\n      factor: {}", scaling.factor));
    if let RopeScalingKind::Llama3 { low, high } = scaling.kind {
        text.fixed("      type: llama3");
        text.line(snippet!("      low_freq_factor: {}\n      high_freq_factor: {}", low, high));
        text.line(snippet!(
            "      original_max_position_embeddings: {}",
            scaling.original_positions.unwrap_or_default()
        ));
    } else {
        text.fixed("      type: linear");
    }
}

fn feed_forward(request: &Request, sizes: &Sizes, text: &mut Lines<Yaml>) {
    let model = request.costs.problem.model();
    let kind = match (&sizes.moe, sizes.gated()) {
        (Some(_), _) => "mb_dmoe",
        (None, true) => "mptglu",
        (None, false) => "mptmlp",
    };
    let width = sizes.moe.as_ref().map(|moe| moe.intermediate).or(sizes.dense.as_ref().map(|mlp| mlp.intermediate));
    text.line(snippet!("  ffn_config:\n    ffn_type: {}\n    ffn_hidden_size: {}", kind, width.unwrap_or_default()));
    match &model.details.activation {
        _ if sizes.gated() => text.fixed("    ffn_act_fn:\n      name: silu"),
        Some(Activation::Silu) => text.fixed("    ffn_act_fn:\n      name: silu"),
        Some(Activation::GeluTanh) => text.fixed("    ffn_act_fn:\n      name: gelu\n      approximate: tanh"),
        // MegaBlocks' own is by the hyperbolic tangent.
        Some(Activation::Gelu) if sizes.moe.is_some() => text.fixed("    ffn_act_fn:\n      name: gelu"),
        _ => {}
    }
    if let Some(moe) = &sizes.moe {
        experts(request, moe, text);
    }
}

/// Arguments of MegaBlocks, and how many ranks have experts of their own.
fn experts(request: &Request, moe: &Moe, text: &mut Lines<Yaml>) {
    let router = &request.costs.problem.model().details.router;
    text.line(snippet!("    mlp_type: {}\n    mlp_impl: grouped", if moe.gated { "glu" } else { "mlp" }));
    text.line(snippet!("    moe_num_experts: {}\n    moe_top_k: {}", moe.experts, moe.top_k));
    if router.normalized != Some(false) {
        text.fixed("    moe_normalize_expert_weights: 1"); // by their sum
    }
    text.line(snippet!("    moe_loss_weight: {}", router.aux_loss.unwrap_or(LOSS_WEIGHT)));
    text.line(snippet!("    moe_world_size: {}", request.evaluation.plan.layout.ep));
}

/// Data, optimizer, steps and folders.
fn run(request: &Request, text: &mut Lines<Yaml>) {
    let seq_len = request.costs.problem.workload().seq_len;
    text.line(snippet!("tokenizer:\n  name: {}", Snippet::fixed(UNSET)));
    text.line(snippet!("  kwargs:\n    model_max_length: {}", seq_len));
    text.line(snippet!("train_loader:\n  name: text\n  dataset:\n    local: {}", Snippet::fixed(UNSET)));
    text.line(snippet!("    split: train\n    shuffle: true\n    max_seq_len: {}", seq_len));
    text.fixed(
        "  drop_last: true\n  num_workers: 8\n  pin_memory: true\n  prefetch_factor: 2\n  persistent_workers: true",
    );
    text.fixed(
        "optimizer:\n  name: decoupled_adamw\n  lr: 0.0003\n  betas: [0.9, 0.95]\n  eps: 0.00000001\n  \
    weight_decay: 0.00001",
    );
    text.line(snippet!("scheduler:\n  name: cosine_with_warmup\n  t_warmup: {}ba", request.warm_up()));
    text.fixed(
        "  alpha_f: 0.1\nalgorithms:\n  gradient_clipping:\n    clipping_type: norm\n    clipping_threshold: 1.0",
    );
    text.fixed(
        "callbacks:\n  speed_monitor:\n    window_size: 10\n  memory_monitor: {}\nseed: 17\nconsole_log_interval: 1ba",
    );
    // Without evaluation its interval is 1.
    text.fixed("eval_interval: 1");
    if let Some(steps) = request.steps {
        text.line(snippet!("max_duration: {}ba", steps));
        return;
    }
    for key in ["max_duration", "save_folder"] {
        text.line(snippet!("{}: {}", Snippet::fixed(key), Snippet::fixed(UNSET)));
    }
    text.fixed("save_interval: 1000ba");
}

fn script(request: &Request) -> EmittedFile {
    let Nodes { count: nodes, gpus_each } = Nodes::of_request(request);
    let mut text = launch_script(
        &LIMITS,
        request,
        &[],
        [
            "Run it once a node; under Slurm: sbatch launch.sbatch. Data, tokenizer, duration and folder are set in \
            its YAML; what follows",
            "its name goes to llm-foundry, such as optimizer.lr=0.0001.",
        ],
    );
    check_variables(&mut text, &[("LLM_FOUNDRY", "a checkout of llm-foundry")]);
    no_marks(&mut text, MarkedFile { name: CONFIG, of: "tokenizer, data, and for training a duration and a folder" });
    environment(&mut text, request);
    let mut options = vec![snippet!("--nproc {}", gpus_each), snippet!("--world_size {}", nodes * gpus_each)];
    if nodes > 1 {
        options.extend([
            snippet!("--node_rank {}", Snippet::fixed(NODE)),
            snippet!("--master_addr {}", Snippet::fixed(FIRST)),
            snippet!("--master_port {}", Snippet::fixed(PORT)),
        ]);
    }
    text.array("DISTRIBUTED_ARGS", options);
    text.line(snippet!(
        "\ncomposer \"${DISTRIBUTED_ARGS[@]}\" \"$LLM_FOUNDRY/scripts/train/train.py\" {} \"$@\"",
        CONFIG
    ));
    text.into_file("llm_foundry.sh")
}
