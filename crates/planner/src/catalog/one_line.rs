//! Texts of one line: what names and settings must be, for they end up in comments of launch files.

/// Whether a text holds no line break and no other control character.
pub fn is_one_line(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}
