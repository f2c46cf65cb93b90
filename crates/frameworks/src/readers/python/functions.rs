//! The functions of a module.

use std::rc::Rc;

use super::tokens::{Line, Token};

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
