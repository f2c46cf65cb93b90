//! Values inside of HTML, SVG and Markdown: each becomes text of its language, whatever it holds.

use serde::Serialize;

use meshwright_planner::catalog::visible;

/// Text of an element or of a quoted attribute of HTML and SVG.
pub fn xml(text: &str) -> String {
    let text = visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Value as JSON inside of a `<script>` element: no text in it begins a tag or a comment of HTML, or ends a line of JavaScript.
///
/// # Errors
///
/// The value has no JSON form.
pub fn script(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    // outside of strings JSON has none of these characters
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    Ok(escapes.into_iter().fold(json, |json, (c, escape)| json.replace(c, escape)))
}

/// Text of a table's cell or of a heading in Markdown: of one line, without HTML, links and images.
pub fn markdown(text: &str) -> String {
    let text = visible(&text.replace('\n', " ")).replace('\\', "\\\\").replace('|', "\\|");
    text.replace('<', "&lt;").replace("](", "]\\(").replace("][", "]\\[")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><!--<script>\"'&|\\\n[a](b)\u{2028}\u{1b}[31m";

    #[test]
    fn no_value_is_code() {
        let html = xml(HOSTILE);
        assert!(!html.contains(['<', '>', '"', '\'', '\n', '\u{1b}']), "{html}");
        assert_eq!(xml("a < b & c"), "a &lt; b &amp; c");
        let json = script(&[HOSTILE]).unwrap();
        assert!(!json.contains(['<', '>', '&', '\n', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [HOSTILE]);
        let cell = markdown(HOSTILE);
        assert!(!cell.contains(['<', '\n', '\u{1b}']) && !cell.contains("](") && cell.contains("\\|\\\\"), "{cell}");
    }
}
