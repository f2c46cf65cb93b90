//! Values of keys as words of flags.

use crate::import::finding::Place;
use crate::readers::document::Document;

/// A text whose variable `${NAME:default}` is taken as not set.
pub(super) fn defaulted(word: &str) -> &str {
    let inner = word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.and_then(|inner| inner.split_once(':')).map_or(word, |(_, default)| default.trim_start_matches('-'))
}

/// Keys whose list is one value of their flag.
pub(super) const JOINED: &[&str] = &["moe_layer_freq", "window_attn_skip_freq", "no_rope_freq", "window_size"];

/// The value that a reference stands for: `${.hidden_size}` beside the key, `${model.hidden_size}` from the top.
fn referred(document: &Document, path: &str, word: &str) -> Option<String> {
    let inner = word.strip_prefix("${")?.strip_suffix('}').filter(|inner| !inner.contains(':'))?;
    let section = path.rsplit_once('.').map_or("", |(section, _)| section);
    let target = match inner.strip_prefix('.') {
        Some(beside) => format!("{section}.{beside}"),
        None => inner.to_owned(),
    };
    document.peek(&target).filter(|value| !value.starts_with("${")).map(str::to_owned)
}

/// The product that `${multiply:4, ${.hidden_size}}` stands for: a resolver of NeMo's launcher.
fn multiplied(document: &Document, path: &str, word: &str) -> Option<String> {
    let inner = word.strip_prefix("${multiply:")?.strip_suffix('}')?;
    let mut factors = inner
        .split(',')
        .map(str::trim)
        .map(|factor| referred(document, path, factor).as_deref().unwrap_or(factor).parse::<u64>().ok());
    let product = factors.try_fold(1_u64, |product, factor| product.checked_mul(factor?))?;
    Some(product.to_string())
}

/// The text of a key: of lists all values, of Python's names of kinds and types the last part.
pub(super) fn text_of(document: &Document, path: &str, key: &str) -> Option<String> {
    if key == "pipeline_model_parallel_layout"
        && let Some(stages) = document.count(path)
    {
        return Some(layout_of(document, path, stages));
    }
    if document.count(path).is_some() {
        let (open, between, close) = match key {
            "window_size" => ("", ",", ""),
            _ if JOINED.contains(&key) => ("[", ",", "]"),
            _ => ("", " ", ""),
        };
        return Some(format!("{open}{}{close}", document.words(path).join(between)));
    }
    let word = document.word(path)?;
    let word = multiplied(document, path, &word).unwrap_or_else(|| defaulted(&word).to_owned());
    let word = referred(document, path, &word).unwrap_or(word);
    let kind = word.strip_prefix("torch.").or_else(|| word.strip_prefix("AttnBackend."));
    Some(match kind {
        Some("bfloat16") => "bf16".into(),
        Some("float16") => "fp16".into(),
        Some("float32") => "fp32".into(),
        Some("uint8") => "fp8".into(),
        Some(other) => other.into(),
        None => word,
    })
}

/// A layout as lists of layer types, one a stage, in the letters of Megatron's text.
fn layout_of(document: &Document, path: &str, stages: u32) -> String {
    let letter = |name: &String| match name.to_ascii_lowercase().as_str() {
        "embedding" | "e" => "E".to_owned(),
        "decoder" | "t" => "t".to_owned(),
        "mtp" | "m" => "m".to_owned(),
        "loss" | "l" => "L".to_owned(),
        _ => name.clone(),
    };
    let stage = |at| document.words(&format!("{path}.{at}")).iter().map(letter).collect::<String>();
    (0..stages).map(stage).collect::<Vec<_>>().join("|")
}

/// A place, or the first line of nothing: every key that was listed has one.
pub(super) trait OrPlace {
    fn unwrap_or_default_place(self) -> Place;
}

impl OrPlace for Option<Place> {
    fn unwrap_or_default_place(self) -> Place {
        self.unwrap_or(Place { file: String::new(), line: 1 })
    }
}
