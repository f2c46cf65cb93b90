//! The model that Megatron's arguments describe.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py` (`validate_args`, `core_transformer_config_from_args`) and
//! `megatron/core/transformer/transformer_config.py`: names, defaults and what follows from them.

use super::arguments::Arguments;
use super::hybrid;
use crate::import::finding::Finding;
use crate::import::known;
use crate::megatron::sparse;
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{
    Attention, Details, Ffn, Layer, Mixer, Mla, Mlp, Model, Moe, Norm, OutputGate, QkNorm, RouterScore, Span,
};
use meshwright_engine::range::LAYERS;

/// The model; none where its sizes are not given or make no model, which findings say.
pub fn model(list: &mut Arguments) -> Option<Model> {
    let letters = hybrid::letters(list)?;
    list.mark_used("--is-hybrid-model");
    let Dimensions { layers, hidden, heads } = dimensions(list, letters.as_deref())?;
    let swiglu = list.has("--swiglu") || list.has("--quick-geglu");
    let ffn = list.size("--ffn-hidden-size").unwrap_or_else(|| usual_ffn(hidden, swiglu));
    let biased = !list.has("--disable-bias-linear");
    let normalization = list.word("--normalization").unwrap_or_else(|| "LayerNorm".into());
    let norm = if normalization.eq_ignore_ascii_case("rmsnorm") { Norm::Rms } else { Norm::Layer };
    let position = position(list);
    let latent = list.has("--multi-latent-attention") || letters.as_ref().is_some_and(|letters| letters.contains(&'+'));
    let mixer = if latent {
        Mixer::Mla(latent_attention(list, heads))
    } else {
        Mixer::Attention(Attention { rope: position == Position::Rotary, ..attention(list, hidden, heads, biased)? })
    };
    let dense = Ffn::Dense(Mlp { intermediate: ffn, gated: swiglu, bias: biased });
    let moe = moe(list, ffn, swiglu, biased);
    let parts = hybrid::Parts { mixer: &mixer, dense: &dense, moe: moe.as_ref() };
    let hybrid = match &letters {
        Some(letters) => Some(hybrid::layers(list, letters, hidden, &parts)?),
        None => None,
    };
    let two_part_layers = layers_of_two_parts(list, layers, &parts)?;
    let dropout = |list: &mut Arguments, flag| list.real(flag).unwrap_or(0.1) > 0.0;
    let (hidden_dropout, attention_dropout) = (dropout(list, "--hidden-dropout"), dropout(list, "--attention-dropout"));
    let positions = list.size("--max-position-embeddings");
    let seq_len = list.size("--seq-length").or_else(|| list.size("--encoder-seq-length"));
    let (kinds, order) = hybrid.unwrap_or_else(|| distinct(two_part_layers));
    let mut model = Model {
        name: "imported".into(),
        source: "imported".into(),
        hidden,
        vocab: 1,
        seq_len: seq_len.or(positions).unwrap_or(4096),
        tied_embeddings: !list.has("--untie-embeddings-and-output-weights"),
        learned_positions: if position == Position::Learned { positions.or(seq_len).unwrap_or(0) } else { 0 },
        embedding_norm: list.has("--embed-layernorm"),
        head_bias: false,
        norm,
        dropout: hidden_dropout || attention_dropout,
        kinds,
        order,
        mtp_depth: list.number("--mtp-num-layers").unwrap_or(0),
        details: Details::default(),
    };
    model.vocab = vocabulary(list, &model);
    if let Err(why) = model.check() {
        list.findings.push(Finding::error("impossible-model", why.to_string()));
        return None;
    }
    Some(known::named(model))
}

/// Dimensions that every model is given with.
struct Dimensions {
    layers: u32,
    hidden: u32,
    heads: u32,
}

/// Dimensions of a model; layers are as many as a hybrid has letters.
fn dimensions(list: &mut Arguments, letters: Option<&[char]>) -> Option<Dimensions> {
    let given = list.size("--num-layers").or_else(|| list.size("--encoder-num-layers"));
    let layers = letters.map_or(given, |letters| Some(letters.len() as u32));
    let (hidden, heads) = (list.size("--hidden-size"), list.size("--num-attention-heads"));
    let (Some(layers), Some(hidden), Some(heads)) = (layers, hidden, heads) else {
        let missing: Vec<&str> =
            [("--num-layers", layers), ("--hidden-size", hidden), ("--num-attention-heads", heads)]
                .into_iter()
                .filter_map(|(flag, value)| value.is_none().then_some(flag))
                .filter(|flag| list.place(flag).is_none())
                .collect();
        if !missing.is_empty() {
            let finding = Finding::error("missing-flag", format!("no {}", missing.join(", ")));
            list.findings.push(finding.expected("a model has them; or give it with --model"));
        }
        return None;
    };
    if layers > MOST_LAYERS {
        list.wrong("--num-layers", &layers.to_string(), &format!("at most {MOST_LAYERS}"));
        return None;
    }
    Some(Dimensions { layers, hidden, heads })
}

/// Layers of a mixer and a feed-forward part each, with the flags that make some of them sparse, full or without rotary positions.
fn layers_of_two_parts(list: &mut Arguments, layers: u32, parts: &hybrid::Parts) -> Option<Vec<Layer>> {
    let sparse = if parts.moe.is_some() { sparse_layers(list, layers)? } else { vec![false; layers as usize] };
    let windowed = pattern(list, "--window-attn-skip-freq", layers, |layer, every| (layer + 1) % every != 0)?;
    let unrotated = pattern(list, "--no-rope-freq", layers, |layer, every| (layer + 1) % every == 0)?;
    let shares_keys = sparse::sharing(list, layers);
    let layer = |at: usize| {
        let mut mixer = parts.mixer.clone();
        if let Mixer::Attention(attention) = &mut mixer {
            if windowed.as_ref().is_some_and(|windowed| !windowed[at]) {
                attention.span = Span::Full;
            }
            attention.rope &= !unrotated.as_ref().is_some_and(|unrotated| unrotated[at]);
        }
        if let Mixer::Mla(Mla { indexer: Some(indexer), .. }) = &mut mixer {
            indexer.shared = shares_keys[at];
        }
        let ffn = parts.moe.filter(|_| sparse[at]).map_or_else(|| parts.dense.clone(), |moe| Ffn::Moe(moe.clone()));
        Layer { mixer, ffn, norms: 2, extra_parameters: 0 }
    };
    Some((0..layers as usize).map(layer).collect())
}

/// Most layers of a model, so that a mistyped number does not exhaust memory.
const MOST_LAYERS: u32 = LAYERS.most() as u32;

/// The width of the MLP where none is given: 4·h, or two thirds of it, in whole 64s, when it is gated.
const fn usual_ffn(hidden: u32, gated: bool) -> u32 {
    if gated { (4 * hidden as u64 * 2 / 3 / 64 * 64) as u32 } else { hidden.saturating_mul(4) }
}

/// Positions of tokens: a learned table, rotary embedding, or neither.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Learned,
    Rotary,
    None,
}

fn position(list: &mut Arguments) -> Position {
    let kind = list.word("--position-embedding-type").unwrap_or_else(|| "learned_absolute".into());
    let rotary = list.has("--use-rotary-position-embeddings");
    match kind.as_str() {
        _ if rotary => Position::Rotary,
        "rope" | "mrope" | "yarn" | "rotary" => Position::Rotary,
        "none" | "alibi" | "relative" => Position::None,
        _ if list.has("--no-position-embedding") => Position::None,
        _ => Position::Learned,
    }
}

/// Latent attention, with Megatron's defaults.
fn latent_attention(list: &mut Arguments, heads: u32) -> Mla {
    Mla {
        heads,
        q_rank: list.number("--q-lora-rank").unwrap_or(0),
        kv_rank: list.size("--kv-lora-rank").unwrap_or(32),
        nope_dim: list.size("--qk-head-dim").unwrap_or(128),
        rope_dim: list.size("--qk-pos-emb-head-dim").unwrap_or(64),
        v_dim: list.size("--v-head-dim").unwrap_or(128),
        rope: true,
        indexer: sparse::read(list),
    }
}

/// Multi-head or grouped-query attention; none where the heads do not divide the hidden size.
fn attention(list: &mut Arguments, hidden: u32, heads: u32, biased: bool) -> Option<Attention> {
    let head_dim = match list.size("--kv-channels") {
        Some(dim) => dim,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let finding =
                Finding::error("does-not-divide", format!("{heads} heads do not divide the hidden size {hidden}"));
            list.report("--num-attention-heads", finding.expected("another number, or --kv-channels"));
            return None;
        }
    };
    let groups = list.size("--num-query-groups").filter(|_| list.has("--group-query-attention"));
    let kv_heads = groups.or_else(|| list.size("--num-key-value-heads")).unwrap_or(heads);
    // `--window-size 127,0`: a query sees 127 keys before it, and its own.
    let window = list.word("--window-size").and_then(|text| {
        let digits: String =
            text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok().filter(|n| *n > 0).and_then(|n| n.checked_add(1))
    });
    Some(Attention {
        heads,
        kv_heads,
        head_dim,
        value_dim: 0,
        span: window.map_or(Span::Full, Span::Window),
        qkv_bias: biased || list.has("--add-qkv-bias"),
        out_bias: biased,
        qk_norm: if list.has("--qk-layernorm") { QkNorm::PerHead } else { QkNorm::None },
        sinks: list.word("--softmax-type").is_some_and(|kind| kind == "learnable"),
        output_gate: if list.has("--attention-output-gate") { OutputGate::PerElement } else { OutputGate::None },
        keys_are_values: false,
        rope: true,
    })
}

/// Mixture of experts, where there are several; Megatron-DeepSpeed sends a token to one of them by default, Megatron to two.
fn moe(list: &mut Arguments, ffn: u32, gated: bool, biased: bool) -> Option<Moe> {
    let experts = list.size("--num-experts").filter(|experts| *experts > 1)?;
    let usual_top_k = if list.is_deepspeed() { 1 } else { 2 };
    Some(Moe {
        experts,
        top_k: list.size("--moe-router-topk").or_else(|| list.size("--topk")).unwrap_or(usual_top_k),
        intermediate: list.size("--moe-ffn-hidden-size").unwrap_or(ffn),
        gated,
        bias: biased,
        shared_intermediate: list.number("--moe-shared-expert-intermediate-size").unwrap_or(0),
        shared_gate: list.has("--moe-shared-expert-gate"),
        router_bias: biased || list.has("--moe-router-enable-expert-bias"),
        router_score: match list.word("--moe-router-score-function").as_deref() {
            Some("sigmoid") => Some(RouterScore::Sigmoid),
            Some("softmax") => Some(RouterScore::Softmax),
            Some(_) | None => None,
        },
        group_limit: list.number("--moe-router-group-topk").unwrap_or(0),
        dense_intermediate: 0,
        latent: list.size("--moe-latent-size").unwrap_or(0),
    })
}

/// Whether each layer has experts (`--moe-layer-freq`): every n-th, or by a list such as `([0]*3+[1]*58)`.
fn sparse_layers(list: &mut Arguments, layers: u32) -> Option<Vec<bool>> {
    let usual_interval = if list.is_deepspeed() { 2 } else { 1 };
    let every = list.size("--expert-interval").unwrap_or(usual_interval);
    let usual = || (0..layers).map(|layer| layer % every == every - 1).collect();
    let given = pattern(list, "--moe-layer-freq", layers, u32::is_multiple_of)?;
    Some(given.unwrap_or_else(usual))
}

/// The layers that a flag marks: by `rule` where it is a number, or as a list of 0 and 1. `Some(None)` where it is not given.
#[allow(clippy::option_option)] // not given, and given wrong, differ
fn pattern(
    list: &mut Arguments,
    flag: &str,
    layers: u32,
    rule: impl Fn(u32, u32) -> bool,
) -> Option<Option<Vec<bool>>> {
    let Some(text) = list.word(flag) else { return Some(None) };
    let marked = match text.trim().parse::<u32>() {
        Ok(every) if every > 0 => Some((0..layers).map(|layer| rule(layer, every)).collect()),
        Ok(_) => None,
        Err(_) => python_list(&text),
    };
    if marked.as_ref().is_some_and(|marked: &Vec<bool>| marked.len() == layers as usize) {
        return Some(marked);
    }
    list.wrong(flag, &text, &format!("every how many layers, or a list of {layers} of 0 and 1"));
    None
}

/// A sum of repeated lists: `[0]*3+[1]*58`, `([1, 0]) * 12`.
fn python_list(text: &str) -> Option<Vec<bool>> {
    const MOST: usize = 10_000;
    let text: String = text.chars().filter(|c| !c.is_whitespace() && !"()'\"".contains(*c)).collect();
    let mut out = Vec::new();
    for term in text.split('+') {
        let (inner, times) = term.strip_prefix('[')?.split_once(']')?;
        let items: Vec<bool> = inner.split(',').filter(|n| !n.is_empty()).map(|n| n == "1").collect();
        let times: usize = if times.is_empty() { 1 } else { times.strip_prefix('*')?.parse().ok()? };
        if items.len().saturating_mul(times) > MOST {
            return None;
        }
        out.extend(items.repeat(times));
    }
    Some(out)
}

/// The vocabulary: as given, as of the same model in the catalogue, or as of the tokenizer's kind.
fn vocabulary(list: &mut Arguments, model: &Model) -> u32 {
    // The last is BigScience's Megatron-DeepSpeed's.
    for flag in ["--vocab-size", "--padded-vocab-size", "--pad-vocab-size-to"] {
        if let Some(vocab) = list.size(flag) {
            return vocab;
        }
    }
    let kind = list.word("--tokenizer-type").unwrap_or_default();
    let files: Vec<String> = ["--vocab-file", "--merge-file", "--tokenizer-model"]
        .iter()
        .filter(|flag| list.place(flag).is_some())
        .filter_map(|flag| list.peek(flag))
        .map(|file| file.to_lowercase())
        .collect();
    let gpt2 = kind.starts_with("GPT2") || files.iter().any(|file| file.contains("gpt2") || file.contains("gpt-2"));
    let sentences = kind.contains("Llama2") || kind.contains("SentencePiece");
    let known = known::vocabularies_of(model);
    let known = if sentences { known.first() } else { known.last() };
    let (vocab, why) = match known {
        Some((name, vocab)) => (*vocab, format!("{name} has the same layers")),
        None if gpt2 => (50_257, "that of GPT-2's tokenizer".into()),
        None if sentences => (32_000, "that of Llama 2's tokenizer".into()),
        None => (128_256, "that of Llama 3's tokenizer".into()),
    };
    let place = list.place("--tokenizer-type").or_else(|| list.place("--tokenizer-model"));
    let finding = Finding::warning("assumed-vocabulary", format!("no --vocab-size: {vocab} is assumed, as {why}"));
    list.findings.push(finding.at_maybe(place.as_ref()).expected("--vocab-size in the file, or --vocab"));
    vocab
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_lists_are_spelled_out() {
        assert_eq!(python_list("([0]*3+[1]*2)").unwrap(), [false, false, false, true, true]);
        assert_eq!(python_list("[1, 0]*2").unwrap(), [true, false, true, false]);
        assert!(
            python_list("[0]*x").is_none() && python_list("eval(1)").is_none() && python_list("[1]*99999999").is_none()
        );
    }

    #[test]
    fn widths_follow_from_the_hidden_size() {
        assert_eq!(usual_ffn(4096, false), 16_384);
        assert_eq!(usual_ffn(4096, true), 10_880);
    }
}
