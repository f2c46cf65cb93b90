//! Languages of launch files: how each writes a text and a truth value.

use std::fmt::{Debug, Write};

/// Language of a file whose comments begin with `#`.
pub(crate) trait Language: Clone + Debug {
    /// First line of a file.
    const FIRST: Option<&'static str>;

    /// Literal of any text.
    fn text(text: &str) -> String;

    /// Literal of a truth value.
    fn truth(value: bool) -> &'static str;
}

/// Bash, quoted with single quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shell;

/// Python, with string literals of double quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Python;

/// YAML, version 1.1 as PyYAML reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Yaml;

impl Language for Shell {
    const FIRST: Option<&'static str> = Some("#!/usr/bin/env bash");

    /// A word as the shell reads it back. A NUL, which no word can hold, is left out.
    fn text(word: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\0', "").replace('\'', "'\\''"))
        }
    }

    fn truth(value: bool) -> &'static str {
        if value { "true" } else { "false" }
    }
}

impl Language for Python {
    /// Without it, a comment of the second line could name another encoding (PEP 263).
    const FIRST: Option<&'static str> = Some("# coding: utf-8");

    fn text(text: &str) -> String {
        escaped(text)
    }

    fn truth(value: bool) -> &'static str {
        if value { "True" } else { "False" }
    }
}

impl Language for Yaml {
    const FIRST: Option<&'static str> = None;

    /// A plain scalar where it can be nothing else than a text, else in double quotes.
    fn text(text: &str) -> String {
        let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        let reserved = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
        if plain && !reserved.contains(&text.to_ascii_lowercase().as_str()) { text.to_owned() } else { escaped(text) }
    }

    fn truth(value: bool) -> &'static str {
        if value { "true" } else { "false" }
    }
}

/// Text in double quotes with the escapes that Python and YAML share; characters beyond ASCII are escaped.
fn escaped(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => write!(out, "\\n"),
            ' '..='~' => write!(out, "{c}"),
            _ if u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c)),
            _ if u32::from(c) < 0x1_0000 => write!(out, "\\u{:04x}", u32::from(c)),
            _ => write!(out, "\\U{:08x}", u32::from(c)),
        };
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shell_are_quoted_where_they_must_be() {
        for (word, quoted) in
            [("Et*3|tL", "'Et*3|tL'"), ("it's", r"'it'\''s'"), ("a2a+p2p", "a2a+p2p"), ("", "''"), ("a\nb", "'a\nb'")]
        {
            assert_eq!(Shell::text(word), quoted);
        }
    }

    #[test]
    fn texts_have_their_escapes() {
        assert_eq!(Python::text("a\"\\\n\u{85}\u{2028}🦙"), r#""a\"\\\n\x85\u2028\U0001f999""#);
        for (text, literal) in
            [("bf16", "bf16"), ("No", "\"No\""), ("1e3", "\"1e3\""), ("a: b", "\"a: b\""), ("", "\"\"")]
        {
            assert_eq!(Yaml::text(text), literal);
        }
    }
}
