//! Arithmetic operators of Python's values.

use crate::readers::document::{Node, NodeValue};

/// Most values of one expression, so that `[0] * 1000000000` does not exhaust memory.
const MOST_VALUES: usize = 100_000;

/// Result of an operator: of two numbers; a list or a text repeated; two lists or two texts joined.
pub(super) fn operated(sign: &str, left: Node, right: Node) -> Option<Node> {
    let line = left.line;
    let number = |node: &Node| match &node.value {
        NodeValue::Scalar { text, quoted: false } => text.parse::<f64>().ok(),
        NodeValue::Scalar { .. } | NodeValue::Map(_) | NodeValue::List(_) => None,
    };
    if let (Some(a), Some(b)) = (number(&left), number(&right)) {
        let result = match sign {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            "//" => (a / b).floor(),
            "%" => a - b * (a / b).floor(),
            "**" => a.powf(b),
            _ => return None,
        };
        return result.is_finite().then(|| Node::bare(result.to_string(), line));
    }
    let times = |list: Vec<Node>, times: f64| {
        let fits = times >= 0.0 && times * list.len() as f64 <= MOST_VALUES as f64;
        let count = times as usize * list.len();
        fits.then(|| Node { value: NodeValue::List(list.iter().cycle().take(count).cloned().collect()), line })
    };
    match (sign, number(&left), number(&right), left.value, right.value) {
        ("*", _, Some(n), NodeValue::List(list), _) | ("*", Some(n), _, _, NodeValue::List(list)) => times(list, n),
        ("*", _, Some(n), NodeValue::Scalar { text, quoted: true }, _)
        | ("*", Some(n), _, _, NodeValue::Scalar { text, quoted: true }) => {
            let fits = n >= 0.0 && n * text.len() as f64 <= MOST_VALUES as f64;
            fits.then(|| Node::quoted(text.repeat(n as usize), line))
        }
        ("+", _, _, NodeValue::Scalar { text: a, quoted: true }, NodeValue::Scalar { text: b, quoted: true })
            if a.len() + b.len() <= MOST_VALUES =>
        {
            Some(Node::quoted(a + &b, line))
        }
        ("+", _, _, NodeValue::List(mut a), NodeValue::List(b)) if a.len() + b.len() <= MOST_VALUES => {
            a.extend(b);
            Some(Node { value: NodeValue::List(a), line })
        }
        _ => None,
    }
}
