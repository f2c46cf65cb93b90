//! Elements of HTML and SVG: names are fixed, and every text and attribute is escaped when it is written.

use std::fmt::{Display, Write};

use crate::report::markup::xml;

/// Elements that hold nothing and have no end tag.
const VOID: [&str; 2] = ["meta", "br"];
/// Elements of SVG that may end within their tag.
const LEAVES: [&str; 4] = ["rect", "line", "path", "circle"];

#[derive(Clone, Debug)]
enum Content {
    Nested(HtmlElement),
    Text(String),
    /// Text of a style sheet of this crate, which is not escaped.
    Style(&'static str),
}

/// HTML element with its attributes and content.
#[derive(Clone, Debug)]
pub struct HtmlElement {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Vec<Content>,
}

/// HTML element without attributes and content.
pub const fn element(name: &'static str) -> HtmlElement {
    HtmlElement { name, attributes: Vec::new(), content: Vec::new() }
}

/// HTML element that holds a text.
pub fn worded(name: &'static str, text: impl Into<String>) -> HtmlElement {
    element(name).text(text)
}

/// Style sheet of this crate.
pub fn style_sheet(rules: &'static str) -> HtmlElement {
    let mut sheet = element("style");
    sheet.content.push(Content::Style(rules));
    sheet
}

impl HtmlElement {
    /// The element with one more attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// The element with lengths of a drawing as attributes, to a tenth of a pixel.
    #[must_use]
    pub fn at<const N: usize>(mut self, lengths: [(&'static str, f64); N]) -> Self {
        self.attributes.extend(lengths.map(|(name, length)| (name, pixels(length))));
        self
    }

    /// The element with a text after its content.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::Text(text.into()));
        self
    }

    /// The element with another one after its content.
    #[must_use]
    pub fn child(mut self, child: Self) -> Self {
        self.content.push(Content::Nested(child));
        self
    }

    /// The element with others after its content.
    #[must_use]
    pub fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.content.extend(children.into_iter().map(Content::Nested));
        self
    }

    fn write(&self, out: &mut String) {
        let Self { name, attributes, content } = self;
        // Writing to a String cannot fail.
        let _ = write!(out, "<{name}");
        for (key, value) in attributes {
            let _ = write!(out, " {key}=\"{}\"", xml(value));
        }
        if content.is_empty() && LEAVES.contains(name) {
            out.push_str("/>");
            return;
        }
        out.push('>');
        if VOID.contains(name) {
            return;
        }
        for part in content {
            match part {
                Content::Nested(element) => element.write(out),
                Content::Text(text) => out.push_str(&xml(text)),
                Content::Style(rules) => out.push_str(rules),
            }
        }
        let _ = write!(out, "</{name}>");
    }
}

/// Markup of the element.
impl Display for HtmlElement {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// Length in a drawing, to a tenth of a pixel.
pub fn pixels(length: f64) -> String {
    let text = format!("{length:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_escaped() {
        let hostile = "</p><script>\"'&";
        let written = element("p").with("title", hostile).text(hostile).child(element("br")).to_string();
        let safe = "&lt;/p&gt;&lt;script&gt;&quot;&#39;&amp;";
        assert_eq!(written, format!("<p title=\"{safe}\">{safe}<br></p>"));
        let rect = element("rect").at([("x", 1.0), ("width", 2.25)]).to_string();
        assert_eq!(rect, "<rect x=\"1\" width=\"2.2\"/>");
        assert_eq!(element("td").to_string(), "<td></td>");
    }
}
