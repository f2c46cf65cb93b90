//! Values that calls of OLMo-core's classes give, as trees.

use crate::readers::document::{CALLED, Entries, Node, NodeValue, TableEntry, value_of};

/// A truth value.
pub(super) fn truth(value: bool, line: u32) -> Node {
    Node::bare(if value { "True" } else { "False" }, line)
}

/// A list.
pub(super) fn list(items: Vec<Node>, line: u32) -> Node {
    Node { value: NodeValue::List(items), line }
}

/// A table.
pub(super) fn table<K: Into<String>>(entries: impl IntoIterator<Item = (K, Node)>, line: u32) -> Node {
    let entries = entries.into_iter().map(|(key, node)| TableEntry::new(key, node.line, node));
    Node { value: NodeValue::Map(entries.collect()), line }
}

/// An object of a class.
pub(super) fn object<K: Into<String>>(class: &str, fields: impl IntoIterator<Item = (K, Node)>, line: u32) -> Node {
    let fields = fields.into_iter().map(|(key, node)| (key.into(), node));
    table(std::iter::once((CALLED.to_owned(), Node::bare(class, line))).chain(fields), line)
}

/// Object that a call of a class constructs: its fields are the arguments, as they are.
pub(super) fn object_of_call(class: &str, arguments: &Entries, line: u32) -> Node {
    object(class, arguments.iter().map(|TableEntry { key, value, .. }| (key.clone(), value.clone())), line)
}

/// A field of an object.
pub(super) fn field<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let NodeValue::Map(entries) = &node.value else { return None };
    value_of(entries, key)
}

/// Sets a field of an object.
pub(super) fn set(node: &mut Node, key: &str, value: Node) {
    let NodeValue::Map(entries) = &mut node.value else { return };
    entries.retain(|entry| entry.key != key);
    entries.push(TableEntry::new(key, value.line, value));
}

/// The class of an object.
pub(super) fn class(node: &Node) -> Option<&str> {
    match &field(node, CALLED)?.value {
        NodeValue::Scalar { text: name, quoted: false } => Some(name),
        NodeValue::Scalar { .. } | NodeValue::Map(_) | NodeValue::List(_) => None,
    }
}

/// Whether a value is None.
pub(super) fn is_none(node: &Node) -> bool {
    matches!(&node.value, NodeValue::Scalar { text, quoted: false } if text == "None")
}

/// The number of a value.
pub(super) fn number(node: &Node) -> Option<f64> {
    match &node.value {
        NodeValue::Scalar { text, quoted: false } => text.parse().ok(),
        NodeValue::Scalar { .. } | NodeValue::Map(_) | NodeValue::List(_) => None,
    }
}

/// Whether Python takes a value of one word as true; none where that is not known.
pub(super) fn holds(node: &Node) -> Option<bool> {
    match &node.value {
        NodeValue::Scalar { text, quoted: false } => match text.as_str() {
            "True" => Some(true),
            "False" | "None" => Some(false),
            _ => number(node).map(|number| number != 0.0),
        },
        NodeValue::Scalar { text, quoted: true } => Some(!text.is_empty()),
        NodeValue::List(items) => Some(!items.is_empty()),
        NodeValue::Map(_) => Some(true),
    }
}
