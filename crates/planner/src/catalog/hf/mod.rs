//! Models from a Hugging Face `config.json`: known families exactly, unknown ones not at all.
//!
//! A reader knows what the class of its family builds: which biases, norms and ties it has where the file
//! does not say. A field that would change the parameters and that the family does not know is refused.
//!
//! Of a configuration with a `text_config`, that part alone is read: encoders of images are not planned.
//!
//! Source: [transformers] `configuration_*.py` and `modeling_*.py` of each family.

mod classic;
mod error;
mod experts;
mod fields;
mod frame;
mod gemma;
mod hybrid;
mod llama;

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};

use super::json::parse_json;
use super::one_line::is_one_line;

pub use error::HfError;
use fields::Fields;
use meshwright_engine::model::Model;

/// Reads the fields of one family.
type Reader = fn(&Fields) -> Result<Model, HfError>;

/// The families, by `model_type`.
const FAMILIES: &[(&str, Reader)] = &[
    ("bloom", classic::bloom),
    ("cohere", llama::cohere),
    ("cohere2", llama::cohere2),
    ("deepseek_v2", experts::deepseek),
    ("deepseek_v3", experts::deepseek),
    ("falcon", classic::falcon),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma2),
    ("gemma3_text", gemma::gemma3),
    ("gemma4_text", gemma::gemma4),
    ("glm4_moe", experts::glm4_moe),
    ("gpt2", classic::gpt2),
    ("gpt_bigcode", classic::gpt_bigcode),
    ("gpt_neox", classic::gpt_neox),
    ("gpt_oss", experts::gpt_oss),
    ("granite", llama::llama),
    ("kimi_k2", experts::deepseek),
    ("llama", llama::llama),
    ("llama4_text", experts::llama4),
    ("mistral", llama::mistral),
    ("mixtral", experts::mixtral),
    ("nemotron", classic::nemotron),
    ("nemotron_h", hybrid::nemotron_h),
    ("olmo2", llama::olmo2),
    ("olmo3", llama::olmo3),
    ("olmoe", experts::olmoe),
    ("opt", classic::opt),
    ("phi", classic::phi),
    ("phi3", llama::phi3),
    ("qwen2", llama::qwen2),
    ("qwen2_moe", experts::qwen2_moe),
    ("qwen3", llama::qwen3),
    ("qwen3_5_moe_text", hybrid::qwen3_5_moe),
    ("qwen3_5_text", hybrid::qwen3_5),
    ("qwen3_moe", experts::qwen3_moe),
    ("qwen3_next", hybrid::qwen3_next),
    ("starcoder2", classic::starcoder2),
];

/// Known values of `model_type`, sorted.
pub fn model_types() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Reads a `config.json`; `origin` is the path for messages, and the model's source.
///
/// The sequence length is `max_position_embeddings`, 8,192 at most; 4,096 where there is none.
///
/// # Errors
///
/// Whatever is not exactly a known architecture: see [`HfError`].
pub fn from_config(text: &str, origin: &str) -> Result<Model, HfError> {
    let text = python_numbers(text.trim_start_matches('\u{feff}'));
    let value = parse_json(&text).map_err(|e| {
        let why = e.to_string();
        let why = why.split_once(" at line ").map_or(why.as_str(), |(why, _)| why).to_owned();
        HfError::NotJson { origin: origin.into(), line: e.line(), column: e.column(), why }
    })?;
    let Value::Object(mut whole) = value else {
        return Err(not_an_object(origin, "a configuration", &value));
    };
    let outer = model_type(&Fields::new(&whole, origin, ""))?.map(str::to_owned);
    let Some(part) = whole.remove("text_config").filter(|part| !part.is_null()) else {
        let outer = outer.ok_or_else(|| Fields::new(&whole, origin, "").missing(&["model_type"]))?;
        return read(&whole, &outer, origin, "");
    };
    let Value::Object(mut part) = part else {
        return Err(not_an_object(origin, "`text_config`", &part));
    };
    if let Some(ties) = whole.remove("tie_word_embeddings") {
        part.entry("tie_word_embeddings").or_insert(ties);
    }
    Fields::new(&whole, origin, "").nothing_left()?;
    let inner = model_type(&Fields::new(&part, origin, "text_config."))?.map(str::to_owned);
    let inner = inner
        .or_else(|| outer.map(|outer| format!("{outer}_text")))
        .ok_or_else(|| Fields::new(&part, origin, "text_config.").missing(&["model_type"]))?;
    read(&part, &inner, origin, "text_config.")
}

fn model_type<'a>(fields: &'a Fields) -> Result<Option<&'a str>, HfError> {
    fields.text("model_type")
}

fn not_an_object(origin: &str, what: &'static str, found: &Value) -> HfError {
    HfError::NotAnObject { origin: origin.into(), what, found: fields::brief(found) }
}

/// Reads the fields of one object.
fn read(map: &Map<String, Value>, model_type: &str, origin: &str, path: &'static str) -> Result<Model, HfError> {
    let Some((_, reader)) = FAMILIES.iter().find(|(name, _)| *name == model_type) else {
        let known = model_types().collect::<Vec<_>>().join(", ");
        return Err(HfError::UnknownModelType { origin: origin.into(), model_type: model_type.into(), known });
    };
    let fields = Fields::new(map, origin, path);
    let model = Model { name: name(origin, model_type)?, ..reader(&fields)? };
    fields.nothing_left()?;
    model.check().map_err(|why| HfError::Impossible { origin: origin.into(), why })?;
    Ok(model)
}

/// Name to print: the file's, or its folder's where the file is `config.json`.
fn name(origin: &str, model_type: &str) -> Result<String, HfError> {
    let path = Path::new(origin);
    let stem = path.file_stem().filter(|&stem| stem != "config");
    let folder = path.parent().and_then(Path::file_name);
    let name = stem.or(folder).map_or_else(|| model_type.to_owned(), |name| name.to_string_lossy().into_owned());
    if is_one_line(&name) {
        return Ok(name);
    }
    let what = if stem.is_some() { "its name" } else { "the name of its folder" };
    Err(HfError::Name { origin: origin.escape_debug().to_string(), what })
}

/// Replaces what Python writes and JSON does not have, `NaN` and `Infinity`, without moving a character.
fn python_numbers(text: &str) -> Cow<'_, str> {
    const WORDS: [(&str, &str); 3] = [("-Infinity", "null     "), ("Infinity", "null    "), ("NaN", "0  ")];
    if !WORDS.iter().any(|(word, _)| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let word = WORDS.iter().find(|(word, _)| !in_string && rest.starts_with(word));
        let taken = match (word, c) {
            (Some((word, instead)), _) => {
                out.push_str(instead);
                word.len()
            }
            (None, '\\') if in_string => {
                let pair: String = rest.chars().take(2).collect();
                out.push_str(&pair);
                pair.len()
            }
            (None, _) => {
                in_string ^= c == '"';
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}
