//! Python's own functions and methods that make values of values.

use super::holes::{is_known, is_open, is_plain_table};
use super::truth::{boolean, is_class_name, key_of, scalar, settled, truth};
use crate::readers::document::{CALLED, Entries, Node, NodeValue};

/// Result of a call, by the name that is called: nothing where the function is not one of these, or its result is not known.
pub(super) fn result_of(called: &str, entries: &Entries, line: u32) -> Option<Node> {
    let argument = |at: usize| entries.iter().find(|(key, ..)| *key == at.to_string()).map(|(.., node)| node);
    if !entries.iter().all(|(.., node)| is_known(node)) {
        return None;
    }
    let first = argument(0)?;
    let number = |node: &Node| settled(node)?.parse::<f64>().ok();
    match called {
        "int" => Some(scalar(number(first)?.trunc().to_string(), line)),
        "float" => Some(scalar(number(first)?.to_string(), line)),
        "bool" => truth(first).map(|value| boolean(value, line)),
        "str" => match &first.value {
            NodeValue::Scalar(text, true) => Some(Node { value: NodeValue::Scalar(text.clone(), true), line }),
            NodeValue::Scalar(..) | NodeValue::List(_) | NodeValue::Map(_) => None,
        },
        "list" | "tuple" => match &first.value {
            NodeValue::List(items) => Some(Node { value: NodeValue::List(items.clone()), line }),
            NodeValue::Scalar(..) | NodeValue::Map(_) => None,
        },
        "len" => match &first.value {
            NodeValue::List(items) => Some(scalar(items.len().to_string(), line)),
            NodeValue::Scalar(..) | NodeValue::Map(_) => None,
        },
        "max" | "min" => {
            let numbers: Option<Vec<f64>> = entries.iter().map(|(.., node)| number(node)).collect();
            let pick = if called == "max" { f64::max } else { f64::min };
            numbers?.into_iter().reduce(pick).map(|number| scalar(number.to_string(), line))
        }
        "hasattr" => attribute(first, argument(1)?).map(|_| boolean(true, line)),
        "getattr" => attribute(first, argument(1)?).cloned(),
        "isinstance" => {
            let kinds = match &argument(1)?.value {
                NodeValue::List(kinds) => kinds.iter().collect(),
                NodeValue::Scalar(..) | NodeValue::Map(_) => vec![argument(1)?],
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
            for (key, at, node) in entries.iter().filter(|(key, ..)| key != "0") {
                own.retain(|(known, ..)| known != key);
                own.push((key.clone(), *at, node.clone()));
            }
            Some(Node { value: NodeValue::Map(own), line })
        }
        _ => None,
    }
}

/// Name of what `getattr(Class, "name")` gives: `Class.name`.
pub(super) fn attribute_of(node: &Node) -> Option<String> {
    let NodeValue::Map(entries) = &node.value else { return None };
    let word = |wanted: &str, quoted: bool| {
        let node = entries.iter().find(|(key, ..)| key == wanted).map(|(.., node)| node)?;
        if let NodeValue::Scalar(word, is) = &node.value { (*is == quoted).then(|| word.clone()) } else { None }
    };
    if word(CALLED, false)? != "getattr" {
        return None;
    }
    Some(format!("{}.{}", word("0", false).filter(|class| is_class_name(class))?, word("1", true)?))
}

fn attribute<'n>(object: &'n Node, name: &Node) -> Option<&'n Node> {
    let (NodeValue::Map(entries), NodeValue::Scalar(name, true)) = (&object.value, &name.value) else { return None };
    entries.iter().find(|(key, _, node)| key == name && is_known(node)).map(|(.., node)| node)
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
    let NodeValue::Scalar(kind, false) = &kind.value else { return None };
    let is = match &node.value {
        NodeValue::Scalar(_, true) => "str",
        NodeValue::Scalar(text, false) => match text.as_str() {
            "True" | "False" => "bool",
            "None" => "None",
            number if number.parse::<i64>().is_ok() => "int",
            number if number.parse::<f64>().is_ok() => "float",
            _ => return None,
        },
        NodeValue::List(_) => "list",
        NodeValue::Map(entries) if entries.iter().any(|(key, ..)| key == CALLED) => "object",
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
    if let NodeValue::Scalar(text, true) = &node.value { Some(text) } else { None }
}

/// Result of a method of a value: `table.get(key)`, `text.lower()`.
pub(super) fn method_of(object: &Node, method: &str, entries: &Entries, line: u32) -> Option<Node> {
    let argument = |at: usize| entries.iter().find(|(key, ..)| *key == at.to_string()).map(|(.., node)| node);
    let none = || scalar("None", line);
    match (&object.value, method) {
        // The entry that `pop` takes out goes with the statement (`take`).
        (NodeValue::Map(own), "get" | "pop") if is_plain_table(object) => {
            let key = key_of(argument(0)?)?;
            let default =
                || if method == "pop" { argument(1).cloned() } else { Some(argument(1).cloned().unwrap_or_else(none)) };
            match own.iter().find(|(known, ..)| *known == key) {
                Some((.., node)) => Some(node.clone()),
                None if is_open(own) => None,
                None => default(),
            }
            .filter(is_known)
        }
        (NodeValue::Scalar(text, true), "lower") => {
            Some(Node { value: NodeValue::Scalar(text.to_lowercase(), true), line })
        }
        (NodeValue::Scalar(text, true), "upper") => {
            Some(Node { value: NodeValue::Scalar(text.to_uppercase(), true), line })
        }
        (NodeValue::Scalar(between, true), "join") => {
            let NodeValue::List(items) = &argument(0)?.value else { return None };
            let texts: Option<Vec<&str>> = items.iter().map(text_of).collect();
            Some(Node { value: NodeValue::Scalar(texts?.join(between), true), line })
        }
        (NodeValue::Scalar(text, true), "replace") => {
            let (from, to) = (text_of(argument(0)?)?, text_of(argument(1)?)?);
            Some(Node { value: NodeValue::Scalar(text.replace(from, to), true), line })
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
            let found = entries.iter().find(|(known, ..)| *known == key).map(|(.., node)| node.clone());
            found.filter(is_known)
        }
        NodeValue::List(items) => {
            let at: i64 = key_of(key)?.parse().ok()?;
            let from_end = usize::try_from(-at).ok().filter(|_| at < 0).map(|back| items.len().checked_sub(back));
            items.get(from_end.unwrap_or_else(|| usize::try_from(at).ok())?).cloned()
        }
        NodeValue::Scalar(..) => None,
    }
}
