//! Megatron-Bridge's recipes of hybrids of Mamba, attention and MLP layers.

use meshwright::frameworks;
use meshwright::import::{self, Context, FileKind};
use meshwright::model::{Ffn, Norm};

/// A recipe of a hybrid; `PROVIDER` is its class, `MORE` further settings. The classes have other defaults than Megatron-LM's flags.
const HYBRID: &str = "
from megatron.bridge.recipes.common import _pretrain_common

def hybrid_pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = PROVIDER(
        hybrid_layer_pattern='M-M-|M*-E', num_layers=8, hidden_size=4096, num_attention_heads=32, num_query_groups=8,
        ffn_hidden_size=16384, mamba_num_heads=128, mamba_state_dim=128, num_moe_experts=8, moe_ffn_hidden_size=2048,
        pipeline_model_parallel_size=2, vocab_size=131072, seq_length=4096,
    )
    MORE
    return cfg
";

#[test]
fn a_provider_of_hybrids_has_its_own_defaults() {
    let read = |provider: &str, more: &str| {
        let text = HYBRID.replace("PROVIDER", provider).replace("MORE", more);
        let kind = FileKind::Of(&frameworks::MEGATRON_BRIDGE);
        import::read(&text, kind, &Context::alone("recipe.py")).unwrap().model.unwrap()
    };
    for provider in ["HybridModelProvider", "MambaModelProvider"] {
        let model = read(provider, "pass");
        assert_eq!((model.layers(), model.norm, model.tied_embeddings), (8, Norm::Rms, false));
        assert_eq!((model.learned_positions, model.dropout), (0, false));
        let biased = model.kinds.iter().any(|layer| match &layer.ffn {
            Ffn::Dense(mlp) => mlp.bias,
            Ffn::Moe(moe) => moe.bias,
            Ffn::None => layer.attention().is_some_and(|attention| attention.qkv_bias),
        });
        assert!(!biased, "{:?}", model.kinds);
    }
    let changed = "cfg.model.normalization = 'LayerNorm'; cfg.model.share_embeddings_and_output_weights = True";
    let model = read("HybridModelProvider", changed);
    assert_eq!((model.norm, model.tied_embeddings), (Norm::Layer, true), "what a program says counts");
    let plain = read("GPTModelProvider", "pass");
    assert_eq!((plain.norm, plain.tied_embeddings), (Norm::Layer, true), "transformers have the flags' defaults");
}
