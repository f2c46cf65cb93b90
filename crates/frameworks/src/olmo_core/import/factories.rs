//! Models that OLMo-core makes by name, as trees of their configurations.
//!
//! Source: [olmo-core] `nn/transformer/config.py`, release 2.5.0.

use super::sizes::{FACTORIES, FactorySizes, Family, MlpWidth};
use super::tree::{field, holds, is_none, list, number, object, truth};
use crate::readers::document::{Entries, Node, NodeValue, TableEntry, value_of};

/// Arguments of `llama_like` that are no fields of `TransformerConfig`.
const OF_BLOCKS: &[&str] = &[
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "gate",
    "qk_norm",
    "use_head_qk_norm",
    "layer_norm_eps",
    "layer_norm_name",
    "rope_theta",
    "rope_type",
    "rope_full_precision",
    "no_global_rope",
    "hidden_size_multiple_of",
    "hidden_size_multiplier",
    "fused_ops",
    "use_flash",
    "attn_backend",
    "sliding_window",
    "block_name",
    "rope_scaling",
    "feed_forward",
    "feed_forward_moe",
];

/// The configuration that a class method of `TransformerConfig` gives; none where the method is not known, or what it
/// is called with cannot be followed.
pub(super) fn model(method: &str, arguments: &Entries, line: u32) -> Option<Node> {
    let mut given = Given { arguments: by_name(arguments, "vocab_size")?, line };
    match method {
        "llama_like" => {}
        "llama_like_moe" => given.of_experts()?,
        "olmoe_1B_7B" => {
            given.usual("d_model", Node::bare("2048", line));
            let moe = given.experts("MoEType.dropless", 64.0, 0.5, 8.0, None)?;
            given.small_experts(16, 16, moe);
        }
        "smallmoe" => {
            given.usual("d_model", Node::bare("768", line));
            let moe = given.experts("MoEType.default", 32.0, 0.5, 4.0, Some(2.0))?;
            given.small_experts(12, 12, moe);
        }
        _ => {
            let known = |name: &str| FACTORIES.iter().find(|factory| factory.name == name).map(|factory| factory.sizes);
            let sizes = known(method).or_else(|| {
                let size = method.strip_prefix("olmo3_")?;
                let size = if size == "1B" { "1B_v2" } else { size };
                let sizes = known(&format!("olmo2_{size}"))?;
                let hidden = if size == "600M" { 1280 } else { sizes.hidden };
                Some(FactorySizes { family: Family::Olmo3, hidden, ..sizes })
            })?;
            given.of_sizes(&sizes);
        }
    }
    given.llama_like()
}

/// Arguments by name, where the one that is given without is `first`.
fn by_name(arguments: &Entries, first: &str) -> Option<Entries> {
    let mut found = Entries::new();
    for TableEntry { key, line, value } in arguments {
        let key = if key == "0" { first } else { key };
        if key.parse::<usize>().is_ok() {
            return None;
        }
        found.push(TableEntry::new(key, *line, value.clone()));
    }
    Some(found)
}

/// Arguments of `llama_like`.
struct Given {
    arguments: Entries,
    line: u32,
}

impl Given {
    fn get(&self, key: &str) -> Option<&Node> {
        value_of(&self.arguments, key).filter(|node| !is_none(node))
    }

    fn has(&self, key: &str) -> bool {
        self.arguments.iter().any(|entry| entry.key == key)
    }

    /// An argument where it is not given.
    fn usual(&mut self, key: &str, node: Node) {
        if !self.has(key) {
            self.arguments.push(TableEntry::new(key, node.line, node));
        }
    }

    /// Takes an argument by its key.
    fn take(&mut self, key: &str) -> Option<Node> {
        let at = self.arguments.iter().position(|entry| entry.key == key)?;
        Some(self.arguments.remove(at).value)
    }

    fn of_sizes(&mut self, sizes: &FactorySizes) {
        let line = self.line;
        let FactorySizes { family, hidden, layers, heads, kv_heads, head_dim, mlp, theta, tied } = *sizes;
        let whole = |number: u32| Node::bare(number.to_string(), line);
        for (key, number) in [("d_model", hidden), ("n_layers", layers), ("n_heads", heads), ("rope_theta", theta)] {
            self.usual(key, whole(number));
        }
        for (key, number) in [("n_kv_heads", kv_heads), ("head_dim", head_dim)] {
            if let Some(number) = number {
                self.usual(key, whole(number));
            }
        }
        if family == Family::Qwen3 {
            for (key, on) in [("qk_norm", true), ("use_head_qk_norm", true)] {
                self.usual(key, truth(on, line));
            }
            self.usual("layer_norm_eps", Node::bare("1e-6", line));
            self.usual("layer_norm_name", Node::bare("LayerNormType.qwen_rms", line));
            self.usual("tie_word_embeddings", truth(tied, line));
        }
        match mlp {
            MlpWidth::Of(width) => {
                let mlp = [("hidden_size", whole(width)), ("bias", truth(false, line))];
                self.usual("feed_forward", object("FeedForwardConfig", mlp, line));
            }
            MlpWidth::Multiple(multiple) => self.usual("hidden_size_multiple_of", whole(multiple)),
            MlpWidth::Scaled { ratio, multiple } => {
                self.usual("hidden_size_multiplier", Node::bare(ratio.to_string(), line));
                self.usual("hidden_size_multiple_of", whole(multiple));
            }
        }
        if matches!(family, Family::Llama | Family::Qwen3) {
            return;
        }
        self.usual("block_name", Node::bare("TransformerBlockType.reordered_norm", line));
        self.usual("qk_norm", truth(true, line));
        self.usual("layer_norm_eps", Node::bare("1e-6", line));
        if family == Family::Olmo3 {
            let window = |keys: &str| Node::bare(keys, line);
            let pattern = list(vec![window("4096"), window("4096"), window("4096"), window("-1")], line);
            let sliding = [
                ("pattern", pattern),
                ("force_full_attention_on_first_layer", truth(false, line)),
                ("force_full_attention_on_last_layer", truth(true, line)),
            ];
            self.usual("sliding_window", object("SlidingWindowAttentionConfig", sliding, line));
            self.usual("attn_backend", Node::bare("AttentionBackendName.flash_2", line));
        }
    }

    /// Experts of a share of the hidden size.
    fn experts(&self, kind: &str, experts: f64, share: f64, top_k: f64, shared: Option<f64>) -> Option<Node> {
        let line = self.line;
        let hidden = number(self.get("d_model")?)?;
        let whole = |number: f64| Node::bare(number.trunc().to_string(), line);
        let router = object("MoERouterConfig", [("top_k", whole(top_k))], line);
        let shared = shared.map_or_else(
            || Node::bare("None", line),
            |ratio| object("FeedForwardConfig", [("hidden_size", whole(hidden * ratio))], line),
        );
        let fields = [
            ("name", Node::bare(kind, line)),
            ("num_experts", whole(experts)),
            ("hidden_size", whole(hidden * share)),
            ("router", router),
            ("shared_mlp", shared),
            ("lb_loss_weight", Node::bare("0.01", line)),
            ("z_loss_weight", Node::bare("0.001", line)),
        ];
        Some(object("MoEConfig", fields, line))
    }

    /// The rest of its small models with experts, which take no other arguments than these.
    fn small_experts(&mut self, layers: u32, heads: u32, moe: Node) {
        let line = self.line;
        for (key, number) in [("n_layers", layers), ("n_heads", heads), ("rope_theta", 500_000)] {
            self.usual(key, Node::bare(number.to_string(), line));
        }
        self.usual("name", Node::bare("TransformerType.moe", line));
        self.usual("block_name", Node::bare("TransformerBlockType.moe_reordered_norm", line));
        self.usual("qk_norm", truth(true, line));
        self.usual("layer_norm_eps", Node::bare("1e-6", line));
        self.usual("feed_forward_moe", moe);
    }

    /// `llama_like_moe`: its own arguments become those of `llama_like`.
    fn of_experts(&mut self) -> Option<()> {
        let line = self.line;
        let mut switch = |key: &str| self.take(key).map_or(Some(false), |node| holds(&node));
        let (dropless, reordered, hybrid) = (switch("dropless")?, switch("reordered_norm")?, switch("hybrid")?);
        let kind = match (reordered, hybrid) {
            (true, true) => "moe_hybrid_reordered_norm",
            (true, false) => "moe_reordered_norm",
            (false, true) => "moe_hybrid",
            (false, false) => "moe",
        };
        let router = object("MoERouterConfig", [("top_k", self.take("top_k")?)], line);
        let none = || Node::bare("None", line);
        let shared = match self.take("shared_expert_hidden_size") {
            Some(width) if !is_none(&width) => {
                object("FeedForwardConfig", [("hidden_size", width), ("bias", truth(false, line))], line)
            }
            Some(_) | None => none(),
        };
        let fields = [
            ("name", Node::bare(if dropless { "MoEType.dropless" } else { "MoEType.default" }, line)),
            ("num_experts", self.take("num_experts")?),
            ("hidden_size", self.take("expert_hidden_size")?),
            ("capacity_factor", self.take("capacity_factor").unwrap_or_else(none)),
            ("router", router),
            ("shared_mlp", shared),
            ("lb_loss_weight", self.take("lb_loss_weight").unwrap_or_else(|| Node::bare("0.01", line))),
            ("z_loss_weight", self.take("z_loss_weight").unwrap_or_else(|| Node::bare("0.001", line))),
        ];
        self.usual("name", Node::bare("TransformerType.moe", line));
        self.usual("block_name", Node::bare(format!("TransformerBlockType.{kind}"), line));
        self.usual("qk_norm", truth(reordered, line));
        self.usual("feed_forward_moe", object("MoEConfig", fields, line));
        Some(())
    }

    /// Width of the MLP; none where a factor of it is not known.
    fn width(&self) -> Option<Node> {
        let number_of = |key: &str, usual: f64| self.get(key).map_or(Some(usual), number);
        let (hidden, multiple) = (number(self.get("d_model")?)?, number_of("hidden_size_multiple_of", 256.0)?);
        let plain = (8.0 * hidden / 3.0).trunc();
        let ratio = self.get("hidden_size_multiplier");
        let width = match ratio {
            Some(ratio) => (number(ratio)? * plain).trunc(),
            None => plain,
        };
        (multiple >= 1.0).then(|| Node::bare(((width / multiple).ceil() * multiple).to_string(), self.line))
    }

    /// The whole configuration.
    fn llama_like(self) -> Option<Node> {
        let line = self.line;
        let none = || Node::bare("None", line);
        let field_of = |key: &str| self.get(key).cloned().unwrap_or_else(none);
        let is_on = |key: &str| self.get(key).map_or(Some(false), holds);
        if self.has("block_mods") {
            return None; // functions that change single blocks
        }
        let fused = is_on("fused_ops")?;
        let kind = self.get("layer_norm_name").cloned();
        let kind = kind
            .unwrap_or_else(|| Node::bare(if fused { "LayerNormType.fused_rms" } else { "LayerNormType.rms" }, line));
        let epsilon = self.get("layer_norm_eps").cloned().unwrap_or_else(|| Node::bare("1e-5", line));
        let norm = || {
            object(
                "LayerNormConfig",
                [("name", kind.clone()), ("eps", epsilon.clone()), ("bias", truth(false, line))],
                line,
            )
        };
        let mut rope = vec![
            ("theta", self.get("rope_theta").cloned().unwrap_or_else(|| Node::bare("500000", line))),
            ("no_global_rope", truth(is_on("no_global_rope")?, line)),
            ("scaling", field_of("rope_scaling")),
        ];
        rope.retain(|(_, node)| !is_none(node));
        let qk_norm = is_on("qk_norm")?;
        let fused_attention = fused && self.get("n_kv_heads").is_none() && self.get("rope_type").is_none();
        let mixer = [
            ("name", Node::bare(if fused_attention { "AttentionType.fused" } else { "AttentionType.default" }, line)),
            ("n_heads", self.get("n_heads")?.clone()),
            ("n_kv_heads", field_of("n_kv_heads")),
            ("head_dim", field_of("head_dim")),
            ("bias", truth(false, line)),
            ("rope", object("RoPEConfig", rope, line)),
            ("gate", field_of("gate")),
            ("qk_norm", if qk_norm { norm() } else { none() }),
            ("use_head_qk_norm", truth(qk_norm && is_on("use_head_qk_norm")?, line)),
            ("use_flash", field_of("use_flash")),
            ("backend", field_of("attn_backend")),
            ("sliding_window", field_of("sliding_window")),
        ];
        let moe = self.get("feed_forward_moe").cloned();
        let mlp = match (self.get("feed_forward"), &moe) {
            (Some(mlp), _) => mlp.clone(),
            (None, Some(_)) => none(),
            (None, None) => {
                object("FeedForwardConfig", [("hidden_size", self.width()?), ("bias", truth(false, line))], line)
            }
        };
        let name = self.get("block_name").cloned().unwrap_or_else(|| Node::bare("TransformerBlockType.default", line));
        let block = [
            ("name", name),
            ("sequence_mixer", object("AttentionConfig", mixer, line)),
            ("feed_forward", mlp),
            ("feed_forward_moe", moe.unwrap_or_else(none)),
            ("layer_norm", norm()),
        ];
        let head = [("layer_norm", norm()), ("bias", truth(false, line))];
        let own =
            [("block", object("TransformerBlockConfig", block, line)), ("lm_head", object("LMHeadConfig", head, line))];
        let own = own.into_iter().map(|(key, node)| (key.to_owned(), node));
        let others = self.arguments.iter().filter(|entry| !OF_BLOCKS.contains(&entry.key.as_str()));
        let others = others.map(|TableEntry { key, value, .. }| (key.clone(), value.clone()));
        Some(object("TransformerConfig", own.chain(others), line))
    }
}

/// `with_rope_scaling`: the scaling of layers that have no window, or of all.
pub(super) fn with_scaling(model: &Node, arguments: &Entries, line: u32) -> Option<Node> {
    let arguments = by_name(arguments, "rope_scaling")?;
    let get = |key: &str| value_of(&arguments, key);
    let all = get("full_attn_layers_only").map_or(Some(false), |node| holds(node).map(|only| !only))?;
    let mut block = field(model, "block")?.clone();
    let mut mixer = field(&block, "sequence_mixer")?.clone();
    let mut rope = field(&mixer, "rope").filter(|rope| matches!(rope.value, NodeValue::Map(_)))?.clone();
    let windows = field(&mixer, "sliding_window").is_some_and(|window| !is_none(window));
    super::tree::set(&mut rope, "scaling", get("rope_scaling")?.clone());
    if windows && !all {
        super::tree::set(&mut rope, "scaled_layers", Node::quoted(PARTLY, line));
    }
    super::tree::set(&mut mixer, "rope", rope);
    super::tree::set(&mut block, "sequence_mixer", mixer);
    let mut model = model.clone();
    super::tree::set(&mut model, "block", block);
    Some(model)
}

/// Mark of rotary frequencies that change in layers without a window alone.
pub(super) const PARTLY: &str = "without a window";
