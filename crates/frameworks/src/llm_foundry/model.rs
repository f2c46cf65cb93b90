//! Models of llm-foundry's YAML: MPT by its sizes, those of Hugging Face by their name.
//!
//! Source: [llm-foundry-code] `models/mpt/configuration_mpt.py`, `models/utils/config_defaults.py`,
//! `models/layers/{attention,ffn,norm}.py`, `models/hf/hf_causal_lm.py`, commit 8c8dd48f: names, defaults and shapes.

use super::limits::CAP;
use crate::hugging_face::import as hugging_face;
use crate::import::adapters::{AdapterTraining, other_adapters};
use crate::import::context::ImportError;
use crate::import::finding::{Finding, Place};
use crate::import::imported::{Adapters, Imported, NamedKernel};
use crate::import::known;
use crate::readers::document::Document;
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::model::{
    Activation, Attention, Details, Ffn, Layer, Mixer, Mlp, Model, Moe, Norm, QkNorm, RopeScaling, RopeScalingKind,
    Router, RouterScore, Span,
};
use meshwright_engine::range::LAYERS;

/// Sets the model, with the kernel of its attention.
///
/// # Errors
/// A model of another kind.
pub(super) fn read(document: &Document, imported: &mut Imported) -> Result<(), ImportError> {
    let name = document.word("model.name");
    match name.as_deref() {
        Some("mpt_causal_lm") => {
            imported.model = of_mpt(document, imported)?;
            kernel(document, "model.attn_config.attn_impl", imported);
        }
        Some("hf_causal_lm") => of_hub(document, imported),
        Some(other) => {
            return Err(refused(document, "model.name", format!("models of `{other}` are not read"), MODELS));
        }
        None => return Err(refused(document, "model", "`model.name` is not given".into(), MODELS)),
    }
    adapters(document, imported);
    Ok(())
}

/// Names of models that are read.
const MODELS: &str = "model.name: mpt_causal_lm or hf_causal_lm";
/// Kinds of feed-forward parts that are read.
const FFN_TYPES: &str = "ffn_type: mptmlp, mptglu, te_ln_mlp, mb_moe, mb_dmoe or torch_dmoe";

fn refused(document: &Document, path: &str, why: String, expected: &str) -> ImportError {
    let Place { file, line } = document.place(path).unwrap_or_else(|| document.start());
    ImportError { file, line, why, expected: expected.into() }
}

/// `attn_impl`, or `attn_implementation` of Hugging Face.
fn kernel(document: &Document, path: &str, imported: &mut Imported) {
    match document.word(path).as_deref() {
        Some("flash" | "flash_attention_2") => {
            imported.attention = Some(NamedKernel::of(document, path, AttentionKernel::Fa2, "torch"));
        }
        Some("sdpa") | None => {}
        Some("torch" | "eager") => imported.settings.put_word("attention", "unfused"),
        Some("triton") => imported.settings.put_word("attention", "fa1"),
        Some(other) => document.wrong(path, other, "flash or torch"),
    }
}

fn of_hub(document: &Document, imported: &mut Imported) {
    hugging_face::model(document, "model.pretrained_model_name_or_path", imported);
    kernel(document, "model.attn_implementation", imported);
    // Only these change nothing of the architecture.
    let plain = ["max_seq_len", "use_cache", "attn_config", "max_position_embeddings", "output_router_logits"];
    let _ = document.word("model.config_overrides.max_seq_len");
    let others: Vec<String> =
        document.keys("model.config_overrides").into_iter().filter(|key| !plain.contains(&key.as_str())).collect();
    if let Some(key) = others.first() {
        let place = document.place(&format!("model.config_overrides.{key}"));
        let message = format!("`config_overrides` change {} of the model, and are not read", others.join(", "));
        let finding = Finding::error("unread-setting", message).at_maybe(place.as_ref());
        document.note(finding.expected("--model config.json with the values"));
    }
}

/// `peft_config`, or `lora.args` of older releases.
fn adapters(document: &Document, imported: &mut Imported) {
    let older = document.has("model.lora.args");
    let path_of = |key: &str| format!("model.{}.{key}", if older { "lora.args" } else { "peft_config" });
    if !older && document.keys("model.peft_config").is_empty() {
        return;
    }
    let kind = document.word(&path_of("peft_type")).unwrap_or_else(|| "LORA".into());
    let path = if older { "model.lora" } else { "model.peft_config" };
    let place = document.place(path).unwrap_or_else(|| document.start());
    let setting = format!("`{path}`");
    if !kind.eq_ignore_ascii_case("lora") {
        return document.note(other_adapters(&setting, &place));
    }
    let adapters = Adapters { rank: document.size(&path_of("r")), targets: document.words(&path_of("target_modules")) };
    AdapterTraining { setting, place, adapters }.apply(imported);
}

/// Most layers of a model, so that a mistyped number does not exhaust memory.
const MOST_LAYERS: u32 = LAYERS.most() as u32;

/// The decoder of an MPT; none where its sizes are impossible.
fn of_mpt(document: &Document, imported: &mut Imported) -> Result<Option<Model>, ImportError> {
    let path_of = |key: &str| format!("model.{key}");
    let size = |key: &str, usual: u32| document.size(&path_of(key)).unwrap_or(usual);
    let is_on = |key: &str, usual: bool| document.switch(&path_of(key)).unwrap_or(usual);
    let (hidden, heads, layers) = (size("d_model", 2048), size("n_heads", 16), size("n_layers", 24));
    if layers > MOST_LAYERS {
        document.wrong("model.n_layers", &layers.to_string(), "at most 100000");
        return Ok(None);
    }
    if document.has("model.block_overrides") {
        let place = document.place("model.block_overrides");
        let finding = Finding::error("unread-setting", "`block_overrides` change single layers, and are not read");
        document.note(finding.at_maybe(place.as_ref()).expected("--model with the layers"));
    }
    let bias = !is_on("no_bias", false);
    let (attention, positions) = attention(document, hidden, heads, bias);
    let norm = document.word("model.norm_type").unwrap_or_else(|| "low_precision_layernorm".into());
    let norm = match norm.to_ascii_lowercase().as_str() {
        "rmsnorm" | "low_precision_rmsnorm" | "triton_rmsnorm" => Norm::Rms,
        "layernorm" | "low_precision_layernorm" if bias => Norm::Layer,
        "layernorm" | "low_precision_layernorm" => Norm::LayerNoBias,
        other => {
            document.wrong("model.norm_type", other, "one of LayerNorm and RMSNorm");
            return Ok(None);
        }
    };
    let FeedForward { ffn, activation, router, ep, drops_tokens } = feed_forward(document, hidden, bias)?;
    imported.plan.layout.ep = ep;
    imported.work.drops_tokens = drops_tokens;
    let dropout = ["resid_pdrop", "emb_pdrop", "attn_config.attn_pdrop"];
    let dropout = dropout.iter().any(|key| document.real(&path_of(key)).is_some_and(|share| share > 0.0));
    let learned = is_on("learned_pos_emb", true) && positions == Positions::Learned;
    let details = Details {
        rope_theta: (positions == Positions::Rotary)
            .then(|| document.real(&path_of("attn_config.rope_theta")).unwrap_or(10_000.0)),
        rope_scaling: scaling(document).filter(|_| positions == Positions::Rotary),
        norm_epsilon: Some(document.real("model.norm_eps").unwrap_or(1e-5)),
        activation: Some(activation),
        router,
        others: document.real(&path_of("attn_config.clip_qkv")).map(|cap| (CAP.to_owned(), cap)).into_iter().collect(),
        ..Details::default()
    };
    let length = document.size("model.max_seq_len").unwrap_or(2048);
    let model = Model {
        name: "imported".into(),
        source: "imported".into(),
        hidden,
        vocab: size("vocab_size", 50_368),
        seq_len: length,
        tied_embeddings: is_on("tie_word_embeddings", true),
        learned_positions: if learned { length } else { 0 },
        embedding_norm: false,
        head_bias: false,
        norm,
        dropout,
        kinds: vec![Layer { mixer: Mixer::Attention(attention), ffn, norms: 2, extra_parameters: 0 }],
        order: vec![0; layers as usize],
        mtp_depth: 0,
        details,
    };
    if let Err(why) = model.check() {
        document.note(Finding::error("impossible-model", why.to_string()));
        return Ok(None);
    }
    Ok(Some(known::named(model)))
}

/// Positions that attention knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    Rotary,
    Alibi,
    Learned,
}

fn attention(document: &Document, hidden: u32, heads: u32, bias: bool) -> (Attention, Positions) {
    let path_of = |key: &str| format!("model.attn_config.{key}");
    let is_on = |key: &str| document.switch(&path_of(key)).unwrap_or(false);
    let positions = if is_on("rope") {
        Positions::Rotary
    } else if is_on("alibi") {
        Positions::Alibi
    } else {
        Positions::Learned
    };
    let kind = document.word(&path_of("attn_type"));
    let kv_heads = match kind.as_deref() {
        Some("multiquery_attention") => 1,
        Some("grouped_query_attention") => document.size(&path_of("kv_n_heads")).unwrap_or(heads),
        Some("multihead_attention") | None => heads,
        Some(other) => {
            document.wrong(&path_of("attn_type"), other, "multihead_, grouped_query_ or multiquery_attention");
            heads
        }
    };
    let head_dim = document.size("model.head_dim").unwrap_or((hidden / heads).max(1));
    let qk_norm = match (is_on("qk_ln"), is_on("qk_gn")) {
        (true, _) => QkNorm::Full,
        (false, true) => QkNorm::PerHead,
        (false, false) => QkNorm::None,
    };
    // Flash attention's window reaches so many keys back, beside the query's own.
    let back = document.word(&path_of("sliding_window_size")).filter(|word| word.trim() != "-1");
    let back = back.and_then(|_| document.number(&path_of("sliding_window_size")));
    let attention = Attention {
        span: back.map_or(Span::Full, |back| Span::Window(back.saturating_add(1))),
        qkv_bias: document.switch("model.attention_bias").unwrap_or(bias),
        out_bias: bias,
        qk_norm,
        rope: positions == Positions::Rotary,
        ..Attention::plain(heads, kv_heads, head_dim)
    };
    (attention, positions)
}

/// `rope_hf_config`; the other implementation, `dail`, has none.
fn scaling(document: &Document) -> Option<RopeScaling> {
    let path_of = |key: &str| format!("model.attn_config.rope_hf_config.{key}");
    if document.word("model.attn_config.rope_impl").is_none_or(|name| name == "dail") {
        return None;
    }
    let real = |key: &str, usual: f64| document.real(&path_of(key)).unwrap_or(usual);
    let kind = match document.word(&path_of("type")).as_deref() {
        Some("no_scaling") | None => return None,
        Some("linear") => RopeScalingKind::Linear,
        Some("llama3") => {
            RopeScalingKind::Llama3 { low: real("low_freq_factor", 1.0), high: real("high_freq_factor", 4.0) }
        }
        Some(other) => RopeScalingKind::Other(other.to_owned()),
    };
    let original_positions = document.size(&path_of("original_max_position_embeddings"));
    Some(RopeScaling { kind, factor: real("factor", 1.0), original_positions })
}

/// The MLP or the experts of every block, and their activation.
struct FeedForward {
    ffn: Ffn,
    activation: Activation,
    router: Router,
    ep: u32,
    drops_tokens: bool,
}

fn feed_forward(document: &Document, hidden: u32, bias: bool) -> Result<FeedForward, ImportError> {
    let path_of = |key: &str| format!("model.ffn_config.{key}");
    let kind = document.word(&path_of("ffn_type")).unwrap_or_else(|| "mptmlp".into());
    let (gated, mixture) = match kind.as_str() {
        "mptglu" => (true, false),
        "mptmlp" | "te_ln_mlp" => (false, false),
        "mb_moe" | "mb_dmoe" | "torch_dmoe" => {
            (document.word(&path_of("mlp_type")).is_some_and(|kind| kind == "glu"), true)
        }
        other => {
            return Err(refused(
                document,
                &path_of("ffn_type"),
                format!("layers of `{other}` are not read"),
                FFN_TYPES,
            ));
        }
    };
    let name = document.word(&path_of("ffn_act_fn.name"));
    let tanh =
        document.word(&path_of("ffn_act_fn.approximate")).map_or(mixture && name.is_none(), |word| word == "tanh");
    let activation = match name.as_deref() {
        Some("silu") => Activation::Silu,
        Some("gelu") | None if tanh => Activation::GeluTanh,
        Some("gelu") | None => Activation::Gelu,
        Some(other) => Activation::Other(other.to_owned()),
    };
    let ratio = document.real("model.expansion_ratio").unwrap_or(4.0);
    let width = f64::from(hidden) * ratio;
    let intermediate = document.size(&path_of("ffn_hidden_size")).unwrap_or_else(|| {
        if width.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&width) {
            document.wrong("model.expansion_ratio", &ratio.to_string(), "a ratio of whole widths");
        }
        width as u32
    });
    let mlp = Mlp { intermediate, gated, bias };
    if !mixture {
        let (router, ffn) = (Router::default(), Ffn::Dense(mlp));
        return Ok(FeedForward { ffn, activation, router, ep: 1, drops_tokens: false });
    }
    Ok(experts(document, &kind, &mlp, activation))
}

/// Experts of MegaBlocks, or those of its own, which it walks one by one.
///
/// Source: [llm-foundry-code] `models/layers/{ffn,dmoe}.py`, `models/utils/config_moe_args.py`; [megablocks]
/// `layers/arguments.py`, commit 78eea65f.
fn experts(document: &Document, kind: &str, expert: &Mlp, activation: Activation) -> FeedForward {
    let path_of = |key: &str| format!("model.ffn_config.{key}");
    let size = |key: &str| document.size(&path_of(key)).unwrap_or(1);
    let warn = |key: &str, message: String| {
        document.note(Finding::warning("not-modelled", message).at_maybe(document.place(&path_of(key)).as_ref()));
    };
    let norm = document.real(&path_of("moe_normalize_expert_weights"));
    if let Some(norm) = norm.filter(|norm| (norm - 1.0).abs() > 0.0) {
        warn("moe_normalize_expert_weights", format!("scores are divided by their {norm}-norm, not by their sum"));
    }
    if kind == "torch_dmoe" {
        warn("ffn_type", "`torch_dmoe` walks the experts one by one: priced as MegaBlocks'".into());
    }
    if expert.bias {
        warn("ffn_type", "one bias behind all experts is priced as none".into());
    }
    let shared = document.switch(&path_of("shared_expert")).unwrap_or(false);
    let width = document.size(&path_of("shared_expert_hidden_size")).unwrap_or(expert.intermediate);
    let moe = Moe {
        shared_intermediate: if shared { width } else { 0 },
        gated: expert.gated,
        router_score: Some(RouterScore::Softmax),
        ..Moe::gated(size("moe_num_experts"), size("moe_top_k"), expert.intermediate)
    };
    let aux_loss = (kind != "torch_dmoe").then(|| document.real(&path_of("moe_loss_weight")).unwrap_or(0.1));
    FeedForward {
        ffn: Ffn::Moe(moe),
        activation,
        router: Router { normalized: Some(norm.is_some()), bias: Some(false), scale: None, aux_loss },
        ep: document.degree(&path_of("moe_world_size")).unwrap_or(1),
        drops_tokens: kind == "mb_moe",
    }
}
