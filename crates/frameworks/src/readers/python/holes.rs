//! Values that are not known inside tables, until the configuration is whole.
//!
//! An entry of a table may have a value that is not known, and a table may have entries that are not known, as
//! `{**given}` has. Both are marked, so that what looks for an entry gets none instead of a default.

use crate::readers::document::{CALLED, Entries, Node, NodeValue, TableEntry};

/// Value of an entry that is not known, a word that Python has not.
const UNKNOWN: &str = "?";

/// Key of a table with entries that are not known.
pub(super) const OPEN: &str = "**";

/// A value that is not known.
pub(super) fn unknown(line: u32) -> Node {
    Node::bare(UNKNOWN, line)
}

/// Whether a value is known.
pub(super) fn is_known(node: &Node) -> bool {
    !matches!(&node.value, NodeValue::Scalar { text, quoted: false } if text == UNKNOWN)
}

/// Whether a table has entries that are not known.
pub(super) fn is_open(entries: &Entries) -> bool {
    entries.iter().any(|entry| entry.key == OPEN)
}

/// Whether a value is a table of Python's own, and no object.
pub(super) fn is_plain_table(node: &Node) -> bool {
    matches!(&node.value, NodeValue::Map(entries) if entries.iter().all(|entry| entry.key != CALLED))
}

/// Adds entries that are not known to a table: any of those that it has may be replaced.
pub(super) fn add_unknown(entries: &mut Entries, line: u32) {
    entries.retain(|entry| entry.key != OPEN);
    for entry in &mut *entries {
        entry.value = unknown(entry.value.line);
    }
    entries.push(TableEntry::new(OPEN, line, unknown(line)));
}

/// Sets an entry of a table.
pub(super) fn insert(entries: &mut Entries, entry: TableEntry) {
    match entries.iter_mut().find(|known| known.key == entry.key) {
        Some(known) => *known = entry,
        None => entries.push(entry),
    }
}

/// Adds the entries of another table to a table, as `{**entries, **other}` does; whether the other value is known to be
/// a table. The entries of any other value are not known.
pub(super) fn merge(entries: &mut Entries, other: Option<Node>, line: u32) -> bool {
    let Some(NodeValue::Map(more)) = other.filter(is_plain_table).map(|node| node.value) else {
        add_unknown(entries, line);
        return false;
    };
    if is_open(&more) {
        add_unknown(entries, line);
    }
    more.into_iter().filter(|entry| entry.key != OPEN).for_each(|entry| insert(entries, entry));
    true
}

/// Paths of entries of a value that are not known, with their lines; of tables with entries that are not known, their own.
pub(super) fn unknowns(node: &Node) -> Vec<(String, u32)> {
    fn walk(node: &Node, path: &str, found: &mut Vec<(String, u32)>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match &node.value {
            NodeValue::Scalar { .. } => {}
            NodeValue::List(items) => {
                items.iter().enumerate().for_each(|(at, item)| walk(item, &below(&at.to_string()), found));
            }
            NodeValue::Map(entries) => {
                for TableEntry { key, line, value: inner } in entries {
                    match key.as_str() {
                        OPEN => found.push((path.to_owned(), *line)),
                        key if !is_known(inner) => found.push((below(key), *line)),
                        key => walk(inner, &below(key), found),
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(node, "", &mut found);
    found
}

/// Removes the marks from a value; returns the paths of its tables that had entries which are not known, with their lines.
pub(super) fn closed(node: &mut Node) -> Vec<(String, u32)> {
    fn close(node: &mut Node, path: &str, found: &mut Vec<(String, u32)>) {
        match &mut node.value {
            NodeValue::Scalar { .. } => {}
            NodeValue::List(items) => items.iter_mut().for_each(|item| close(item, path, found)),
            NodeValue::Map(entries) => {
                let opened = entries.iter().filter(|entry| entry.key == OPEN);
                found.extend(opened.map(|entry| (path.to_owned(), entry.line)));
                entries.retain(|entry| entry.key != OPEN && is_known(&entry.value));
                for TableEntry { key, value: inner, .. } in entries {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    close(inner, &below, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    close(node, "", &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, &str)]) -> Node {
        let node = |text: &str| Node::bare(text, 1);
        let entries = entries.iter().map(|(key, text)| TableEntry::new(*key, 1, node(text)));
        Node { value: NodeValue::Map(entries.collect()), line: 1 }
    }

    #[test]
    fn what_comes_later_counts_and_may_be_anything() {
        let NodeValue::Map(mut entries) = table(&[("a", "1"), ("b", "2")]).value else { panic!() };
        assert!(merge(&mut entries, Some(table(&[("a", "3")])), 1));
        assert_eq!(NodeValue::Map(entries.clone()), table(&[("a", "3"), ("b", "2")]).value);
        assert!(merge(&mut entries, Some(table(&[(OPEN, UNKNOWN), ("b", "4")])), 1));
        assert!(is_open(&entries) && !is_known(&entries[0].value) && is_known(&entries[1].value));
        // The attributes of an object are no entries.
        assert!(!merge(&mut entries, Some(table(&[(CALLED, "vars"), ("0", "x")])), 2));
        assert!(!is_known(&entries[1].value) && entries.len() == 3);
        let mut whole = Node { value: NodeValue::Map(entries), line: 1 };
        assert_eq!(closed(&mut whole), [(String::new(), 2)]);
        assert_eq!(whole.value, NodeValue::Map(Vec::new()));
    }
}
