//! Typed values of TOML tables. One deserializer serves texts and tables that were changed after they were read, so that the code
//! which serde derives for each type is there once; the TOML library has one for each of the two, of several times the size.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use toml::{Table, Value};

/// Value of a TOML text.
///
/// # Errors
///
/// Names line, column and key.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
    typed(&toml::from_str(text)?).map_err(|misfit| misfit.in_text(text))
}

/// Value of a table.
///
/// # Errors
///
/// The first entry that does not fit the type.
pub fn typed<'de, T: Deserialize<'de>>(table: &'de Table) -> Result<T, Misfit> {
    T::deserialize(Entry::Table(table))
}

/// Entry of a table that does not fit its type.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Misfit {
    /// Description of the mismatch.
    pub message: String,
    /// Place of the value, innermost step first.
    place: Vec<Step>,
    /// Whether the key is wrong, not its value.
    is_key: bool,
}

/// Step from a value to one inside it.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Item(usize),
}

impl Misfit {
    fn inside(mut self, step: Step) -> Self {
        self.place.push(step);
        self
    }

    /// The TOML library's error for the place in the text that the table was read from.
    pub fn in_text(mut self, text: &str) -> toml::de::Error {
        self.place.reverse();
        let fail = Fail { misfit: &self, place: &self.place };
        let failed = toml::Deserializer::parse(text).and_then(|document| fail.deserialize(document));
        let mut error = failed.err().unwrap_or_else(|| toml::de::Error::custom(&self.message));
        error.set_input(Some(text));
        error
    }
}

impl serde::de::Error for Misfit {
    fn custom<M: std::fmt::Display>(message: M) -> Self {
        Self { message: message.to_string(), place: Vec::new(), is_key: false }
    }
}

/// Value that is being read.
#[derive(Clone, Copy)]
enum Entry<'de> {
    Table(&'de Table),
    Value(&'de Value),
}

impl<'de> Entry<'de> {
    const fn of(value: &'de Value) -> Self {
        if let Value::Table(table) = value { Self::Table(table) } else { Self::Value(value) }
    }
}

impl<'de> Deserializer<'de> for Entry<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self {
            Self::Table(table) => visitor.visit_map(Entries { rest: table.iter(), value: None }),
            Self::Value(Value::String(text)) => visitor.visit_borrowed_str(text),
            Self::Value(Value::Integer(number)) => visitor.visit_i64(*number),
            Self::Value(Value::Float(number)) => visitor.visit_f64(*number),
            Self::Value(Value::Boolean(flag)) => visitor.visit_bool(*flag),
            Self::Value(Value::Array(items)) => visitor.visit_seq(Items(items.iter().enumerate())),
            // The library's dates are maps to serde, and no entry is one.
            Self::Value(Value::Datetime(_) | Value::Table(_)) => Err(Misfit::invalid_type(Unexpected::Map, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self {
            Self::Value(Value::String(text)) => visitor.visit_enum(text.as_str().into_deserializer()),
            Self::Table(table) => match table.iter().next().filter(|_| table.len() == 1) {
                Some((name, value)) => visitor.visit_enum(Variant { name, value }),
                None if table.is_empty() => Err(Misfit::custom("wanted exactly 1 element, found 0 elements")),
                None => Err(Misfit::custom("wanted exactly 1 element, more than 1 element")),
            },
            Self::Value(_) => Err(Misfit::custom("wanted string or table")),
        }
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit ignored_any
        unit_struct tuple_struct tuple identifier struct
    }
}

/// Entries of a table that is being read.
struct Entries<'de> {
    rest: toml::map::Iter<'de, String, Value>,
    /// Entry whose key was read, and whose value is next.
    value: Option<(&'de String, &'de Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Misfit;

    #[inline(never)] // once for each type, not for each field: a fifth of what a browser loads would be copies
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.value = self.rest.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let read = seed.deserialize(key.as_str().into_deserializer()).map(Some);
        read.map_err(|misfit: Misfit| Misfit { is_key: true, ..misfit }.inside(Step::Key(key.clone())))
    }

    #[inline(never)]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let (key, value) = self.value.take().expect("serde asks for a value after its key");
        seed.deserialize(Entry::of(value)).map_err(|misfit| misfit.inside(Step::Key(key.clone())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Items of an array that is being read, with their indices.
struct Items<'de>(std::iter::Enumerate<std::slice::Iter<'de, Value>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Misfit;

    #[inline(never)]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some((at, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Entry::of(value)).map(Some).map_err(|misfit| misfit.inside(Step::Item(at)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Variant of an enum with its content.
struct Variant<'de> {
    name: &'de str,
    value: &'de Value,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Misfit> {
        let name: StrDeserializer<Misfit> = self.name.into_deserializer();
        let variant = seed.deserialize(name);
        Ok((variant.map_err(|misfit| Misfit { is_key: true, ..misfit }.inside(Step::Key(self.name.to_owned())))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        let is_empty = match self.value {
            Value::Table(table) => table.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
        let why = Misfit::custom(format!("expected nothing in `{}`", self.name));
        Err(why.inside(Step::Key(self.name.to_owned())))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misfit> {
        seed.deserialize(Entry::of(self.value)).map_err(|misfit| misfit.inside(Step::Key(self.name.to_owned())))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        let read = Entry::of(self.value).deserialize_any(visitor);
        read.map_err(|misfit| misfit.inside(Step::Key(self.name.to_owned())))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Misfit> {
        self.tuple_variant(0, visitor)
    }
}

/// Reading of a text that fails at the place of a misfit: the TOML library then says line, column and key.
#[derive(Clone, Copy)]
struct Fail<'m> {
    misfit: &'m Misfit,
    /// Steps that are left.
    place: &'m [Step],
}

impl Fail<'_> {
    fn here<T, E: serde::de::Error>(self) -> Result<T, E> {
        Err(E::custom(&self.misfit.message))
    }
}

impl<'de> DeserializeSeed<'de> for Fail<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fail<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("another value")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.here()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.here()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.here()
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.here()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let [Step::Item(at), place @ ..] = self.place else { return self.here() };
        for _ in 0..*at {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Self { place, ..self }).map(|_| ())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let [Step::Key(name), place @ ..] = self.place else { return self.here() };
        let wrong = (self.misfit.is_key && place.is_empty()).then_some(self.misfit.message.as_str());
        while let Some(is_it) = entries.next_key_seed(Name { name, wrong })? {
            if is_it {
                return entries.next_value_seed(Self { place, ..self });
            }
            entries.next_value::<IgnoredAny>()?;
        }
        self.here()
    }
}

/// Key that is compared with a name, and fails if it is that one and wrong.
struct Name<'m> {
    name: &'m str,
    wrong: Option<&'m str>,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        let is_it = String::deserialize(from)? == self.name;
        match self.wrong.filter(|_| is_it) {
            Some(why) => Err(D::Error::custom(why)),
            None => Ok(is_it),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        name: String,
        #[serde(default)]
        size: Option<f64>,
        #[serde(default)]
        kinds: Vec<Kind>,
        #[serde(default)]
        parts: BTreeMap<String, Part>,
        #[serde(default)]
        list: Vec<Part>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Plain,
        Sized(u32),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        count: u32,
    }

    #[test]
    fn values_and_errors_are_those_of_the_library() {
        let texts = [
            "name = 'a'\nsize = 2\nkinds = ['plain', { sized = 3 }]\nparts.b.count = 1\n[[list]]\ncount = 2",
            "",
            "size = 1",
            "name = 1",
            "name = 'a'\nnmae = 'b'",
            "name = 'a'\nsize = 'large'",
            "name = 'a'\nsize = [1]",
            "name = 2026-11-24",
            "name = 'a'\nkinds = ['plain', 'round']",
            "name = 'a'\nkinds = ['sized']",
            "name = 'a'\nkinds = [{ sized = -1 }]",
            "name = 'a'\nkinds = [{}]",
            "name = 'a'\nkinds = [{ sized = 1, plain = {} }]",
            "name = 'a'\nkinds = [{ round = 1 }]",
            "name = 'a'\nkinds = [7]",
            "name = 'a'\nparts.b = {}",
            "name = 'a'\n[parts.b]\ncount = 1\nextra = 2",
            "name = 'a'\n[[list]]\ncount = 1\n[[list]]\ncount = 'two'\n[[list]]\ncount = 3",
            "name = 'a'\n[[list]]\ncount = 4294967296",
            "name = 'a'\nlist = 3",
            "name = ",
            "name = 'a'\nname = 'b'",
        ];
        for text in texts {
            let (ours, theirs) = (parse_toml::<Whole>(text), toml::from_str::<Whole>(text));
            assert_eq!(ours.as_ref().ok(), theirs.as_ref().ok(), "{text}");
            assert_eq!(ours.map_err(|why| why.to_string()), theirs.map_err(|why| why.to_string()), "{text}");
        }
    }
}
