//! Truth of Python's values, and their comparison.

use super::holes::{OPEN, is_known, is_open, is_plain_table};
use crate::readers::document::{CALLED, Node, NodeValue, value_of};

/// Whether a name is a class's, which is written with a capital.
pub(super) fn is_class_name(called: &str) -> bool {
    let name = called.rsplit('.').next().unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// A truth value.
pub(super) fn boolean(value: bool, line: u32) -> Node {
    Node::bare(if value { "True" } else { "False" }, line)
}

/// Whether Python takes a value as true; nothing where that is not known, as of a name that has no value here.
pub(super) fn truth(node: &Node) -> Option<bool> {
    match &node.value {
        NodeValue::Scalar { text, quoted: true } => Some(!text.is_empty()),
        NodeValue::Scalar { text, quoted: false } => match text.as_str() {
            "True" => Some(true),
            "False" | "None" => Some(false),
            number => number.parse::<f64>().ok().map(|number| number != 0.0),
        },
        NodeValue::List(items) => Some(!items.is_empty()),
        NodeValue::Map(entries) if is_plain_table(node) => match (entries.len(), is_open(entries)) {
            (1, true) => None,
            (count, _) => Some(count > 0),
        },
        NodeValue::Map(_) => is_something(node),
    }
}

/// A value as a text that is equal for equal values; nothing for values that are not known whole.
pub(super) fn settled(node: &Node) -> Option<String> {
    match &node.value {
        NodeValue::Scalar { text, quoted: true } => Some(format!("'{text}'")),
        NodeValue::Scalar { text, quoted: false } => match text.as_str() {
            "True" => Some("1".into()),
            "False" => Some("0".into()),
            "None" => Some("None".into()),
            number => number.parse::<f64>().ok().map(|number| number.to_string()),
        },
        NodeValue::List(items) => {
            let items: Option<Vec<String>> = items.iter().map(settled).collect();
            Some(format!("({})", items?.join(", ")))
        }
        NodeValue::Map(_) => None,
    }
}

/// Key of a table: a text or number as it stands, a tuple by its values.
pub(super) fn key_of(node: &Node) -> Option<String> {
    match &node.value {
        NodeValue::Scalar { .. } if !is_known(node) => None,
        NodeValue::Scalar { text, .. } => Some(text.clone()),
        NodeValue::List(_) => settled(node),
        NodeValue::Map(_) => None,
    }
}

/// Whether a value is no `None`; nothing where that is not known.
fn is_something(node: &Node) -> Option<bool> {
    match &node.value {
        NodeValue::Scalar { text, quoted: false } if text == "None" => Some(false),
        NodeValue::Scalar { quoted: false, .. } => settled(node).map(|_| true),
        NodeValue::Map(entries) => {
            // What a function of another module gives may be nothing.
            let called = value_of(entries, CALLED).map(|node| &node.value);
            let unknown = matches!(called, Some(NodeValue::Scalar { text: name, .. }) if !is_class_name(name));
            (!unknown).then_some(true)
        }
        NodeValue::Scalar { quoted: true, .. } | NodeValue::List(_) => Some(true),
    }
}

/// Whether a value is a configuration: the result of a class or a function.
pub(super) fn is_configuration(node: &Node) -> bool {
    let NodeValue::Map(entries) = &node.value else { return false };
    let called = value_of(entries, CALLED).map(|node| &node.value);
    let known = entries.iter().filter(|entry| entry.key != OPEN && is_known(&entry.value)).count();
    matches!(called, Some(NodeValue::Scalar { text: name, .. }) if is_class_name(name) || known > 1)
}

/// Truth of a comparison.
pub(super) fn compared(sign: &str, left: &Node, right: &Node) -> Option<bool> {
    let is_none = |node: &Node| matches!(&node.value, NodeValue::Scalar { text, quoted: false } if text == "None");
    let number = |node: &Node| settled(node)?.parse::<f64>().ok();
    match sign {
        "==" | "is" | "!=" | "is not" => {
            let equal = if is_none(right) {
                !is_something(left)?
            } else if is_none(left) {
                !is_something(right)?
            } else {
                settled(left)? == settled(right)?
            };
            Some(equal == matches!(sign, "==" | "is"))
        }
        "in" | "not in" => {
            let found = match &right.value {
                NodeValue::List(items) => {
                    let wanted = settled(left)?;
                    let items: Option<Vec<String>> = items.iter().map(settled).collect();
                    items?.contains(&wanted)
                }
                NodeValue::Map(entries) => {
                    settled(left)?;
                    let wanted = key_of(left)?;
                    let has = entries.iter().any(|entry| *entry.key == wanted);
                    if !has && is_open(entries) {
                        return None;
                    }
                    has
                }
                NodeValue::Scalar { text, quoted: true } => match &left.value {
                    NodeValue::Scalar { text: part, quoted: true } => text.contains(part.as_str()),
                    NodeValue::Scalar { .. } | NodeValue::List(_) | NodeValue::Map(_) => return None,
                },
                NodeValue::Scalar { quoted: false, .. } => return None,
            };
            Some(found == (sign == "in"))
        }
        "<" => Some(number(left)? < number(right)?),
        ">" => Some(number(left)? > number(right)?),
        "<=" => Some(number(left)? <= number(right)?),
        ">=" => Some(number(left)? >= number(right)?),
        _ => None,
    }
}
