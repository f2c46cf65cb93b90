//! Code of a language, made of fixed templates and literals only: no value gets into a file unquoted.

use std::marker::PhantomData;

use super::language::{Language, Python};

/// Code of the language `L`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snippet<L> {
    code: String,
    language: PhantomData<L>,
}

impl<L: Language> Snippet<L> {
    const fn new(code: String) -> Self {
        Self { code, language: PhantomData }
    }

    /// Code of this program's own source.
    pub fn fixed(code: &'static str) -> Self {
        Self::new(code.to_owned())
    }

    /// A template with code in the place of each `{}`; [`snippet!`](crate::emit::snippet!) takes literals only.
    pub fn filled(template: &'static str, values: &[Self]) -> Self {
        let mut parts = template.split("{}");
        let mut code = parts.next().unwrap_or_default().to_owned();
        let mut values = values.iter();
        for part in parts {
            code.push_str(&values.next().expect("a value for each place of the template").code);
            code.push_str(part);
        }
        assert!(values.next().is_none(), "a place for each value of the template");
        Self::new(code)
    }

    /// Code with a separator between.
    pub fn joined(parts: impl IntoIterator<Item = Self>, between: &'static str) -> Self {
        let parts: Vec<String> = parts.into_iter().map(|part| part.code).collect();
        Self::new(parts.join(between))
    }

    /// The code as text.
    pub fn into_text(self) -> String {
        self.code
    }
}

impl Snippet<Python> {
    /// An identifier; characters that identifiers cannot have become `_`.
    pub fn name(name: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        Self::new(name.chars().map(plain).collect())
    }

    /// Numbers, and lists of them with `*` and `+`, as they are; all else as a string.
    pub fn value(word: &str) -> Self {
        let number = word.parse::<f64>().is_ok() && word.ends_with(|c: char| c.is_ascii_digit());
        let list = word.starts_with(['[', '(']) && word.chars().all(|c| c.is_ascii_digit() || "[](),*+ ".contains(c));
        if number || list { Self::new(word.to_owned()) } else { word.into() }
    }
}

impl<L: Language> From<&str> for Snippet<L> {
    fn from(text: &str) -> Self {
        Self::new(L::text(text))
    }
}

impl<L: Language> From<bool> for Snippet<L> {
    fn from(value: bool) -> Self {
        Self::fixed(L::truth(value))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl<L: Language> From<$number> for Snippet<L> {
            fn from(number: $number) -> Self {
                Self::new(number.to_string())
            }
        })*
    };
}

numbers!(u8, u32, u64, usize);

/// A decimal with a point and without an exponent, which all three languages read as a real number.
impl<L: Language> From<f64> for Snippet<L> {
    fn from(number: f64) -> Self {
        let text = number.to_string();
        Self::new(if text.contains('.') { text } else { format!("{text}.0") })
    }
}

/// Code of a language from a literal template and values, which become literals of that language.
macro_rules! snippet {
    ($template:literal $(, $value:expr)* $(,)?) => {
        $crate::emit::snippet::Snippet::filled($template, &[$($value.into()),*])
    };
}

pub(crate) use snippet;

#[cfg(test)]
mod tests {
    use super::super::language::{Shell, Yaml};
    use super::*;

    #[test]
    fn values_become_literals() {
        let shell: Snippet<Shell> = snippet!("a --b {} ${C:-{}}", "x y", 3_u32);
        assert_eq!(shell.into_text(), "a --b 'x y' ${C:-3}");
        let python: Snippet<Python> = snippet!("{}.x = [{}, {}]", Snippet::name("a-b"), true, "\"\n");
        assert_eq!(python.into_text(), r#"a_b.x = [True, "\"\n"]"#);
        let yaml: Snippet<Yaml> = snippet!("a: {}", false);
        assert_eq!(yaml.into_text(), "a: false");
    }

    #[test]
    fn words_of_flags_are_numbers_lists_or_strings() {
        for (word, code) in [
            ("1.0", "1.0"),
            ("3e-4", "3e-4"),
            ("([0]*3+[1]*2)", "([0]*3+[1]*2)"),
            ("nan", "\"nan\""),
            ("(exit())", "\"(exit())\""),
            ("bf16", "\"bf16\""),
        ] {
            assert_eq!(Snippet::<Python>::value(word).into_text(), code);
        }
    }
}
