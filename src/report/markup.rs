//! Values inside of HTML, SVG and Markdown: each becomes text of its language, whatever it holds.

use meshwright_planner::catalog::visible;

/// Text of an element or of a quoted attribute of HTML and SVG.
pub fn xml(text: &str) -> String {
    let text = visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
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
        let cell = markdown(HOSTILE);
        assert!(!cell.contains(['<', '\n', '\u{1b}']) && !cell.contains("](") && cell.contains("\\|\\\\"), "{cell}");
    }
}
