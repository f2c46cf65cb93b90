//! The functions of a module, and `partial`.

use std::rc::Rc;

use super::tokens::{Line, Token};
use crate::readers::document::{CALLED, Entries, Node, NodeValue};

/// A function at the top of a module.
pub(super) struct Function {
    pub name: String,
    /// The module that has it.
    pub module: usize,
    /// Whether it needs arguments, as configurations do not.
    pub needs: bool,
    /// Return annotation.
    pub gives: String,
    pub head: Line,
    pub body: Vec<Line>,
}

impl Function {
    /// Whether a user may ask for it by name.
    pub fn is_offered(&self) -> bool {
        !self.needs && !self.name.starts_with('_')
    }

    /// Names of its parameters, in their order.
    pub fn parameters(&self) -> Vec<&str> {
        let (mut depth, mut fresh, mut names) = (0_u32, false, Vec::new());
        for (word, _) in &self.head.words[2..] {
            match word {
                Token::Sign("->") => break,
                Token::Sign("(" | "[" | "{") => {
                    depth += 1;
                    fresh = depth == 1;
                }
                Token::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
                Token::Sign(",") => fresh = depth == 1,
                Token::Name(name) if fresh => {
                    names.push(name.as_str());
                    fresh = false;
                }
                Token::Sign(_) | Token::Name(_) | Token::Number(_) | Token::Text(_) | Token::Formatted => {}
            }
        }
        names
    }
}

/// Whether a word of a line is this name.
pub(super) fn is_word(line: &Line, at: usize, word: &str) -> bool {
    matches!(line.words.get(at), Some((Token::Name(name), _)) if name == word)
}

/// The lines below a line that are indented deeper.
pub(super) fn block(lines: &[Line], at: usize) -> &[Line] {
    let below = lines[at + 1..].iter().take_while(|line| line.indent > lines[at].indent).count();
    &lines[at + 1..=at + below]
}

/// All functions at the top of a module.
pub(super) fn functions(lines: &[Line], module: usize) -> Vec<Rc<Function>> {
    let function = |(at, head): (usize, &Line)| {
        let [(Token::Name(def), _), (Token::Name(name), _), rest @ ..] = head.words.as_slice() else { return None };
        if def != "def" || head.indent != 0 {
            return None;
        }
        let arrow = rest.iter().position(|(word, _)| *word == Token::Sign("->")).unwrap_or(rest.len());
        let (parameters, gives) = rest.split_at(arrow);
        let names = |words: &[(Token, u32)]| {
            let name = |(word, _): &(Token, u32)| if let Token::Name(name) = word { Some(name.clone()) } else { None };
            words.iter().filter_map(name).collect::<Vec<_>>()
        };
        let defaults = parameters.iter().any(|(word, _)| *word == Token::Sign("="));
        let needs = !names(parameters).is_empty() && !defaults;
        let gives = names(gives).join(".");
        let body = block(lines, at).to_vec();
        Some(Rc::new(Function { name: name.clone(), module, needs, gives, head: head.clone(), body }))
    };
    lines.iter().enumerate().filter_map(function).collect()
}

/// Function and arguments of a call of `partial(function, …)`.
pub(super) fn partial(object: Option<&Node>, arguments: &Entries) -> Option<(String, Entries)> {
    let NodeValue::Map(bound) = &object?.value else { return None };
    let word = |wanted: &str| {
        let entry = bound.iter().find(|(key, ..)| key == wanted);
        entry.and_then(|(.., node)| if let NodeValue::Scalar(word, false) = &node.value { Some(word) } else { None })
    };
    if !matches!(word(CALLED)?.as_str(), "partial" | "functools.partial") {
        return None;
    }
    let function = word("0")?.clone();
    let at = |key: &String| key.parse::<usize>().ok();
    let first: Entries = bound
        .iter()
        .filter(|(key, ..)| at(key).is_some_and(|at| at > 0))
        .enumerate()
        .map(|(at, (_, line, node))| (at.to_string(), *line, node.clone()))
        .collect();
    let moved = arguments.iter().map(|(key, line, node)| {
        (at(key).map_or_else(|| key.clone(), |at| (at + first.len()).to_string()), *line, node.clone())
    });
    let named = bound.iter().filter(|(key, ..)| key != CALLED && at(key).is_none());
    let named = named.filter(|(key, ..)| arguments.iter().all(|(known, ..)| known != key)).cloned();
    let moved: Entries = moved.chain(named).collect();
    Some((function, first.into_iter().chain(moved).collect()))
}
