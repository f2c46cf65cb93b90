//! Hybrids of Mamba, attention and MLP layers: `--hybrid-layer-pattern`, and `--hybrid-override-pattern` before 0.17.
//!
//! Source: [megatron-lm] `megatron/core/models/hybrid/hybrid_layer_allocation.py`, `megatron/core/ssm/mamba_mixer.py`.

use super::arguments::Arguments;
use crate::import::finding::Finding;
use meshwright_engine::distinct::distinct;
use meshwright_engine::model::{Ffn, Layer, Mamba, Mixer, Moe};
use meshwright_engine::range::LAYERS;

/// Name of the flag.
pub const PATTERN: &str = "--hybrid-layer-pattern";
/// Its older name.
const OLD: &str = "--hybrid-override-pattern";
/// Most layers of a model, so that a mistyped number does not exhaust memory.
const MOST_LAYERS: usize = LAYERS.most() as usize;

fn pattern(list: &mut Arguments) -> Option<(String, &'static str)> {
    [PATTERN, OLD].into_iter().find_map(|flag| Some((list.word(flag)?, flag)))
}

/// The letters of all layers; `Some(None)` where the model is no hybrid.
#[allow(clippy::option_option)] // not given, and given wrong, differ
pub fn letters(list: &mut Arguments) -> Option<Option<Vec<char>>> {
    let Some((text, flag)) = pattern(list) else {
        let place = list.place("--is-hybrid-model").or_else(|| list.place("--hybrid-attention-ratio"));
        let Some(place) = place else { return Some(None) };
        let finding = Finding::error("not-modelled", "a hybrid by ratios of its layers is not read").at(&place);
        list.findings.push(finding.expected("its pattern (--hybrid-layer-pattern), or give the model with --model"));
        return None;
    };
    let (main, predicted) = text.split_once('/').unwrap_or((&text, ""));
    if !predicted.is_empty() {
        let finding = Finding::warning("not-modelled", format!("`/{predicted}`: multi-token prediction is left out"));
        list.report(flag, finding);
    }
    let letters: Vec<char> = main.chars().filter(|letter| *letter != '|').take(MOST_LAYERS + 1).collect();
    let unknown = letters.iter().find(|letter| !"M*+-E".contains(**letter));
    if unknown.is_some() || letters.is_empty() || letters.len() > MOST_LAYERS {
        list.wrong(flag, &text, "M (Mamba), * (attention), + (latent attention), - (MLP), E (experts), one a layer");
        return None;
    }
    Some(Some(letters))
}

/// Layers between the bars of the pattern.
pub fn stages(list: &mut Arguments) -> Option<Vec<u32>> {
    let (text, _) = pattern(list)?;
    let main = text.split('/').next().unwrap_or_default();
    Some(main.split('|').map(|stage| stage.chars().count() as u32).collect())
}

/// Attention and feed-forward parts, as the other flags set them.
pub struct Parts<'a> {
    pub mixer: &'a Mixer,
    pub dense: &'a Ffn,
    pub moe: Option<&'a Moe>,
}

/// The kinds of layer and the kind of each; none where the pattern asks for experts that no flag describes.
pub fn layers(list: &mut Arguments, letters: &[char], hidden: u32, parts: &Parts) -> Option<(Vec<Layer>, Vec<usize>)> {
    let head_dim = list.size("--mamba-head-dim").unwrap_or(64);
    let mamba = Mamba {
        heads: list.size("--mamba-num-heads").unwrap_or_else(|| hidden.saturating_mul(2) / head_dim),
        head_dim,
        groups: list.size("--mamba-num-groups").unwrap_or(8),
        state: list.size("--mamba-state-dim").unwrap_or(128),
        conv_kernel: 4,
        conv_bias: true,
        proj_bias: false,
        out_bias: None,
        norm: true,
    };
    if letters.contains(&'E') && parts.moe.is_none() {
        let place = list.place(PATTERN).or_else(|| list.place(OLD));
        let finding = Finding::error("missing-flag", "the pattern has experts, and there is no --num-experts");
        list.findings.push(finding.at_maybe(place.as_ref()));
        return None;
    }
    let layer = |letter: &char| {
        let (mixer, ffn) = match (letter, parts.moe) {
            ('M', _) => (Mixer::Mamba(mamba.clone()), Ffn::None),
            ('-', _) => (Mixer::None, parts.dense.clone()),
            ('E', Some(moe)) => (Mixer::None, Ffn::Moe(moe.clone())),
            _ => (parts.mixer.clone(), Ffn::None),
        };
        Layer { mixer, ffn, norms: 1, extra_parameters: 0 }
    };
    Some(distinct(letters.iter().map(layer)))
}
