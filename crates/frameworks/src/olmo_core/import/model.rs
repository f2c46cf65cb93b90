//! The model of a configuration, block by block.
//!
//! Source: [olmo-core] `nn/transformer/config.py`, `nn/{feed_forward,layer_norm,lm_head}.py`, `nn/moe/{moe,router}.py`,
//! release 2.5.0: names, defaults and shapes.

use super::reader::{Parts, Reader};
use crate::import::finding::Finding;
use crate::import::known;
use crate::readers::document::{CALLED, Document};
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{Activation, Details, Ffn, Layer, Mlp, Model, Moe, Norm, Router, RouterScore};
use meshwright_engine::range::LAYERS;

/// Most layers of a model, so that a mistyped number does not exhaust memory.
const MOST_LAYERS: u32 = LAYERS.most() as u32;

/// A model, and whether its experts drop tokens beyond their capacity.
pub(super) struct Read {
    pub model: Model,
    pub drops_tokens: bool,
}

/// The model below `model`; none where it is not read, with an error that says why.
pub(super) fn read(document: &Document) -> Option<Read> {
    let reader = Reader { document };
    let class = document.word(&format!("model.{CALLED}"));
    match class.as_deref() {
        Some("TransformerConfig") => {}
        Some(other) => {
            reader.refuse("model", &format!("is `{other}`, which is not read"));
            return None;
        }
        None => {
            reader.refuse("model", "is not read");
            return None;
        }
    }
    reader.model()
}

impl Reader<'_> {
    fn model(&self) -> Option<Read> {
        let document = self.document;
        let sizes = ["d_model", "vocab_size", "n_layers"].map(|key| document.size(&format!("model.{key}")));
        let [Some(hidden), Some(vocab), Some(layers)] = sizes else {
            self.refuse("model", "lacks `d_model`, `vocab_size` or `n_layers`");
            return None;
        };
        if layers > MOST_LAYERS {
            document.wrong("model.n_layers", &layers.to_string(), "at most 100000");
            return None;
        }
        if self.kind("model.name", "default") == "normalized" {
            self.refuse("model.name", "is nGPT's, which is not read");
            return None;
        }
        for key in ["freeze_params", "block_mods"] {
            if document.peek(&format!("model.{key}")).is_none_or(|word| word != "None")
                && document.has(&format!("model.{key}"))
            {
                self.refuse(&format!("model.{key}"), "is not read");
                return None;
            }
        }
        let mut parts = Parts { details: Details::default(), norm: None, dropout: false, drops_tokens: false };
        let paths = self.paths(layers)?.into_iter().enumerate();
        let blocks = paths.map(|(at, path)| self.block(&path, at as u32, layers, hidden, &mut parts));
        let (kinds, order) = distinct(blocks.collect::<Option<Vec<_>>>()?);
        if let Some(scale) = document.real("model.embed_scale").filter(|scale| (scale - 1.0).abs() > 0.0) {
            parts.details.others.push(("embedding_multiplier".into(), scale));
        }
        let head = "model.lm_head";
        if self.is_object(&format!("{head}.layer_norm")) {
            self.norm(&format!("{head}.layer_norm"), &mut parts)?;
        }
        let model = Model {
            name: "imported".into(),
            source: "imported".into(),
            hidden,
            vocab,
            seq_len: document.size("train_module.max_sequence_length").unwrap_or(4096),
            tied_embeddings: self.on("model.tie_word_embeddings", false),
            learned_positions: 0,
            embedding_norm: self.is_object("model.embedding_norm"),
            head_bias: self.on(&format!("{head}.bias"), true),
            norm: parts.norm.unwrap_or(Norm::Rms),
            dropout: parts.dropout,
            kinds,
            order,
            mtp_depth: 0,
            details: parts.details,
        };
        if let Err(why) = model.check() {
            document.note(Finding::error("impossible-model", why.to_string()));
            return None;
        }
        Some(Read { model: known::named(model), drops_tokens: parts.drops_tokens })
    }

    /// The path of each layer's block.
    fn paths(&self, layers: u32) -> Option<Vec<String>> {
        let document = self.document;
        let named = document.words("model.block_pattern");
        if !named.is_empty() {
            let own = document.keys("model.block");
            if let Some(missing) = named.iter().find(|name| !own.contains(name)) {
                document.wrong("model.block_pattern", missing, "names of `block`");
                return None;
            }
            return Some((0..layers as usize).map(|at| format!("model.block.{}", named[at % named.len()])).collect());
        }
        if !self.is_object("model.block") || document.has("model.block_pattern") {
            self.refuse("model.block", "is not read");
            return None;
        }
        let changed = document.keys("model.block_overrides");
        let path = |at: u32| match changed.iter().find(|key| key.parse() == Ok(at)) {
            Some(key) => format!("model.block_overrides.{key}"),
            None => "model.block".to_owned(),
        };
        if document.has("model.block_overrides")
            && changed.is_empty()
            && document.word("model.block_overrides").is_some()
        {
            self.refuse("model.block_overrides", "is not read");
            return None;
        }
        Some((0..layers).map(path).collect())
    }

    fn block(&self, path: &str, at: u32, layers: u32, hidden: u32, parts: &mut Parts) -> Option<Layer> {
        let document = self.document;
        let below = |key: &str| format!("{path}.{key}");
        let name = self.kind(&below("name"), "default");
        let (norms, after) = match name.as_str() {
            "default" | "moe" | "default_scaled" => (2, false),
            "reordered_norm" | "moe_reordered_norm" => (2, true),
            "peri_norm" => (4, false),
            other => {
                self.refuse(&below("name"), &format!("is `{other}`, whose blocks are not read"));
                return None;
            }
        };
        parts.details.norms_after |= after;
        if name == "default_scaled" {
            parts.other("layer_norm_scaling", 1.0);
        }
        for key in ["attention_residual_alpha", "feed_forward_residual_alpha"] {
            if let Some(alpha) = document.real(&below(key)) {
                parts.other("residual_multiplier", alpha);
            }
        }
        self.norm(&below("layer_norm"), parts)?;
        let mixer = if self.is_object(&below("attention")) { below("attention") } else { below("sequence_mixer") };
        let (mixer, extra) = self.mixer(&mixer, at, layers, hidden, parts)?;
        parts.dropout |= document.real(&below("dropout")).is_some_and(|share| share > 0.0);
        let (dense, moe) = (self.is_object(&below("feed_forward")), self.is_object(&below("feed_forward_moe")));
        let (ffn, more) = match (dense, moe) {
            (true, false) => (Ffn::Dense(self.mlp(&below("feed_forward"), parts)?), 0),
            (false, true) => {
                let (moe, more) = self.experts(&below("feed_forward_moe"), hidden, parts)?;
                (Ffn::Moe(moe), more)
            }
            (true, true) | (false, false) => {
                self.refuse(path, "has no feed-forward part that is read");
                return None;
            }
        };
        Some(Layer { mixer, ffn, norms, extra_parameters: extra + more })
    }

    /// A norm, which must be that of the others.
    fn norm(&self, path: &str, parts: &mut Parts) -> Option<()> {
        let bias = self.on(&format!("{path}.bias"), true);
        let affine = self.on(&format!("{path}.elementwise_affine"), true);
        let norm = match (self.kind(&format!("{path}.name"), "default").as_str(), affine, bias) {
            ("rms" | "fused_rms" | "qwen_rms" | "cute_rms", true, false) => Norm::Rms,
            ("default", true, true) => Norm::Layer,
            ("default", true, false) => Norm::LayerNoBias,
            ("default", false, _) => Norm::LayerPlain,
            (other, ..) => {
                self.refuse(path, &format!("is a norm (`{other}`, bias {bias}) that is not read"));
                return None;
            }
        };
        if parts.norm.is_some_and(|known| known != norm) {
            self.refuse(path, "is another norm than that of other blocks");
            return None;
        }
        parts.norm = Some(norm);
        parts.details.norm_epsilon = parts.details.norm_epsilon.or(self.document.real(&format!("{path}.eps")));
        Some(())
    }

    fn mlp(&self, path: &str, parts: &mut Parts) -> Option<Mlp> {
        let document = self.document;
        if self.kind(&format!("{path}.name"), "default") == "normalized" {
            self.refuse(&format!("{path}.name"), "is nGPT's, which is not read");
            return None;
        }
        let Some(intermediate) = document.size(&format!("{path}.hidden_size")) else {
            self.refuse(path, "lacks `hidden_size`");
            return None;
        };
        let activation = match self.kind(&format!("{path}.activation"), "silu").as_str() {
            "silu" => Activation::Silu,
            "gelu_tanh" => Activation::GeluTanh,
            other => Activation::Other(other.to_owned()),
        };
        parts.details.activation = Some(activation);
        Some(Mlp { intermediate, gated: true, bias: self.on(&format!("{path}.bias"), true) })
    }

    /// Experts, and the biases of the shared ones.
    fn experts(&self, path: &str, hidden: u32, parts: &mut Parts) -> Option<(Moe, u64)> {
        let document = self.document;
        let below = |key: &str| format!("{path}.{key}");
        let experts = document.size(&below("num_experts")).unwrap_or(1);
        let top_k = document.size(&below("router.top_k")).unwrap_or(1);
        let intermediate = document.size(&below("hidden_size")).unwrap_or(256);
        parts.drops_tokens |= self.kind(&below("name"), "default") == "default";
        let (mut shared_intermediate, mut extra) = (0, 0);
        if self.is_object(&below("shared_mlp")) {
            let shared = self.mlp(&below("shared_mlp"), parts)?;
            shared_intermediate = shared.intermediate;
            extra = if shared.bias { 2 * u64::from(shared.intermediate) + u64::from(hidden) } else { 0 };
            // What it gives is averaged with the experts' results.
            parts.other("shared expert over top_k + 1", f64::from(top_k + 1));
        }
        let sigmoid = self.kind(&below("router.gating_function"), "softmax") == "sigmoid";
        let loss = document.word(&below("lb_loss_weight"));
        let loss =
            if document.has(&below("lb_loss_weight")) { loss.and_then(|word| word.parse().ok()) } else { Some(0.01) };
        parts.details.router = Router {
            normalized: Some(document.real(&below("router.normalize_expert_weights")).is_some()),
            bias: Some(document.real(&below("router.bias_gamma")).is_some()),
            scale: None,
            aux_loss: loss,
        };
        parts.details.activation = Some(Activation::Silu);
        let router_score = Some(if sigmoid { RouterScore::Sigmoid } else { RouterScore::Softmax });
        Some((Moe { shared_intermediate, router_score, ..Moe::gated(experts, top_k, intermediate) }, extra))
    }
}
