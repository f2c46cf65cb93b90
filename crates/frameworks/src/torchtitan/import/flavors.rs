//! Flavors of torchtitan's models: those of the catalogue by its name, others by their sizes.
//!
//! Source: [torchtitan] `torchtitan/models/*/__init__.py`, release 0.3.0 (Llama 4: 0.2).

use crate::import::known::catalogued;
use meshwright_engine::model::{Attention, Details, Ffn, Layer, Mixer, Mla, Mlp, Model, Moe, Norm, QkNorm};

/// Flavor that the catalogue has.
struct Catalogued {
    family: &'static str,
    flavor: &'static str,
    /// Its name in the catalogue.
    model: &'static str,
}

/// Flavors that the catalogue has.
const OF_CATALOGUE: &[Catalogued] = &[
    Catalogued { family: "llama3", flavor: "8B", model: "llama3-8b" },
    Catalogued { family: "llama3", flavor: "70B", model: "llama3-70b" },
    Catalogued { family: "llama3", flavor: "405B", model: "llama3-405b" },
    Catalogued { family: "llama4", flavor: "17bx16e", model: "llama4-scout" },
    Catalogued { family: "llama4", flavor: "17bx128e", model: "llama4-maverick" },
    Catalogued { family: "deepseek_v3", flavor: "236B", model: "deepseek-v2" },
    Catalogued { family: "deepseek_v3", flavor: "671B", model: "deepseek-v3" },
    Catalogued { family: "qwen3", flavor: "8B", model: "qwen3-8b" },
    Catalogued { family: "qwen3", flavor: "32B", model: "qwen3-32b" },
    Catalogued { family: "qwen3", flavor: "30B-A3B", model: "qwen3-30b-a3b" },
    Catalogued { family: "qwen3", flavor: "235B-A22B", model: "qwen3-235b-a22b" },
    Catalogued { family: "gpt_oss", flavor: "20b", model: "gpt-oss-20b" },
    Catalogued { family: "gpt_oss", flavor: "120b", model: "gpt-oss-120b" },
];

/// A dense flavor by its sizes.
struct Dense {
    family: &'static str,
    flavor: &'static str,
    layers: usize,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    intermediate: u32,
    vocab: u32,
    tied: bool,
}

const LLAMA: Dense = Dense {
    family: "llama3",
    flavor: "1B",
    layers: 16,
    hidden: 2048,
    heads: 32,
    kv_heads: 8,
    head_dim: 64,
    intermediate: 8192,
    vocab: 128_256,
    tied: true,
};
const QWEN: Dense = Dense {
    family: "qwen3",
    flavor: "0.6B",
    layers: 28,
    hidden: 1024,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    intermediate: 3072,
    vocab: 151_936,
    tied: true,
};

/// Dense flavors that the catalogue does not have. Llama's heads are plain, Qwen's are normed.
const DENSE: &[Dense] = &[
    LLAMA,
    Dense { flavor: "3B", layers: 28, hidden: 3072, heads: 24, head_dim: 128, ..LLAMA },
    Dense {
        flavor: "debugmodel",
        layers: 6,
        hidden: 256,
        heads: 16,
        kv_heads: 16,
        head_dim: 16,
        intermediate: 768,
        vocab: 2048,
        tied: false,
        ..LLAMA
    },
    QWEN,
    Dense { flavor: "1.7B", hidden: 2048, intermediate: 6144, ..QWEN },
    Dense { flavor: "4B", layers: 36, hidden: 2560, heads: 32, intermediate: 9728, ..QWEN },
    Dense { flavor: "14B", layers: 40, hidden: 5120, heads: 40, intermediate: 17_408, tied: false, ..QWEN },
];

/// The model of a flavor; none where neither the catalogue nor this list has it.
pub(super) fn model(family: &str, flavor: &str) -> Option<Model> {
    let named = |of: &str, known: &str| of == family && known.eq_ignore_ascii_case(flavor);
    if let Some(known) = OF_CATALOGUE.iter().find(|known| named(known.family, known.flavor)) {
        return catalogued(known.model);
    }
    if let Some(sizes) = DENSE.iter().find(|sizes| named(sizes.family, sizes.flavor)) {
        return Some(dense(sizes));
    }
    named("deepseek_v3", "16B").then(lite)
}

/// Names of its families, for files that import one.
pub(super) fn families() -> impl DoubleEndedIterator<Item = &'static str> + Clone {
    ["deepseek_v3", "gpt_oss", "llama3", "llama4", "qwen3"].into_iter()
}

/// A model with RMSNorm and no part beyond its layers, at the length that its configurations train with.
pub(super) fn plain(name: String, hidden: u32, vocab: u32, kinds: Vec<Layer>, order: Vec<usize>) -> Model {
    Model {
        name,
        source: "torchtitan".into(),
        hidden,
        vocab,
        seq_len: 4096,
        tied_embeddings: false,
        learned_positions: 0,
        embedding_norm: false,
        head_bias: false,
        norm: Norm::Rms,
        dropout: false,
        kinds,
        order,
        mtp_depth: 0,
        details: Details::default(),
    }
}

fn dense(sizes: &Dense) -> Model {
    let Dense { family, flavor, layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, tied } = *sizes;
    let mixer = Mixer::Attention(Attention {
        qk_norm: if family == "qwen3" { QkNorm::PerHead } else { QkNorm::None },
        ..Attention::plain(heads, kv_heads, head_dim)
    });
    let ffn = Ffn::Dense(Mlp { intermediate, gated: true, bias: false });
    let layer = Layer { mixer, ffn, norms: 2, extra_parameters: 0 };
    let model = plain(format!("{family} {flavor}"), hidden, vocab, vec![layer], vec![0; layers]);
    Model { tied_embeddings: tied, ..model }
}

/// DeepSeek-V2-Lite: 27 layers, the first dense, 64 experts and 2 shared ones in the others.
fn lite() -> Model {
    let latent =
        Mla { heads: 16, q_rank: 0, kv_rank: 512, nope_dim: 128, rope_dim: 64, v_dim: 128, rope: true, indexer: None };
    let mixer = Mixer::Mla(latent);
    let first = Ffn::Dense(Mlp { intermediate: 10_944, gated: true, bias: false });
    let other = Ffn::Moe(Moe { shared_intermediate: 2816, ..Moe::gated(64, 6, 1408) });
    let kinds = [first, other].map(|ffn| Layer { mixer: mixer.clone(), ffn, norms: 2, extra_parameters: 0 });
    let order = (0..27_usize).map(|layer| usize::from(layer > 0)).collect();
    plain("deepseek_v3 16B".into(), 2048, 102_400, kinds.into(), order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of the same models as their makers publish them.
    #[test]
    fn flavors_weigh_what_their_models_weigh() {
        for (family, flavor, parameters) in [
            ("llama3", "1B", 1_235_814_400),
            ("llama3", "3b", 3_212_749_824),
            ("qwen3", "0.6B", 596_049_920),
            ("qwen3", "1.7B", 1_720_574_976),
            ("qwen3", "4B", 4_022_468_096),
            ("qwen3", "14B", 14_768_307_200),
            ("deepseek_v3", "16B", 15_706_484_224),
        ] {
            let model = model(family, flavor).unwrap();
            assert!(model.check().is_ok());
            assert_eq!(model.parameters().total, parameters, "{family} {flavor}");
        }
        assert!(model("llama3", "9B").is_none());
    }
}
