//! Python's own functions and methods that make values of values.

use super::holes::{is_known, is_open, is_plain_table};
use super::truth::{boolean, is_class_name, key_of, settled, truth};
use crate::readers::document::{CALLED, Entries, Node, NodeValue, value_of};

/// Result of a call, by the name that is called: nothing where the function is not one of these, or its result is not known.
pub(super) fn result_of(called: &str, entries: &Entries, line: u32) -> Option<Node> {
    let argument = |at: usize| value_of(entries, &at.to_string());
    if !entries.iter().all(|entry| is_known(&entry.value)) {
        return None;
    }
    let first = argument(0)?;
    let number = |node: &Node| settled(node)?.parse::<f64>().ok();
    match called {
        "int" => Some(Node::bare(number(first)?.trunc().to_string(), line)),
        "float" => Some(Node::bare(number(first)?.to_string(), line)),
        "bool" => truth(first).map(|value| boolean(value, line)),
        "str" => match &first.value {
            NodeValue::Scalar { text, quoted: true } => Some(Node::quoted(text.clone(), line)),
            NodeValue::Scalar { .. } | NodeValue::List(_) | NodeValue::Map(_) => None,
        },
        "list" | "tuple" => match &first.value {
            NodeValue::List(items) => Some(Node { value: NodeValue::List(items.clone()), line }),
            NodeValue::Scalar { .. } | NodeValue::Map(_) => None,
        },
        "len" => match &first.value {
            NodeValue::List(items) => Some(Node::bare(items.len().to_string(), line)),
            NodeValue::Scalar { .. } | NodeValue::Map(_) => None,
        },
        "range" => range(entries, line),
        "max" | "min" => {
            let numbers: Option<Vec<f64>> = entries.iter().map(|entry| number(&entry.value)).collect();
            let pick = if called == "max" { f64::max } else { f64::min };
            numbers?.into_iter().reduce(pick).map(|number| Node::bare(number.to_string(), line))
        }
        "hasattr" => attribute(first, argument(1)?).map(|_| boolean(true, line)),
        "getattr" => attribute(first, argument(1)?).cloned(),
        "isinstance" => {
            let kinds = match &argument(1)?.value {
                NodeValue::List(kinds) => kinds.iter().collect(),
                NodeValue::Scalar { .. } | NodeValue::Map(_) => vec![argument(1)?],
            };
            let answers: Vec<Option<bool>> = kinds.into_iter().map(|kind| of_kind(first, kind)).collect();
            let is = if answers.contains(&Some(true)) {
                Some(true)
            } else {
                answers.into_iter().collect::<Option<Vec<_>>>().map(|_| false)
            };
            is.map(|value| boolean(value, line))
        }
        "deepcopy" | "copy.deepcopy" | "copy.copy" => Some(first.clone()),
        "replace" | "dataclasses.replace" => {
            let NodeValue::Map(own) = &first.value else { return None };
            let mut own = own.clone();
            for entry in entries.iter().filter(|entry| entry.key != "0") {
                own.retain(|known| known.key != entry.key);
                own.push(entry.clone());
            }
            Some(Node { value: NodeValue::Map(own), line })
        }
        _ => None,
    }
}

/// Most numbers of a range, so that a mistyped one does not exhaust memory.
const MOST_NUMBERS: usize = 100_000;

/// The numbers of `range(end)`, `range(start, end)` and `range(start, end, step)`.
fn range(arguments: &Entries, line: u32) -> Option<Node> {
    let numbers: Option<Vec<i64>> = arguments.iter().map(|entry| settled(&entry.value)?.parse().ok()).collect();
    let (start, end, step) = match *numbers?.as_slice() {
        [end] => (0, end, 1),
        [start, end] => (start, end, 1),
        [start, end, step] => (start, end, step),
        _ => return None,
    };
    let goes_on = |number: &i64| if step > 0 { *number < end } else { *number > end };
    let next = |number: &i64| number.checked_add(step).filter(goes_on);
    let first = Some(start).filter(|_| step != 0).filter(goes_on);
    let items: Vec<Node> = std::iter::successors(first, next)
        .take(MOST_NUMBERS + 1)
        .map(|number| Node::bare(number.to_string(), line))
        .collect();
    (step != 0 && items.len() <= MOST_NUMBERS).then_some(Node { value: NodeValue::List(items), line })
}

/// Name of what `getattr(Class, "name")` gives: `Class.name`.
pub(super) fn attribute_of(node: &Node) -> Option<String> {
    let NodeValue::Map(entries) = &node.value else { return None };
    let word = |wanted: &str, quoted: bool| {
        let node = value_of(entries, wanted)?;
        match &node.value {
            NodeValue::Scalar { text, quoted: is } if *is == quoted => Some(text.clone()),
            NodeValue::Scalar { .. } | NodeValue::List(_) | NodeValue::Map(_) => None,
        }
    };
    if word(CALLED, false)? != "getattr" {
        return None;
    }
    Some(format!("{}.{}", word("0", false).filter(|class| is_class_name(class))?, word("1", true)?))
}

fn attribute<'n>(object: &'n Node, name: &Node) -> Option<&'n Node> {
    let (NodeValue::Map(entries), NodeValue::Scalar { text: name, quoted: true }) = (&object.value, &name.value) else {
        return None;
    };
    value_of(entries, name).filter(|node| is_known(node))
}

/// Abstract classes, of which values of Python's own types may be.
const ABSTRACT: &[&str] = &[
    "Any",
    "Callable",
    "Collection",
    "Container",
    "Hashable",
    "Integral",
    "Iterable",
    "Mapping",
    "MutableMapping",
    "MutableSequence",
    "Number",
    "Rational",
    "Real",
    "Reversible",
    "Sequence",
    "Sized",
];

/// Whether a value is of a type.
fn of_kind(node: &Node, kind: &Node) -> Option<bool> {
    let NodeValue::Scalar { text: kind, quoted: false } = &kind.value else { return None };
    let is = match &node.value {
        NodeValue::Scalar { quoted: true, .. } => "str",
        NodeValue::Scalar { text, quoted: false } => match text.as_str() {
            "True" | "False" => "bool",
            "None" => "None",
            number if number.parse::<i64>().is_ok() => "int",
            number if number.parse::<f64>().is_ok() => "float",
            _ => return None,
        },
        NodeValue::List(_) => "list",
        NodeValue::Map(entries) if entries.iter().any(|entry| entry.key == CALLED) => "object",
        NodeValue::Map(_) => "dict",
    };
    match kind.as_str() {
        "int" => Some(is == "int" || is == "bool"),
        "str" | "float" | "bool" | "list" | "dict" => Some(is == kind),
        // A class that is no type of Python's own has none of its values.
        class if is_class_name(class) && is != "object" => {
            let name = class.rsplit('.').next().unwrap_or_default();
            (!ABSTRACT.contains(&name)).then_some(false)
        }
        _ => None,
    }
}

fn text_of(node: &Node) -> Option<&str> {
    if let NodeValue::Scalar { text, quoted: true } = &node.value { Some(text) } else { None }
}

/// Result of a method of a value: `table.get(key)`, `text.lower()`.
pub(super) fn method_of(object: &Node, method: &str, entries: &Entries, line: u32) -> Option<Node> {
    let argument = |at: usize| value_of(entries, &at.to_string());
    let none = || Node::bare("None", line);
    match (&object.value, method) {
        // The entry that `pop` takes out goes with the statement (`take`).
        (NodeValue::Map(own), "get" | "pop") if is_plain_table(object) => {
            let key = key_of(argument(0)?)?;
            let default =
                || if method == "pop" { argument(1).cloned() } else { Some(argument(1).cloned().unwrap_or_else(none)) };
            match value_of(own, &key) {
                Some(node) => Some(node.clone()),
                None if is_open(own) => None,
                None => default(),
            }
            .filter(is_known)
        }
        (NodeValue::Scalar { text, quoted: true }, "lower") => Some(Node::quoted(text.to_lowercase(), line)),
        (NodeValue::Scalar { text, quoted: true }, "upper") => Some(Node::quoted(text.to_uppercase(), line)),
        (NodeValue::Scalar { text: between, quoted: true }, "join") => {
            let NodeValue::List(items) = &argument(0)?.value else { return None };
            let texts: Option<Vec<&str>> = items.iter().map(text_of).collect();
            Some(Node::quoted(texts?.join(between), line))
        }
        (NodeValue::Scalar { text, quoted: true }, "replace") => {
            let (from, to) = (text_of(argument(0)?)?, text_of(argument(1)?)?);
            Some(Node::quoted(text.replace(from, to), line))
        }
        (NodeValue::Map(_) | NodeValue::List(_), "copy") => Some(object.clone()),
        _ => None,
    }
}

/// The item of a list or a table: `layouts[(8, 4)]`, `names[0]`.
pub(super) fn item_of(object: &Node, key: &Node) -> Option<Node> {
    match &object.value {
        NodeValue::Map(entries) => {
            let key = key_of(key)?;
            value_of(entries, &key).filter(|node| is_known(node)).cloned()
        }
        NodeValue::List(items) => {
            let at: i64 = key_of(key)?.parse().ok()?;
            let from_end = usize::try_from(-at).ok().filter(|_| at < 0).map(|back| items.len().checked_sub(back));
            items.get(from_end.unwrap_or_else(|| usize::try_from(at).ok())?).cloned()
        }
        NodeValue::Scalar { .. } => None,
    }
}
