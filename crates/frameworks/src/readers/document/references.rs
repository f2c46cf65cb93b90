//! References of OmegaConf between the values of one document: `${variables.max_seq_len}`, `${.hidden_size}`.

use super::{Document, Node, NodeValue, TableEntry};

/// Longest chain of references.
const DEEPEST: u32 = 16;
/// Longest text that values are put into.
const LONGEST: usize = 4096;

impl Document {
    /// Puts values in the places of references to them, from the top or, with dots before, from the key's own table. A reference to
    /// no single value stays as it is; a value that is referred to counts as read.
    pub fn resolve(&mut self) {
        self.root = self.replaced(&self.root, "");
    }

    fn replaced(&self, node: &Node, path: &str) -> Node {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let value = match &node.value {
            NodeValue::Map(entries) => {
                let replaced = |TableEntry { key, line, value }: &TableEntry| {
                    TableEntry::new(key.clone(), *line, self.replaced(value, &below(key)))
                };
                NodeValue::Map(entries.iter().map(replaced).collect())
            }
            NodeValue::List(items) => {
                let replaced = |(at, item): (usize, &Node)| self.replaced(item, &below(&at.to_string()));
                NodeValue::List(items.iter().enumerate().map(replaced).collect())
            }
            NodeValue::Scalar { text, quoted } => {
                let section = path.rsplit_once('.').map_or("", |(section, _)| section);
                let filled = self.filled(text, section, 0);
                // A text that is a reference alone becomes what it refers to, which no quotes keep a text.
                let quoted = *quoted && filled.is_none();
                NodeValue::Scalar { text: filled.unwrap_or_else(|| text.clone()), quoted }
            }
        };
        Node { value, line: node.line }
    }

    /// A text with its references filled in; none where it has none, or one that stays.
    fn filled(&self, text: &str, section: &str, depth: u32) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, from)) = rest.split_once("${") {
            let (inner, after) = from.split_once('}')?;
            filled.push_str(before);
            filled.push_str(&self.referred(inner, section, depth)?);
            rest = after;
        }
        filled.push_str(rest);
        (filled != text && filled.len() <= LONGEST).then_some(filled)
    }

    fn referred(&self, inner: &str, section: &str, depth: u32) -> Option<String> {
        if depth > DEEPEST {
            return None;
        }
        if let Some(variable) = inner.strip_prefix("oc.env:") {
            return variable.split_once(',').map(|(_, default)| default.trim().to_owned());
        }
        let name = inner.trim_start_matches('.');
        let dots = inner.len() - name.len();
        let parts: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
        let kept = if dots == 0 { 0 } else { parts.len().checked_sub(dots - 1)? };
        let target = [&parts[..kept], &[name]].concat().join(".");
        let value = self.peek(&target)?;
        self.used.borrow_mut().insert(target.clone());
        let of_target = target.rsplit_once('.').map_or("", |(section, _)| section);
        if value.contains("${") { self.filled(value, of_target, depth + 1) } else { Some(value.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, parse};
    use crate::import::context::Context;

    #[test]
    fn values_stand_in_the_places_of_references() {
        let text = "variables:\n  length: 2048\n  name: ${oc.env:RUN,first}\nlength: ${variables.length}\n\
                    model:\n  width: 8\n  twice: \"${.width}\"\n  top: ${..length}\n  run: a-${variables.name}-${model.width}\n\
                    circle: ${circle}\nmissing: ${nothing}\ntable: ${model}\n";
        let mut document = parse(text, Form::Yaml, &Context::alone("a.yaml")).unwrap();
        document.resolve();
        assert_eq!((document.number("length"), document.number("model.twice")), (Some(2048), Some(8)));
        assert_eq!(
            (document.number("model.top"), document.word("model.run").as_deref()),
            (Some(2048), Some("a-first-8"))
        );
        for (key, kept) in [("circle", "${circle}"), ("missing", "${nothing}"), ("table", "${model}")] {
            assert_eq!(document.word(key).as_deref(), Some(kept));
        }
        assert!(document.unread().is_empty(), "what is referred to is read");
    }
}
