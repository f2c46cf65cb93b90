//! Models from a Hugging Face `config.json`: known families exactly, unknown ones not at all.
//!
//! A reader knows what the class of its family builds: which biases, norms and ties it has where the file
//! does not say. A field that would change the parameters and that the family does not know is refused.
//!
//! Of a multimodal configuration, the part for text alone is read: encoders of images are not planned.
//!
//! Source: [transformers] `configuration_*.py` and `modeling_*.py` of each family.

mod architectural;
mod blocks;
mod classic;
mod convolution;
mod defaults;
mod dense;
mod details;
mod error;
mod experts;
mod families;
mod fields;
mod frame;
mod gated;
mod gemma;
mod hybrid;
mod kimi;
mod latent;
mod llama;
mod mixtures;
mod sliding;

use std::borrow::Cow;
use std::path::Path;

use serde_json::{Map, Value};

use super::json::parse_json;
use super::one_line::is_one_line;

pub use error::HfError;
use families::{FAMILIES, UNPRICED};
use fields::Fields;
use meshwright_engine::model::{Layer, Mixer, Model, QkNorm};

/// Parts of a multimodal configuration that hold the language model, with their paths.
const TEXT_PARTS: &[(&str, &str)] =
    &[("text_config", "text_config."), ("llm_config", "llm_config."), ("language_config", "language_config.")];

/// Fields of a multimodal configuration that hold the encoders.
const ENCODERS: [&str; 5] = ["vision_config", "vit_config", "audio_config", "vision_tower_config", "encoder_config"];

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
    if let Some(Value::Object(thinker)) = whole.remove("thinker_config") {
        whole = thinker; // Qwen's Omni models: the part that reads and writes text
    }
    let has_encoders = ENCODERS.iter().any(|encoder| whole.get(*encoder).is_some_and(|config| !config.is_null()));
    check_classes(&Fields::new(&whole, origin, ""))?;
    let mut model = from_object(whole, origin)?;
    if has_encoders {
        model.details.left_out.push("the encoders of its configuration");
    }
    Ok(model)
}

/// Reads the object of a configuration, or the part for text of a multimodal one.
fn from_object(whole: Map<String, Value>, origin: &str) -> Result<Model, HfError> {
    if let Some((name, path)) = TEXT_PARTS.iter().find(|(name, _)| whole.get(*name).is_some_and(|part| !part.is_null()))
    {
        return from_text_part(whole, name, path, origin);
    }
    let fields = Fields::new(&whole, origin, "");
    let Some(model_type) = model_type(&fields)?.map(str::to_owned) else {
        return Err(not_a_language_model(&fields));
    };
    read(whole, &model_type, origin, "")
}

/// Reads the part of a multimodal configuration that holds the language model: the field `name`, whose fields have the
/// prefix `path` in messages.
fn from_text_part(
    mut whole: Map<String, Value>,
    name: &'static str,
    path: &'static str,
    origin: &str,
) -> Result<Model, HfError> {
    let outer = model_type(&Fields::new(&whole, origin, ""))?.map(str::to_owned);
    let mut part = match whole.remove(name) {
        Some(Value::Object(part)) => part,
        other => return Err(not_an_object(origin, name, &other.unwrap_or_default())),
    };
    if let Some(ties) = whole.remove("tie_word_embeddings") {
        part.insert("tie_word_embeddings".to_owned(), ties); // the classes of whole models tie by their own switch
    }
    Fields::new(&whole, origin, "").nothing_left()?;
    let inner = model_type(&Fields::new(&part, origin, path))?.map(str::to_owned);
    let inner = inner
        .or_else(|| outer.map(|outer| format!("{outer}_text")))
        .ok_or_else(|| Fields::new(&part, origin, path).missing(&["model_type"]))?;
    defaults::add_sizes(&mut part, &inner);
    read(part, &inner, origin, path)
}

fn model_type<'a>(fields: &'a Fields) -> Result<Option<&'a str>, HfError> {
    fields.text("model_type")
}

/// The error of a file without a model type: an adapter or a part of an image model where its fields say so.
fn not_a_language_model(fields: &Fields) -> HfError {
    if fields.has("peft_type") {
        let why = "an adapter\n\nhint: plan the model that `base_model_name_or_path` names, with --lora";
        return fields.unsupported("peft_type", why);
    }
    if fields.has("_class_name") {
        return fields.unsupported("_class_name", "a part of a diffusion model, not a language model");
    }
    fields.missing(&["model_type"])
}

fn not_an_object(origin: &str, what: &'static str, found: &Value) -> HfError {
    HfError::NotAnObject { origin: origin.into(), what, found: fields::brief(found) }
}

/// Reads the fields of one object.
fn read(mut map: Map<String, Value>, model_type: &str, origin: &str, path: &'static str) -> Result<Model, HfError> {
    if let Some((_, part)) = UNPRICED.iter().find(|(name, _)| *name == model_type) {
        return Err(HfError::Unpriced { origin: origin.into(), model_type: model_type.into(), part });
    }
    let Some((_, reader)) = FAMILIES.iter().find(|(name, _)| *name == model_type) else {
        let known = model_types().collect::<Vec<_>>().join(", ");
        return Err(HfError::UnknownModelType { origin: origin.into(), model_type: model_type.into(), known });
    };
    defaults::add_parts(&mut map, model_type);
    let fields = Fields::new(&map, origin, path);
    check_classes(&fields)?;
    let mut model = reader(&fields)?;
    if model.kinds.iter().all(norms_queries) {
        fields.agree(&["use_qk_norm", "qk_norm", "qk_layernorm"]);
    }
    model.name = name(origin, model_type)?;
    model.details = details::details(&fields, model_type, &model)?;
    details::add_router_score(&fields, model_type, &mut model)?;
    if model_type == "nemotron_h" && fields.mtp_layers(&["num_nextn_predict_layers"])? > 0 {
        model.details.left_out.push("its multi-token prediction"); // a pattern of layers that no depth here describes
    }
    fields.nothing_left()?;
    model.check().map_err(|why| HfError::Impossible { origin: origin.into(), why })?;
    Ok(model)
}

/// Refuses classes that are no language models, and attention to tokens that follow.
///
/// A part of a class's name in `architectures` says what its head is.
fn check_classes(fields: &Fields) -> Result<(), HfError> {
    const OTHER_HEADS: [&str; 7] = [
        "ForSequenceClassification",
        "ForTokenClassification",
        "ForQuestionAnswering",
        "ForMultipleChoice",
        "ForTextEmbedding",
        "RewardModel",
        "Bidirectional",
    ];
    let classes = fields.texts("architectures")?.unwrap_or_default();
    if classes.iter().any(|class| OTHER_HEADS.iter().any(|head| class.contains(head))) {
        let why =
            "language models alone are planned, and this class has another head, or attends to tokens that follow";
        return Err(fields.unsupported("architectures", why));
    }
    let attends_to_all = fields.truth("use_bidirectional_attention")
        || fields.is_text("use_bidirectional_attention") && fields.text("use_bidirectional_attention")? == Some("all");
    let all = [("use_bidirectional_attention", attends_to_all), ("is_causal", fields.is_false("is_causal"))];
    if let Some((name, _)) = all.into_iter().find(|(_, is_so)| *is_so) {
        return Err(fields.unsupported(name, "attention to tokens that follow is not modelled"));
    }
    Ok(())
}

/// Whether the layer has attention whose queries and keys are normed.
fn norms_queries(layer: &Layer) -> bool {
    matches!(&layer.mixer, Mixer::Attention(attention) if attention.qk_norm != QkNorm::None)
}

/// Name of the model: that of the file, or of its folder where the file is `config.json`.
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

/// JSON text in which `NaN` and `Infinity`, which Python writes and JSON does not have, are replaced by texts of the same length.
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
