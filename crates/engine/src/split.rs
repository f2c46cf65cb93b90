//! Split of a model's layers over the stages of a pipeline: even, balanced by cost, or spelled out.

pub mod layers;
pub mod nanotron;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Split of layers over the virtual stages of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum LayerSplit {
    /// Equal chunks; where the layers do not divide, the last, then the first chunk gets one less (§4.3).
    #[default]
    Even,
    /// Balanced by cost: the head counts as the number of layers that take as long (§4.3, version 1.1).
    CostBalanced,
    /// Stated numbers of layers on the first or the last rank, all its chunks together, and equal numbers on the others.
    ///
    /// Source: [megatron-lm] `--decoder-first-pipeline-num-layers`, `--decoder-last-pipeline-num-layers`.
    Ends {
        /// Layers of the first rank.
        first: Option<NonZeroU32>,
        /// Layers of the last rank.
        last: Option<NonZeroU32>,
    },
    /// Every stage spelled out. Source: [megatron-lm] `--pipeline-model-parallel-layout`.
    Stages(Arc<StageLayers>),
}

/// Layers of each virtual stage, in model order. The first has the embedding, the last the loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageLayers {
    layers: Box<[u32]>,
    mtp: u32,
    mtp_stage: u32,
}

impl StageLayers {
    /// Decoder layers of each stage.
    pub const fn layers(&self) -> &[u32] {
        &self.layers
    }
    /// Number of multi-token-prediction layers.
    pub const fn mtp(&self) -> u32 {
        self.mtp
    }
    /// The stage that holds them.
    pub const fn mtp_stage(&self) -> usize {
        self.mtp_stage as usize
    }
}

impl LayerSplit {
    /// These decoder layers on each stage, and `mtp` multi-token-prediction layers on stage `mtp_stage`, the last where there
    /// are none.
    pub fn stages(layers: &[u32], mtp: u32, mtp_stage: usize) -> Self {
        let last = layers.len().saturating_sub(1);
        let mtp_stage = if mtp == 0 { last } else { mtp_stage.min(last) } as u32;
        Self::Stages(Arc::new(StageLayers { layers: layers.into(), mtp, mtp_stage }))
    }

    /// The first and the last rank's layers.
    pub const fn ends(first: Option<u32>, last: Option<u32>) -> Self {
        const fn some(layers: Option<u32>) -> Option<NonZeroU32> {
            match layers {
                Some(layers) => NonZeroU32::new(layers),
                None => None,
            }
        }
        Self::Ends { first: some(first), last: some(last) }
    }

    /// Whether it names layers of stages instead of following from the model.
    pub const fn is_spelled_out(&self) -> bool {
        matches!(self, Self::Ends { .. } | Self::Stages(_))
    }

    /// The stage of `stages` that holds the multi-token-prediction layers: the last unless another is named.
    pub fn mtp_stage(&self, stages: usize) -> usize {
        match self {
            Self::Stages(list) if list.mtp > 0 && list.mtp_stage() < stages => list.mtp_stage(),
            Self::Stages(_) | Self::Even | Self::CostBalanced | Self::Ends { .. } => stages.saturating_sub(1),
        }
    }
}

impl fmt::Display for LayerSplit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Even => f.write_str("even"),
            Self::CostBalanced => f.write_str("cost-balanced"),
            Self::Ends { first, last } => {
                let named = [("first", first), ("last", last)];
                let parts: Vec<String> = named
                    .into_iter()
                    .filter_map(|(name, layers)| layers.map(|layers| format!("{name}-{layers}")))
                    .collect();
                f.write_str(&parts.join("+"))
            }
            Self::Stages(list) => {
                let last = list.layers.len() - 1;
                let stages = list.layers.iter().enumerate().map(|(at, &layers)| {
                    let mtp = if at == list.mtp_stage() { list.mtp } else { 0 };
                    StageLetters { embedding: at == 0, layers, mtp, loss: at == last }
                });
                f.write_str(&layout(stages))
            }
        }
    }
}

impl From<LayerSplit> for String {
    fn from(split: LayerSplit) -> Self {
        split.to_string()
    }
}

impl TryFrom<String> for LayerSplit {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for LayerSplit {
    type Err = String;

    /// Reads `even`, `cost-balanced`, `first-3`, `last-2`, `first-3+last-2`, or a layout as [`parse_layout`] does.
    ///
    /// # Errors
    /// The text is no split, or the part of a layout that is not allowed.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "even" => return Ok(Self::Even),
            "cost-balanced" => return Ok(Self::CostBalanced),
            _ if text.contains(['E', 'L', '|']) => return parse_layout(text),
            _ => {}
        }
        let unknown = || {
            format!(
                "`{text}` is none of: even, cost-balanced, first-N, last-N, first-N+last-N, or a layout such as \
                 Et*3|(t*4|)*2t*3L"
            )
        };
        let (mut first, mut last) = (None, None);
        for part in text.split('+') {
            let (name, layers) = part.split_once('-').ok_or_else(unknown)?;
            let layers: NonZeroU32 = layers.parse().map_err(|_| unknown())?;
            let end = match name {
                "first" => &mut first,
                "last" => &mut last,
                _ => return Err(unknown()),
            };
            if end.replace(layers).is_some() {
                return Err(format!("`{text}` names the {name} rank twice"));
            }
        }
        Ok(Self::Ends { first, last })
    }
}

/// Most letters and bars of a layout, written out, so that a mistyped repetition does not exhaust memory.
const MOST: usize = 1_000_000;

/// Reads a pipeline layout: `E` embedding, `t` a decoder layer, `m` a multi-token-prediction layer, `L` loss, `|` between
/// stages, `x*n` and `(…)*n` for repeats; commas mean nothing.
///
/// # Errors
/// Names the letter that is none of these, or the rule that the layout breaks: `E` comes first, `L` last, each once; `m` behind
/// all `t`, on one stage.
///
/// Source: [megatron-lm] `megatron/core/transformer/pipeline_parallel_layer_layout.py`.
pub fn parse_layout(text: &str) -> Result<LayerSplit, String> {
    let letters = written_out(text)?;
    let wrong = |why: &str| Err(format!("`{text}`: {why}"));
    let mut layers = vec![0_u32];
    let (mut mtp, mut mtp_stage, mut begun, mut loss_stage) = (0_u32, 0, false, 0);
    for letter in letters {
        match letter {
            '|' => layers.push(0),
            _ if loss_stage > 0 => return wrong("`L` comes last, once"),
            'E' if begun => return wrong("`E` comes first, once"),
            'E' if layers.len() > 1 => return wrong("`E` stands on the first stage"),
            'E' => begun = true,
            _ if !begun => return wrong("`E` comes first"),
            't' if mtp > 0 => return wrong("`m` comes behind all `t`"),
            't' => {
                if let Some(stage) = layers.last_mut() {
                    *stage += 1;
                }
            }
            'm' if mtp > 0 && mtp_stage + 1 != layers.len() => return wrong("all `m` stand on one stage"),
            'm' => (mtp, mtp_stage) = (mtp + 1, layers.len() - 1),
            _ => loss_stage = layers.len(),
        }
    }
    if loss_stage != layers.len() {
        return wrong("`L` comes last, on the last stage");
    }
    Ok(LayerSplit::stages(&layers, mtp, mtp_stage))
}

/// The letters and bars of a layout, repeats written out.
fn written_out(text: &str) -> Result<Vec<char>, String> {
    let too_long = || format!("a layout of more than {MOST} letters and bars");
    let mut out: Vec<char> = Vec::new();
    let mut group: Option<usize> = None; // where an open parenthesis began
    let mut unit = 0..0; // what `*n` would repeat
    let mut chars = text.chars().filter(|c| *c != ',').peekable();
    while let Some(c) = chars.next() {
        match c {
            'E' | 't' | 'm' | 'L' | '|' => {
                out.push(c);
                unit = out.len() - 1..out.len();
            }
            '(' if group.is_some() => return Err(format!("`{text}`: parentheses do not nest")),
            '(' => (group, unit) = (Some(out.len()), 0..0),
            ')' => match group.take() {
                Some(from) if from < out.len() && chars.peek() == Some(&'*') => unit = from..out.len(),
                Some(_) => return Err(format!("`{text}`: parentheses hold letters, and `*n` comes behind them")),
                None => return Err(format!("`{text}`: `)` without `(`")),
            },
            '*' => {
                let mut digits = String::new();
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                if unit.is_empty() || digits.is_empty() {
                    return Err(format!("`{text}`: `*` stands between a letter or `)` and a number"));
                }
                let times: usize = digits.parse().map_err(|_| too_long())?;
                let repeated: Vec<char> = out[unit.clone()].to_vec();
                if repeated.len().saturating_mul(times) > MOST {
                    return Err(too_long());
                }
                out.truncate(unit.start);
                out.extend(repeated.iter().cycle().take(repeated.len() * times));
                unit = 0..0;
            }
            other => {
                return Err(format!("`{text}`: `{other}` is no letter of a layout: E, t, m, L, |, and repeats by *n"));
            }
        }
        if out.len() > MOST {
            return Err(too_long());
        }
    }
    if group.is_some() { Err(format!("`{text}`: `(` without `)`")) } else { Ok(out) }
}

/// One stage of a layout text.
#[derive(Clone, Copy, Debug)]
pub struct StageLetters {
    /// Whether it has the embedding: `E`.
    pub embedding: bool,
    /// Number of its decoder layers: `t`.
    pub layers: u32,
    /// Number of its multi-token-prediction layers: `m`.
    pub mtp: u32,
    /// Whether it has the loss: `L`.
    pub loss: bool,
}

/// Layout text of stages; equal neighbours are folded.
pub fn layout(stages: impl Iterator<Item = StageLetters>) -> String {
    let times = |letter: char, n: u32| match n {
        0 => String::new(),
        1 => letter.to_string(),
        _ => format!("{letter}*{n}"),
    };
    let texts: Vec<String> = stages
        .map(|StageLetters { embedding, layers, mtp, loss }| {
            let (embedding, loss) = (if embedding { "E" } else { "" }, if loss { "L" } else { "" });
            format!("{embedding}{}{}{loss}", times('t', layers), times('m', mtp))
        })
        .collect();
    fold(&texts)
}

/// Texts of stages with `|` between; runs of equal stages as `(t*2|)*3`.
fn fold(texts: &[String]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < texts.len() {
        let run = texts[at..].iter().take_while(|text| **text == texts[at]).count();
        let ends = at + run == texts.len();
        let repeated = if ends { run - 1 } else { run };
        match repeated {
            0 => {}
            1 => out.extend([texts[at].as_str(), "|"]),
            _ => out.extend(["(", texts[at].as_str(), "|)*", repeated.to_string().as_str()]),
        }
        if ends {
            out.push_str(&texts[at]);
        }
        at += run;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(text: &str) -> (Vec<u32>, u32, usize) {
        match text.parse() {
            Ok(LayerSplit::Stages(list)) => (list.layers().to_vec(), list.mtp(), list.mtp_stage()),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn layouts_fold_as_megatron_reads_them() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(fold(&texts(&["Et*3", "t*4", "t*4", "t*2L"])), "Et*3|(t*4|)*2t*2L");
        assert_eq!(fold(&texts(&["Et", "tL"])), "Et|tL");
        assert_eq!(fold(&texts(&["E", "t*2", "m", "L"])), "E|t*2|m|L");
    }

    /// The first is DeepSeek-V3's in Megatron-Bridge; the examples of Megatron's own documentation follow.
    #[test]
    fn megatrons_layouts_are_read_and_written() {
        let mut deepseek = vec![4; 16];
        (deepseek[0], deepseek[15]) = (3, 2);
        assert_eq!(layers("Et*3|(tttt|)*14,ttmL"), (deepseek, 1, 15));
        let (counts, mtp, at) = layers("Ettt|(tt|)*29,m|L");
        assert_eq!((counts.len(), counts.iter().sum::<u32>(), mtp, at), (32, 61, 1, 30));
        assert_eq!(layers("E|t*2|(t|)*2L"), (vec![0, 2, 1, 1, 0], 0, 4));
        assert_eq!(layers("EtL"), (vec![1], 0, 0));
        assert_eq!(layers("Et||*2tL"), (vec![1, 0, 0, 1], 0, 3));
        assert_eq!(layers("E(t*2|)*2t*0L"), (vec![2, 2, 0], 0, 2));
        for text in ["Et*3|(t*4|)*14t*2mL", "E|t*2|m|L", "EtL", "E||L", "first-3", "last-2", "first-3+last-2", "even"] {
            assert_eq!(text.parse::<LayerSplit>().unwrap().to_string(), text);
        }
        assert_eq!("Ett|tt|L".parse::<LayerSplit>(), "Et*2|t*2|L".parse());
    }

    #[test]
    fn what_is_no_layout_is_named() {
        for (text, why) in [
            ("Ex|L", "`x`"),
            ("tE|L", "`E` comes first"),
            ("E|E|L", "`E` comes first, once"),
            ("|Et|L", "`E` stands on the first stage"),
            ("Et|tL|", "`L` comes last"),
            ("Et|t", "`L` comes last"),
            ("EtL|L", "`L` comes last, once"),
            ("Em|t|L", "`m` comes behind all `t`"),
            ("Et|m|mL", "on one stage"),
            ("E(t|L", "`(` without `)`"),
            ("Et|)*2L", "`)` without `(`"),
            ("E((t|)*2)*2L", "do not nest"),
            ("E(t|)L", "`*n` comes behind"),
            ("E*|L", "`*`"),
            ("Et*2*3|L", "`*`"),
            ("Et*99999999999999999999|L", "more than"),
            ("E(t|)*900000(t|)*900000L", "more than"),
            ("first-0", "first-0"),
            ("first-1+first-2", "twice"),
            ("middle-3", "middle-3"),
            ("", "even"),
        ] {
            let error = text.parse::<LayerSplit>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
