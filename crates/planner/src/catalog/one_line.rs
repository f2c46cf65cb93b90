//! Single-line texts: names and settings must be such, for they end up in comments of launch files.

use std::borrow::Cow;

/// Whether a text is one line of printable characters: no control character, no line separator of Unicode, nothing that is
/// invisible or turns the direction of writing.
pub fn is_one_line(text: &str) -> bool {
    text.chars().all(is_printable)
}

/// Whether a character is visible, or a plain space.
fn is_printable(c: char) -> bool {
    // `escape_debug` escapes what the standard library does not hold printable; after a letter, marks are not escaped
    let is_unescaped = |c: char| {
        let mut pair = ['a', c].iter().collect::<String>().escape_debug().skip(1).collect::<String>();
        pair.pop() == Some(c) && pair.is_empty()
    };
    if c.is_ascii() { matches!(c, ' '..='~') } else { is_unescaped(c) }
}

/// The text with everything escaped that is not printable: one line, whatever it was.
pub fn visible(text: &str) -> Cow<'_, str> {
    if is_one_line(text) {
        return text.into();
    }
    let shown = |c: char| if is_printable(c) { c.to_string() } else { c.escape_default().to_string() };
    text.chars().map(shown).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printable_is_one_line() {
        for text in ["", "Llama 3 8B", "it's \"x\" \\ $(y) `z`", "Ünï 模型 é e\u{301} 🦙"] {
            assert!(is_one_line(text), "{text:?}");
        }
        for c in [
            '\n', '\r', '\0', '\t', '\u{1b}', '\u{7f}', '\u{85}', '\u{200b}', '\u{2028}', '\u{2029}', '\u{202e}',
            '\u{feff}',
        ] {
            let text = format!("a{c}b\\");
            assert!(!is_one_line(&text) && is_one_line(&visible(&text)) && visible(&text).ends_with("b\\"), "{c:?}");
        }
    }
}
