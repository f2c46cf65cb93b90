//! Defaults of the classes for fields that a file may leave out: files of multimodal models have in their part for text only what
//! differs from its class.
//!
//! Source: [transformers] `configuration_*.py` of each family, release 5.24.0.

use serde_json::{Map, Value};

/// Names and defaults of one class.
type Defaults = &'static [(&'static str, u32)];

/// Sizes of a class that a multimodal configuration may leave out of its part for text, as files of LLaVA do.
const SIZES: &[(&str, Defaults)] = &[
    (
        "llama",
        &[
            ("hidden_size", 4096),
            ("intermediate_size", 11008),
            ("num_attention_heads", 32),
            ("num_hidden_layers", 32),
            ("vocab_size", 32000),
        ],
    ),
    (
        "mistral",
        &[
            ("hidden_size", 4096),
            ("intermediate_size", 14336),
            ("num_attention_heads", 32),
            ("num_hidden_layers", 32),
            ("vocab_size", 32000),
        ],
    ),
];

/// Heads of keys and values where a file has none, in classes whose default is not the number of query heads.
const KV_HEADS: &[(&str, u32)] = &[
    ("bamba", 8),
    ("beam", 8),
    ("cwm", 8),
    ("ernie4_5", 2),
    ("ernie4_5_moe", 4),
    ("exaone", 8),
    ("exaone4", 32),
    ("exaone_moe", 32),
    ("falcon_h1", 8),
    ("flint", 4),
    ("gemma", 16),
    ("gemma2", 4),
    ("gemma4_text", 4),
    ("gemma4_unified_text", 4),
    ("glm", 2),
    ("glm4", 2),
    ("glm4_moe", 8),
    ("glm4v_moe_text", 8),
    ("glm4v_text", 2),
    ("gpt_oss", 8),
    ("granite_swa", 4),
    ("helium", 20),
    ("hy_v3", 8),
    ("internlm3", 2),
    ("iquestcoder", 8),
    ("kolibri1", 4),
    ("laguna", 8),
    ("lfm2", 8),
    ("lfm2_moe", 8),
    ("lfm3", 4),
    ("llama4_text", 8),
    ("mellum", 4),
    ("mimo", 32),
    ("mimo_v2", 4),
    ("mimo_v2_flash", 4),
    ("minimax_m2", 8),
    ("ministral", 8),
    ("ministral3", 8),
    ("mistral", 8),
    ("mixtral", 8),
    ("muse_glimmer_text", 2),
    ("nemotron_h", 8),
    ("phimoe", 8),
    ("qwen2", 32),
    ("qwen2_5_omni_text", 4),
    ("qwen2_5_vl", 8),
    ("qwen2_5_vl_text", 8),
    ("qwen2_moe", 16),
    ("qwen2_vl", 8),
    ("qwen2_vl_text", 8),
    ("qwen3", 32),
    ("qwen3_5_moe_text", 2),
    ("qwen3_5_text", 4),
    ("qwen3_moe", 4),
    ("qwen3_next", 2),
    ("qwen3_omni_moe_text", 4),
    ("qwen3_vl_moe_text", 16),
    ("qwen3_vl_text", 32),
    ("sarvam_moe", 4),
    ("seed_oss", 8),
    ("smollm3", 4),
    ("solar_open", 8),
    ("stablelm", 32),
    ("starcoder2", 2),
    ("vaultgemma", 4),
];

/// Experts, layers without experts, ranks and heads of latent attention, and sizes of Mamba where a file has none; null
/// is none at all.
const PARTS: &[(&str, Defaults)] = &[
    ("afmoe", &[("num_dense_layers", 1), ("num_shared_experts", 2)]),
    ("aria_text", &[("moe_num_shared_experts", 2)]),
    ("axk1", &[("n_group", 8), ("n_shared_experts", 1), ("q_lora_rank", 1536), ("topk_group", 4)]),
    ("beam", &[("n_group", 8), ("topk_group", 4)]),
    ("deepseek_v2", &[("n_shared_experts", 2), ("q_lora_rank", 1536)]),
    ("deepseek_v3", &[("first_k_dense_replace", 3), ("n_shared_experts", 1), ("q_lora_rank", 1536)]),
    ("deepseek_v32", &[("n_shared_experts", 1), ("q_lora_rank", 1536)]),
    ("ernie4_5_moe", &[("moe_num_shared_experts", 2)]),
    ("exaone_moe", &[("num_shared_experts", 1)]),
    (
        "falcon_h1",
        &[
            ("mamba_d_conv", 4),
            ("mamba_d_ssm", 1024),
            ("mamba_d_state", 256),
            ("mamba_n_groups", 1),
            ("mamba_n_heads", 128),
        ],
    ),
    ("glm4_moe", &[("first_k_dense_replace", 1), ("n_shared_experts", 1)]),
    ("glm4_moe_lite", &[("n_shared_experts", 1), ("q_lora_rank", 768)]),
    ("glm4v_moe_text", &[("first_k_dense_replace", 1), ("n_shared_experts", 1)]),
    ("glm_moe_dsa", &[("n_shared_experts", 1), ("q_lora_rank", 2048)]),
    ("hy_v3", &[("num_shared_experts", 1)]),
    (
        "kimi_linear",
        &[
            ("first_k_dense_replace", 1),
            ("kv_lora_rank", 512),
            ("num_experts", 256),
            ("num_experts_per_token", 8),
            ("num_shared_experts", 1),
            ("qk_nope_head_dim", 128),
            ("qk_rope_head_dim", 64),
            ("v_head_dim", 128),
        ],
    ),
    ("minicpm3", &[("q_lora_rank", 768)]),
    ("mistral4", &[("n_shared_experts", 1), ("q_lora_rank", 1024)]),
    ("sarvam_mla", &[("first_k_dense_replace", 1), ("n_shared_experts", 1)]),
    ("sarvam_moe", &[("first_k_dense_replace", 1), ("n_shared_experts", 1)]),
    ("solar_open", &[("n_shared_experts", 1)]),
    ("youtu", &[("q_lora_rank", 1536)]),
];

/// Defaults of a class in a table; none where it has none.
fn defaults_of(table: &'static [(&str, Defaults)], model_type: &str) -> Defaults {
    table.iter().find(|(family, _)| *family == model_type).map_or(&[], |(_, defaults)| defaults)
}

/// Fields with another name in files of the same family.
const ALIASES: &[(&str, &str)] = &[("n_shared_experts", "num_shared_experts")];

/// Adds the fields that a part of a file left out.
fn add_missing(part: &mut Map<String, Value>, defaults: Defaults) {
    for (name, value) in defaults {
        let alias = ALIASES.iter().find(|(field, _)| field == name).map(|(_, alias)| *alias);
        if alias.is_none_or(|alias| !part.contains_key(alias)) {
            part.entry(*name).or_insert_with(|| Value::from(*value));
        }
    }
}

/// Adds the sizes that a multimodal file left out of its part for text.
pub fn add_sizes(part: &mut Map<String, Value>, model_type: &str) {
    add_missing(part, defaults_of(SIZES, model_type));
}

/// Adds the parts that a file left out and its class has by default.
pub fn add_parts(part: &mut Map<String, Value>, model_type: &str) {
    add_missing(part, defaults_of(PARTS, model_type));
    if let Some((_, heads)) = KV_HEADS.iter().find(|(family, _)| *family == model_type) {
        part.entry("num_key_value_heads").or_insert_with(|| Value::from(*heads));
    }
}
