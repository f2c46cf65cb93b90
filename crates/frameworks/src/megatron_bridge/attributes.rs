//! Attributes of a `ConfigContainer` that Megatron-LM's flags are.
//!
//! Source: [megatron-bridge] `megatron/bridge/training/config.py`, `models/gpt_provider.py`, `models/mla_provider.py`, release 0.6.2.

use crate::details::has_latent_defaults;
use crate::emit::flags::{FlagSetting, FlagValue};
use crate::emit::language::Python;
use crate::emit::snippet::{Snippet, snippet};
use meshwright_engine::model::{Model, RopeScaling, RopeScalingKind};

/// Lines of Python that set a flag: attributes of the container, or none where other code sets it. `latent` for the
/// provider of latent attention, whose YaRN has attributes of its own.
pub(super) fn attributes(setting: &FlagSetting, latent: bool) -> Vec<Snippet<Python>> {
    let FlagSetting { flag, value } = setting;
    let set = |path: Snippet<Python>| vec![snippet!("{} = {}", path, python(value))];
    let name = || Snippet::name(flag);
    let fixed = |lines: &[&'static str]| lines.iter().map(|line| Snippet::fixed(line)).collect();
    match *flag {
        // Said by the provider's class, by the recipe of formats, or by default.
        "group-query-attention"
        | "max-position-embeddings"
        | "bf16"
        | "fp16"
        | "fp8-format"
        | "fp8-recipe"
        | "fp4-format"
        | "fp4-recipe"
        | "fp8-param-gather"
        | "reuse-grad-buf-for-mxfp8-param-ag"
        | "accumulate-allreduce-grads-in-fp32"
        | "grad-reduce-in-bf16"
        | "transformer-impl"
        | "spec"
        | "overlap-grad-reduce"
        | "overlap-param-gather"
        | "use-distributed-optimizer"
        | "tp-comm-overlap"
        | "no-overlap-p2p-communication"
        | "overlap-moe-expert-parallel-comm"
        | "delay-wgrad-compute" => Vec::new(),
        "swiglu" => fixed(&["model.gated_linear_unit = True", "model.activation_func = F.silu"]),
        "quick-geglu" => fixed(&["model.gated_linear_unit = True", "model.activation_func = quick_gelu"]),
        "squared-relu" => fixed(&["model.activation_func = squared_relu"]),
        "no-bias-gelu-fusion" => fixed(&["model.bias_activation_fusion = False"]),
        "norm-epsilon" => set(Snippet::fixed("model.layernorm_epsilon")),
        "rotary-scaling-factor" | "mscale" | "mscale-all-dim" if !latent => set(snippet!("model.yarn_{}", name())),
        "no-yarn-correction-range-round-to-int" => fixed(&["model.yarn_correction_range_round_to_int = False"]),
        "no-rope-fusion" => fixed(&["model.apply_rope_fusion = False"]),
        "no-dsa-indexer-rotate-activation" => fixed(&["model.dsa_indexer_rotate_activation = False"]),
        "use-rope-scaling" => fixed(&["model.rope_scaling = True"]),
        "rotary-seq-len-interpolation-factor" => set(Snippet::fixed("model.seq_len_interpolation_factor")),
        "disable-bias-linear" => fixed(&["model.add_bias_linear = False"]),
        "untie-embeddings-and-output-weights" => fixed(&["model.share_embeddings_and_output_weights = False"]),
        "num-experts" => set(Snippet::fixed("model.num_moe_experts")),
        "no-bias-dropout-fusion" => fixed(&["model.bias_dropout_fusion = False"]),
        "no-gradient-accumulation-fusion" => fixed(&["model.gradient_accumulation_fusion = False"]),
        "num-virtual-stages-per-pipeline-rank" => set(Snippet::fixed("model.virtual_pipeline_model_parallel_size")),
        "decoder-first-pipeline-num-layers" => set(Snippet::fixed("model.num_layers_in_first_pipeline_stage")),
        "decoder-last-pipeline-num-layers" => set(Snippet::fixed("model.num_layers_in_last_pipeline_stage")),
        "window-size" => {
            vec![snippet!("model.window_size = {}", Snippet::value(&format!("({})", plain(value).replace(',', ", "))))]
        }
        "attention-backend" => vec![snippet!("model.attention_backend = AttnBackend.{}", Snippet::name(&plain(value)))],
        "cpu-offloading-num-layers" => {
            [fixed(&["model.cpu_offloading = True"]), set(Snippet::fixed("model.cpu_offloading_num_layers"))].concat()
        }
        "micro-batch-size" | "global-batch-size" => set(snippet!("train.{}", name())),
        "seq-length" => ["model.seq_length", "dataset.seq_length"].map(|path| set(Snippet::fixed(path))).concat(),
        "use-tp-pp-dp-mapping" => set(Snippet::fixed("dist.use_tp_pp_dp_mapping")),
        "num-distributed-optimizer-instances" | "data-parallel-sharding-strategy" => set(snippet!("ddp.{}", name())),
        "megatron-fsdp-main-grads-dtype" => fixed(&["ddp.megatron_fsdp_main_grads_dtype = torch.float32"]),
        "use-megatron-fsdp" => {
            ["ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"].map(|path| set(Snippet::fixed(path))).concat()
        }
        "te-rng-tracker" => {
            ["model.use_te_rng_tracker", "rng.te_rng_tracker"].map(|path| set(Snippet::fixed(path))).concat()
        }
        "ckpt-format" => set(Snippet::fixed("checkpoint.ckpt_format")),
        "optimizer" => set(Snippet::fixed("optimizer.optimizer")),
        "exp-avg-dtype" | "exp-avg-sq-dtype" => {
            let dtype = if plain(value) == "bf16" { "bfloat16" } else { "uint8" };
            vec![snippet!("optimizer.{} = torch.{}", name(), Snippet::name(dtype))]
        }
        "use-precision-aware-optimizer"
        | "optimizer-cpu-offload"
        | "optimizer-offload-fraction"
        | "overlap-cpu-optimizer-d2h-h2d" => set(snippet!("optimizer.{}", name())),
        _ => set(snippet!("model.{}", name())),
    }
}

/// Numbers of latent attention's YaRN that no flag says; none where they are the provider's own.
pub(super) fn latent_yarn(model: &Model) -> Vec<Snippet<Python>> {
    let Some(scaling) = model.details.rope_scaling.as_ref().filter(|_| model.has_mla()) else { return Vec::new() };
    let RopeScaling {
        kind: RopeScalingKind::Yarn { beta_fast, beta_slow, .. },
        original_positions: Some(original),
        ..
    } = scaling
    else {
        return Vec::new();
    };
    if has_latent_defaults(scaling) {
        return Vec::new();
    }
    vec![
        snippet!("beta_fast = {}", *beta_fast),
        snippet!("beta_slow = {}", *beta_slow),
        snippet!("original_max_position_embeddings = {}", *original),
    ]
}

fn plain(value: &FlagValue) -> String {
    match value {
        FlagValue::On => String::new(),
        FlagValue::Word(word) => word.clone(),
        FlagValue::Words(words) => words.join(" "),
    }
}

fn python(value: &FlagValue) -> Snippet<Python> {
    match value {
        FlagValue::On => true.into(),
        FlagValue::Word(word) => Snippet::value(word),
        FlagValue::Words(words) => {
            snippet!("[{}]", Snippet::joined(words.iter().map(|word| Snippet::value(word)), ", "))
        }
    }
}
