//! A model that a configuration builds layer by layer instead of naming a flavor.
//!
//! Source: [torchtitan] `torchtitan/models/common/config_utils.py`, `models/{llama3,qwen3,deepseek_v3}/model.py`, release 0.3.0: names
//! and shapes.

use super::flavors;
use crate::import::known;
use crate::readers::document::{CALLED, Document};
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{Attention, Ffn, Layer, Mixer, Mla, Mlp, Model, Moe, QkNorm, RouterScore};
use meshwright_engine::range::LAYERS;

/// Path of the model in a configuration.
const MODEL: &str = "model_spec.model";

/// Whether a configuration builds its model.
pub(super) fn is_built(document: &Document) -> bool {
    document.has(&format!("{MODEL}.{CALLED}")) && document.has(&format!("{MODEL}.dim"))
}

/// Model that a configuration builds; `None` where a part of it cannot be read.
pub(super) fn model(document: &Document) -> Option<Model> {
    let size = |key: &str| document.size(&format!("{MODEL}.{key}"));
    let (hidden, vocab, layers) = (size("dim")?, size("vocab_size")?, document.count(&format!("{MODEL}.layers"))?);
    if layers > LAYERS.most() as u32 {
        return None;
    }
    let read: Option<Vec<Layer>> = (0..layers).map(|at| layer(document, &format!("{MODEL}.layers.{at}"))).collect();
    let (kinds, order) = distinct(read?);
    let plain = flavors::plain("imported".into(), hidden, vocab, kinds, order);
    let model = Model {
        source: "imported".into(),
        seq_len: document.size("training.seq_len").unwrap_or(plain.seq_len),
        tied_embeddings: document.switch(&format!("{MODEL}.enable_weight_tying")).unwrap_or(false),
        ..plain
    };
    model.check().ok()?;
    // No file states the router's bias, so that the catalogue's model is recognised by its other sizes.
    Some(known::name_of(&model).and_then(known::catalogued).unwrap_or(model))
}

/// Whether the value is the result of a call.
fn is_made(document: &Document, path: &str) -> bool {
    document.has(&format!("{path}.{CALLED}"))
}

fn layer(document: &Document, path: &str) -> Option<Layer> {
    let mixer = mixer(document, &format!("{path}.attention"))?;
    let (dense, moe) = (format!("{path}.feed_forward"), format!("{path}.moe"));
    let ffn = match (is_made(document, &dense), is_made(document, &moe)) {
        (true, false) => Ffn::Dense(Mlp { intermediate: width(document, &dense)?, gated: true, bias: false }),
        (false, true) => Ffn::Moe(experts(document, &moe)?),
        (true, true) | (false, false) => return None,
    };
    Some(Layer { mixer, ffn, norms: 2, extra_parameters: 0 })
}

/// Width of a gated MLP.
fn width(document: &Document, path: &str) -> Option<u32> {
    document.size(&format!("{path}.hidden_dim"))
}

fn mixer(document: &Document, path: &str) -> Option<Mixer> {
    let size = |key: &str| document.size(&format!("{path}.{key}"));
    let heads = size("n_heads")?;
    match document.word(&format!("{path}.{CALLED}"))?.as_str() {
        "make_gqa_config" => {
            let normed = is_made(document, &format!("{path}.qk_norm"));
            let qk_norm = if normed { QkNorm::PerHead } else { QkNorm::None };
            let kv_heads = size("n_kv_heads").unwrap_or(heads);
            Some(Mixer::Attention(Attention { qk_norm, ..Attention::plain(heads, kv_heads, size("head_dim")?) }))
        }
        "make_mla_attention_config" => Some(Mixer::Mla(Mla {
            heads,
            q_rank: document.number(&format!("{path}.q_lora_rank")).unwrap_or(0),
            kv_rank: size("kv_lora_rank")?,
            nope_dim: size("qk_nope_head_dim")?,
            rope_dim: size("qk_rope_head_dim")?,
            v_dim: size("v_head_dim")?,
            rope: true,
            indexer: None,
        })),
        _ => None,
    }
}

fn experts(document: &Document, path: &str) -> Option<Moe> {
    let router = format!("{path}.router");
    let size = |key: &str| document.size(&format!("{path}.{key}"));
    let shared = format!("{path}.shared_experts");
    let shared_intermediate = if is_made(document, &shared) { width(document, &shared)? } else { 0 };
    let router_score = match document.word(&format!("{router}.score_func")).as_deref() {
        Some("sigmoid") => Some(RouterScore::Sigmoid),
        Some("softmax") => Some(RouterScore::Softmax),
        Some(_) | None => None,
    };
    let group_limit = document.number(&format!("{router}.num_limited_groups")).unwrap_or(0);
    let moe = Moe::gated(
        size("num_experts")?,
        document.size(&format!("{router}.top_k"))?,
        size("routed_experts.hidden_dim")?,
    );
    Some(Moe { shared_intermediate, router_score, group_limit, ..moe })
}
