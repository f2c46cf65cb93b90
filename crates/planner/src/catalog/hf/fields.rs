//! Typed reading of a `config.json`: every field by its name and its aliases, and no field unread that matters.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::architectural::{ARCHITECTURAL, is_neutral};
use super::error::HfError;
use meshwright_engine::range;

/// The largest size that is believed.
const MOST_SIZE: u32 = range::WIDTH.most() as u32;

/// Most layers a model may have.
pub const MOST_LAYERS: u32 = range::LAYERS.most() as u32;

/// The object of a configuration, and which of its fields were asked for.
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    origin: &'a str,
    path: &'static str,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// Fields of `map`, which is at `path` (empty, or ending in a dot) of the file `origin`.
    pub fn new(map: &'a Map<String, Value>, origin: &'a str, path: &'static str) -> Self {
        Self { map, origin, path, read: RefCell::default() }
    }

    /// The file that is read.
    pub fn origin(&self) -> &str {
        self.origin
    }

    /// The first of `names` that is there and not null.
    fn get(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        self.read.borrow_mut().extend(names);
        names.iter().find_map(|&name| self.map.get(name).filter(|v| !v.is_null()).map(|v| (name, v)))
    }

    /// Whether a field is there and null, which some classes do not take for absent.
    pub fn is_null(&self, name: &'static str) -> bool {
        self.map.get(name).is_some_and(Value::is_null)
    }

    /// Whether a field is there, and not null.
    pub fn has(&self, name: &'static str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a field is there and true.
    pub fn truth(&self, name: &'static str) -> bool {
        self.map.get(name) == Some(&Value::Bool(true))
    }

    /// Whether a field is there and false.
    pub fn is_false(&self, name: &'static str) -> bool {
        self.map.get(name) == Some(&Value::Bool(false))
    }

    /// Whether a field is there and a text.
    pub fn is_text(&self, name: &'static str) -> bool {
        self.map.get(name).is_some_and(Value::is_string)
    }

    /// The object of a field that must be there; `path` is the field's name and a dot.
    pub fn part(&self, name: &'static str, path: &'static str) -> Result<Self, HfError> {
        match self.map.get(name) {
            Some(Value::Object(map)) => Ok(Self::new(map, self.origin, path)),
            Some(other) => Err(self.wrong_type(name, "an object", other)),
            None => Err(self.missing(&[name])),
        }
    }

    /// The objects of a list that must be there; `path` is the field's name and a dot.
    pub fn parts(&self, name: &'static str, path: &'static str) -> Result<Vec<Fields<'a>>, HfError> {
        let of = |item: &'a Value| match item {
            Value::Object(map) => Ok(Fields::new(map, self.origin, path)),
            other => Err(self.wrong_type(name, "a list of objects", other)),
        };
        match self.map.get(name) {
            Some(Value::Array(items)) => items.iter().map(of).collect(),
            Some(other) => Err(self.wrong_type(name, "a list of objects", other)),
            None => Err(self.missing(&[name])),
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn wrong_type(&self, name: &str, wanted: &'static str, found: &Value) -> HfError {
        HfError::WrongType { origin: self.origin.into(), field: self.full(name), wanted, found: brief(found) }
    }

    fn out_of_range(&self, name: &str, found: &Value, least: u32, most: u32) -> HfError {
        HfError::OutOfRange { origin: self.origin.into(), field: self.full(name), value: brief(found), least, most }
    }

    /// The error of a field that is not there.
    pub fn missing(&self, names: &[&'static str]) -> HfError {
        let (first, aliases) = names.split_first().map_or(("", &[][..]), |(f, a)| (*f, a));
        let aliases = if aliases.is_empty() { String::new() } else { format!(" (or `{}`)", aliases.join("`, `")) };
        HfError::MissingField { origin: self.origin.into(), field: self.full(first), aliases }
    }

    /// The error of a field whose value is understood and not modelled.
    pub fn unsupported(&self, name: &str, why: impl Into<String>) -> HfError {
        let value = self.map.get(name).map_or_else(|| "absent".to_owned(), brief);
        HfError::Unsupported { origin: self.origin.into(), field: self.full(name), value, why: why.into() }
    }

    fn whole(&self, name: &str, value: &Value, least: u32, most: u32) -> Result<u32, HfError> {
        let Value::Number(number) = value else {
            return Err(self.wrong_type(name, "a whole number", value));
        };
        if number.is_f64() {
            return Err(self.wrong_type(name, "a whole number", value));
        }
        number
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(|| self.out_of_range(name, value, least, most))
    }

    /// A size above 0, if it is given.
    pub fn given_size(&self, names: &[&'static str]) -> Result<Option<u32>, HfError> {
        self.get(names).map(|(name, value)| self.whole(name, value, 1, MOST_SIZE)).transpose()
    }

    /// A size above 0 that must be there.
    pub fn size(&self, names: &[&'static str]) -> Result<u32, HfError> {
        self.given_size(names)?.ok_or_else(|| self.missing(names))
    }

    /// A count that may be 0, if it is given.
    pub fn given_count(&self, names: &[&'static str]) -> Result<Option<u32>, HfError> {
        self.get(names).map(|(name, value)| self.whole(name, value, 0, MOST_SIZE)).transpose()
    }

    /// A count; 0 where it is absent.
    pub fn count(&self, names: &[&'static str]) -> Result<u32, HfError> {
        Ok(self.given_count(names)?.unwrap_or(0))
    }

    /// The index of a layer, if it is given and not -1, which means the last.
    pub fn given_index(&self, name: &'static str) -> Result<Option<u32>, HfError> {
        let given = self.get(&[name]).filter(|(_, value)| value.as_i64() != Some(-1));
        given.map(|(name, value)| self.whole(name, value, 0, MOST_LAYERS)).transpose()
    }

    /// A count, given alone or as a list of one value for each layer that must all be equal.
    pub fn uniform(&self, name: &'static str) -> Result<Option<u32>, HfError> {
        let Some((_, Value::Array(items))) = self.get(&[name]) else {
            return self.given_count(&[name]);
        };
        let Some(first) = items.first() else {
            return Ok(None);
        };
        if items.iter().any(|item| item != first) {
            return Err(self.unsupported(name, "layers of several sizes are not modelled in this family"));
        }
        self.whole(name, first, 0, MOST_SIZE).map(Some)
    }

    /// The number of layers, if it is given.
    pub fn given_layers(&self, names: &[&'static str]) -> Result<Option<u32>, HfError> {
        self.get(names).map(|(name, value)| self.whole(name, value, 1, MOST_LAYERS)).transpose()
    }

    /// The number of multi-token-prediction layers; 0 where it is absent.
    pub fn mtp_layers(&self, names: &[&'static str]) -> Result<u32, HfError> {
        let most = range::MTP_LAYERS.most() as u32;
        Ok(self.get(names).map(|(name, value)| self.whole(name, value, 0, most)).transpose()?.unwrap_or(0))
    }

    /// A product of two sizes that must be a size itself.
    pub fn product(&self, name: &'static str, a: u32, b: u32) -> Result<u32, HfError> {
        a.checked_mul(b)
            .filter(|&n| n <= MOST_SIZE)
            .ok_or_else(|| self.unsupported(name, format!("{a}·{b} is over {MOST_SIZE}")))
    }

    /// A switch, if it is given.
    pub fn flag(&self, name: &'static str) -> Result<Option<bool>, HfError> {
        self.get(&[name])
            .map(|(_, value)| value.as_bool().ok_or_else(|| self.wrong_type(name, "true or false", value)))
            .transpose()
    }

    /// A real number, if it is given.
    pub fn real(&self, name: &'static str) -> Result<Option<f64>, HfError> {
        self.get(&[name])
            .map(|(_, value)| value.as_f64().ok_or_else(|| self.wrong_type(name, "a number", value)))
            .transpose()
    }

    /// A text, if it is given.
    pub fn text(&self, name: &'static str) -> Result<Option<&str>, HfError> {
        self.get(&[name])
            .map(|(_, value)| value.as_str().ok_or_else(|| self.wrong_type(name, "a text", value)))
            .transpose()
    }

    /// A text, if it is given as one and not as a number.
    pub fn letters(&self, name: &'static str) -> Result<Option<String>, HfError> {
        match self.get(&[name]) {
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((_, Value::Number(_))) | None => Ok(None),
            Some((_, other)) => Err(self.wrong_type(name, "a text or a whole number", other)),
        }
    }

    fn list(&self, name: &'static str) -> Result<Option<&Vec<Value>>, HfError> {
        self.get(&[name])
            .map(|(_, value)| value.as_array().ok_or_else(|| self.wrong_type(name, "a list", value)))
            .transpose()
    }

    /// A list of texts, if it is given.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<&str>>, HfError> {
        let text = |v: &'a Value| v.as_str().ok_or_else(|| self.wrong_type(name, "a list of texts", v));
        let Some(_) = self.list(name)? else {
            return Ok(None);
        };
        let items = self.map.get(name).and_then(Value::as_array);
        items.map(|items| items.iter().map(text).collect()).transpose()
    }

    /// A list of counts; empty where it is absent.
    pub fn counts(&self, name: &'static str) -> Result<Vec<u32>, HfError> {
        let items = self.list(name)?.map_or(&[][..], Vec::as_slice);
        items.iter().map(|item| self.whole(name, item, 0, MOST_SIZE)).collect()
    }

    /// Counts in a list or in a text with commas between them, if they are given.
    pub fn listed(&self, name: &'static str) -> Result<Option<Vec<u32>>, HfError> {
        if !self.is_text(name) {
            return Ok(if self.has(name) { Some(self.counts(name)?) } else { None });
        }
        let wrong = || self.unsupported(name, "not whole numbers with commas between them");
        let words = self.text(name)?.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(|word| word.parse().map_err(|_| wrong())).collect::<Result<_, _>>().map(Some)
    }

    /// A count for each layer, if they are given.
    pub fn counts_by_layer(&self, name: &'static str, layers: u32) -> Result<Option<Vec<u32>>, HfError> {
        self.by_layer(name, layers, self.counts(name)?)
    }

    /// A real number for each layer, if they are given.
    pub fn reals_by_layer(&self, name: &'static str, layers: u32) -> Result<Option<Vec<f64>>, HfError> {
        let number = |item: &Value| item.as_f64().ok_or_else(|| self.wrong_type(name, "a list of numbers", item));
        let items = self.list(name)?.map_or(&[][..], Vec::as_slice);
        self.by_layer(name, layers, items.iter().map(number).collect::<Result<_, _>>()?)
    }

    /// Entries of a list, which must be as many as layers unless there are none.
    fn by_layer<T>(&self, name: &'static str, layers: u32, items: Vec<T>) -> Result<Option<Vec<T>>, HfError> {
        match items.len() {
            0 => Ok(None),
            len if len == layers as usize => Ok(Some(items)),
            _ => Err(self.unsupported(name, format!("not one entry for each of {layers} layers"))),
        }
    }

    /// Sizes that single layers have of their own, by the number of the layer and the name of the size, which is one of `sizes`.
    pub fn sizes_of_layers(
        &self,
        name: &'static str,
        sizes: &[&'static str],
    ) -> Result<BTreeMap<(u32, &'static str), u32>, HfError> {
        let mut found = BTreeMap::new();
        let Some((_, layers)) = self.get(&[name]) else { return Ok(found) };
        let layers = layers.as_object().ok_or_else(|| self.wrong_type(name, "an object", layers))?;
        for (layer, of_layer) in layers {
            let (Ok(number), Some(of_layer)) = (layer.parse::<u32>(), of_layer.as_object()) else {
                return Err(self.unsupported(name, format!("`{layer}` is not a layer with sizes of its own")));
            };
            for (size, value) in of_layer {
                let Some(size) = sizes.iter().find(|known| *known == size) else {
                    let why = format!("layer {layer} has its own `{size}`, which the family does not know");
                    return Err(self.unsupported(name, why));
                };
                found.insert((number, *size), self.whole(size, value, 1, MOST_SIZE)?);
            }
        }
        Ok(found)
    }

    /// A text per layer, if it is given: as many as there are layers.
    pub fn per_layer(&self, name: &'static str, layers: u32) -> Result<Option<Vec<&str>>, HfError> {
        let Some(items) = self.texts(name)?.filter(|items| !items.is_empty()) else {
            return Ok(None);
        };
        if items.len() == layers as usize {
            return Ok(Some(items));
        }
        Err(self.unsupported(name, format!("{} entries for {layers} layers", items.len())))
    }

    /// Counts switches as read that say what the class always does.
    pub fn agree(&self, names: &[&'static str]) {
        let agreed = names.iter().filter(|name| self.truth(name));
        self.read.borrow_mut().extend(agreed);
    }

    /// Refuses fields of the file that no reader has read.
    pub fn nothing_left(&self) -> Result<(), HfError> {
        let read = self.read.borrow();
        let left = ARCHITECTURAL
            .iter()
            .find(|&&name| !read.contains(name) && self.map.get(name).is_some_and(|value| !is_neutral(value)));
        match left {
            None => Ok(()),
            Some(name) => Err(self.unsupported(name, "it changes the model, and is not modelled for this family")),
        }
    }
}

/// A value in a message: short, whatever it is.
pub fn brief(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("a text of {} characters", text.chars().count())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
