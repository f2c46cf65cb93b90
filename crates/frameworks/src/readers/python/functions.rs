//! The functions of a module, and `partial`.

use std::rc::Rc;

use super::tokens::{Line, Token};
use crate::readers::document::{CALLED, Entries, Node, NodeValue, TableEntry, value_of};

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

    /// Parameters of the function, by the ways in which they take arguments.
    pub fn parameters(&self) -> Parameters<'_> {
        parameters(&self.head.words[2..])
    }
}

/// Parameters of a function.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parameters<'f> {
    /// Those that take an argument by its place, in their order, or by its name.
    pub by_place: Vec<&'f str>,
    /// Those that take an argument by its name alone.
    pub by_name: Vec<&'f str>,
    /// The one that takes the other arguments without names: `*rest`.
    pub rest: Option<&'f str>,
    /// The one that takes the other arguments with names: `**more`.
    pub more: Option<&'f str>,
}

impl<'f> Parameters<'f> {
    /// Those that take one argument.
    pub fn named(&self) -> impl Iterator<Item = &'f str> {
        self.by_place.iter().chain(&self.by_name).copied()
    }
}

/// Parameters in the words after a function's name.
fn parameters(words: &[(Token, u32)]) -> Parameters<'_> {
    let (mut depth, mut fresh, mut stars, mut is_by_name) = (0_u32, false, "", false);
    let mut found = Parameters::default();
    for (word, _) in words {
        match word {
            Token::Sign("->") => break,
            Token::Sign("(" | "[" | "{") => {
                depth += 1;
                fresh = depth == 1;
            }
            Token::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Token::Sign(",") => fresh = depth == 1,
            Token::Sign(sign @ ("*" | "**")) if fresh => {
                stars = sign;
                is_by_name = true;
            }
            Token::Name(name) if fresh => {
                match stars {
                    "*" => found.rest = Some(name),
                    "**" => found.more = Some(name),
                    _ if is_by_name => found.by_name.push(name),
                    _ => found.by_place.push(name),
                }
                (fresh, stars) = (false, "");
            }
            Token::Sign(_) | Token::Name(_) | Token::Number(_) | Token::Text(_) | Token::Formatted => {}
        }
        if *word == Token::Sign(",") {
            stars = "";
        }
    }
    found
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
        let (before, gives) = rest.split_at(arrow);
        let names = |words: &[(Token, u32)]| {
            let name = |(word, _): &(Token, u32)| if let Token::Name(name) = word { Some(name.clone()) } else { None };
            words.iter().filter_map(name).collect::<Vec<_>>()
        };
        let defaults = before.iter().any(|(word, _)| *word == Token::Sign("="));
        let needs = parameters(before).named().next().is_some() && !defaults;
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
        let node = value_of(bound, wanted)?;
        if let NodeValue::Scalar { text, quoted: false } = &node.value { Some(text) } else { None }
    };
    if !matches!(word(CALLED)?.as_str(), "partial" | "functools.partial") {
        return None;
    }
    let function = word("0")?.clone();
    let place_of = |key: &String| key.parse::<usize>().ok();
    let first: Entries = bound
        .iter()
        .filter(|entry| place_of(&entry.key).is_some_and(|at| at > 0))
        .enumerate()
        .map(|(at, entry)| TableEntry { key: at.to_string(), ..entry.clone() })
        .collect();
    let moved = arguments.iter().map(|entry| {
        let key = place_of(&entry.key).map_or_else(|| entry.key.clone(), |at| (at + first.len()).to_string());
        TableEntry { key, ..entry.clone() }
    });
    let named = bound.iter().filter(|entry| entry.key != CALLED && place_of(&entry.key).is_none());
    let named = named.filter(|entry| value_of(arguments, &entry.key).is_none()).cloned();
    let moved: Entries = moved.chain(named).collect();
    Some((function, first.into_iter().chain(moved).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::python::tokens;

    #[test]
    fn parameters_by_place_by_name_and_the_rest() {
        let of = |head: &str| {
            let lines = tokens::lines(&format!("def f({head}) -> X:\n    pass\n")).unwrap();
            let found = functions(&lines, 0);
            let all = found[0].parameters();
            let text = |name: Option<&str>| name.unwrap_or("-").to_owned();
            let more = [all.by_place.join(" "), all.by_name.join(" "), text(all.rest), text(all.more)];
            (more.join(" | "), found[0].needs)
        };
        let cases = [
            ("", " |  | - | -", false),
            ("a, b: dict[str, int] = {}", "a b |  | - | -", false),
            ("a, *, b", "a | b | - | -", true),
            ("a, *rest: int, b, **more: Any", "a | b | rest | more", true),
            ("**more: Unpack[Settings]", " |  | - | more", false),
        ];
        for (head, text, needs) in cases {
            assert_eq!(of(head), (text.to_owned(), needs), "{head}");
        }
    }
}
