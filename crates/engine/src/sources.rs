//! Sources of values, and the basis of predictions.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Source of a value that a user's file states without one.
pub const OWN_SOURCE: &str = "this file";

/// Source of a value that the user set.
pub const SET_SOURCE: &str = "set-on-the-command-line";

/// The source of a file that names none.
pub(crate) fn own_source() -> String {
    OWN_SOURCE.to_owned()
}

/// Value with the key of its source in `docs/sources.toml`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// Value itself.
    pub value: T,
    /// Key of the source in `docs/sources.toml`.
    pub source: String,
}

/// A value as a table of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table<T> {
    value: T,
    #[serde(default = "own_source")]
    source: String,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Sourced<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SourcedVisitor(PhantomData))
    }
}

/// Reader of a plain value or a table.
struct SourcedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> SourcedVisitor<T> {
    fn plain<E: Error>(from: impl IntoDeserializer<'de, E>) -> Result<Sourced<T>, E> {
        Ok(Sourced { value: T::deserialize(from.into_deserializer())?, source: own_source() })
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for SourcedVisitor<T> {
    type Value = Sourced<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value, or { value = …, source = \"…\" }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::plain(text)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Self::plain(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Self::plain(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Self::plain(value)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let Table { value, source } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Sourced { value, source })
    }
}

/// Basis of a predicted time, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measured on this device.
    Measured,
    /// Predicted from curves fitted to public measurements of this device.
    Calibrated,
    /// Predicted from a datasheet and the curves of a related device.
    Datasheet,
}

impl Basis {
    /// Basis of a sum: that of its weakest term.
    #[must_use]
    pub fn combine(self, other: Self) -> Self {
        self.max(other)
    }
}

impl std::fmt::Display for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Calibrated => "calibrated",
            Self::Datasheet => "datasheet",
        })
    }
}
