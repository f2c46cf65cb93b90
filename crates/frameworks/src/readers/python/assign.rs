//! Targets of assignments.

use super::modules::{Spot, Unread};
use super::names::Names;
use super::tokens::{Line, Token};
use super::truth::key_of;
use crate::readers::document::{Node, NodeValue};

/// `a.b.c`, where that is all there is.
pub(super) fn path(words: &[(Token, u32)]) -> Option<Vec<String>> {
    let mut path = Vec::new();
    for (at, (word, _)) in words.iter().enumerate() {
        match (at % 2, word) {
            (0, Token::Name(name)) => path.push(name.clone()),
            (1, Token::Sign(".")) => {}
            _ => return None,
        }
    }
    (words.len() % 2 == 1).then_some(path)
}

/// Gives the targets of an assignment its value.
pub(super) fn assign(
    target: &[(Token, u32)],
    right: &[(Token, u32)],
    value: Option<&Node>,
    names: &mut Names,
    spot: Spot,
    unread: &mut Unread,
) {
    let plain = target.iter().position(|(word, _)| *word == Token::Sign(":")).map_or(target, |at| &target[..at]);
    if plain.iter().any(|(word, _)| *word == Token::Sign(",")) {
        let targets = plain.split(|(word, _)| *word == Token::Sign(","));
        let values: Vec<Option<&Node>> = match value.map(|node| &node.value) {
            Some(NodeValue::List(items)) => items.iter().map(Some).collect(),
            Some(NodeValue::Scalar { .. } | NodeValue::Map(_)) | None => Vec::new(),
        };
        for (at, target) in targets.enumerate() {
            assign(target, &[], values.get(at).copied().flatten(), names, spot, unread);
        }
        return;
    }
    match path(plain).or_else(|| item(plain, names)).as_deref() {
        Some([name]) => {
            let part = path(right).filter(|part| part != std::slice::from_ref(name));
            match (part, value) {
                (Some(part), Some(Node { value: NodeValue::Map(_) | NodeValue::List(_), .. })) => {
                    names.alias(name, &part);
                }
                // What a function makes of an object is the object: `recipe = faster(recipe)`.
                (_, Some(value)) if right.iter().any(|(word, _)| matches!(word, Token::Name(used) if used == name)) => {
                    names.set_whole(name, value.clone());
                }
                (_, Some(value)) => names.set(name, value.clone()),
                (_, None) => names.forget(name),
            }
        }
        Some(whole @ [first, ..]) if names.has(first) => names.replace(whole, value.cloned(), spot.line),
        // A part of what is not known: the configuration may hold it.
        Some(_) => unread.push(spot),
        None => {
            unread.push(spot);
            let opening = plain.iter().position(|(word, _)| *word == Token::Sign("["));
            if let Some(object) = opening.and_then(|at| path(&plain[..at])) {
                names.change(&object, spot.line);
            }
        }
    }
}

/// `a.b["key"]` and `a.b[name]`, where that is all there is.
pub(super) fn item(words: &[(Token, u32)], names: &Names) -> Option<Vec<String>> {
    let [object @ .., (Token::Sign("["), _), (key, _), (Token::Sign("]"), _)] = words else { return None };
    let mut path = path(object)?;
    path.push(match key {
        Token::Text(key) | Token::Number(key) => key.clone(),
        Token::Name(name) => key_of(&names.value(name)?)?,
        Token::Formatted | Token::Sign(_) => return None,
    });
    Some(path)
}

/// Places of the signs `=` of an assignment: those outside of brackets.
pub(super) fn equals_signs(words: &[(Token, u32)]) -> Vec<usize> {
    let mut depth = 0;
    let mut is_outside = |word: &Token| {
        depth += word.nesting();
        depth == 0 && *word == Token::Sign("=")
    };
    words.iter().enumerate().filter(|(_, (word, _))| is_outside(word)).map(|(at, _)| at).collect()
}

/// Words of a statement or an expression.
type Words = Vec<(Token, u32)>;

/// Target of `target += value`, and the words of `target + (value)`.
pub(super) fn augmented(line: &Line) -> Option<(Words, Words)> {
    let at = line
        .words
        .iter()
        .position(|(word, _)| matches!(word, Token::Sign("+=" | "-=" | "*=" | "/=" | "//=" | "%=" | "**=" | "|=")))?;
    let (target, [(Token::Sign(sign), number), value @ ..]) = line.words.split_at(at) else { return None };
    let operator =
        ["+", "-", "**", "*", "//", "/", "%", "|"].into_iter().find(|known| sign.trim_end_matches('=') == *known)?;
    let sign = |sign| (Token::Sign(sign), *number);
    let whole =
        target.iter().cloned().chain([sign(operator), sign("(")]).chain(value.iter().cloned()).chain([sign(")")]);
    Some((target.to_vec(), whole.collect()))
}

/// Makes unknown the names that lines give values, because the lines are not followed.
pub(super) fn forget_assigned(lines: &[Line], names: &mut Names) {
    for line in lines {
        if let [(Token::Name(name), _), (Token::Sign("=" | "+=" | "-=" | "*=" | "/=" | "//=" | ":"), _), ..] =
            line.words.as_slice()
        {
            names.forget(name);
        }
    }
}
