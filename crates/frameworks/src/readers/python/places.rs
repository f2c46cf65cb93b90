//! Lines of values that a function of another module gave: the line of the call in the file that is read.

use crate::readers::document::{Node, NodeValue, TableEntry};

/// A value on the line of the call that gave it; what stood in `before`, and is the same, keeps its line.
pub(super) fn relocated(after: Node, before: Option<&Node>, line: u32) -> Node {
    if before.is_some_and(|before| *before == after) {
        return after;
    }
    let value = match after.value {
        NodeValue::Scalar { text, quoted } => NodeValue::Scalar { text, quoted },
        NodeValue::List(items) => NodeValue::List(items.into_iter().map(|item| relocated(item, None, line)).collect()),
        NodeValue::Map(entries) => {
            let known = |name: &str| match before.map(|before| &before.value) {
                Some(NodeValue::Map(entries)) => entries.iter().find(|entry| entry.key == name),
                Some(NodeValue::Scalar { .. } | NodeValue::List(_)) | None => None,
            };
            let moved = entries.into_iter().map(|TableEntry { key, value, .. }| match known(&key) {
                Some(old) if old.value == value => TableEntry { key, line: old.line, value },
                found => TableEntry { key, line, value: relocated(value, found.map(|old| &old.value), line) },
            });
            NodeValue::Map(moved.collect())
        }
    };
    Node { value, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, u32, &str)]) -> Node {
        let entry = |(key, line, text): &(&str, u32, &str)| TableEntry::new(*key, *line, Node::bare(*text, *line));
        Node { value: NodeValue::Map(entries.iter().map(entry).collect()), line: 1 }
    }

    #[test]
    fn what_was_there_keeps_its_line() {
        let before = table(&[("a", 3, "1"), ("b", 4, "2")]);
        let after = table(&[("a", 3, "1"), ("b", 90, "5"), ("c", 91, "6")]);
        assert_eq!(
            relocated(after, Some(&before), 7).value,
            table(&[("a", 3, "1"), ("b", 7, "5"), ("c", 7, "6")]).value
        );
    }
}
