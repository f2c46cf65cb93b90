//! The functions of a file.

use super::tokens::{Line, Token};

/// A function of the file.
pub(super) struct Function<'p> {
    pub name: &'p str,
    /// Whether it needs arguments, as configurations do not.
    pub needs: bool,
    /// Return annotation.
    pub gives: String,
    pub head: &'p Line,
    pub body: &'p [Line],
}

impl Function<'_> {
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

/// All functions at the top of the file.
pub(super) fn functions(lines: &[Line]) -> Vec<Function<'_>> {
    let function = |(at, head): (usize, &'_ Line)| {
        let [(Token::Name(def), _), (Token::Name(_), _), rest @ ..] = head.words.as_slice() else { return None };
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
        Some((at, needs, names(gives).join(".")))
    };
    let found = lines.iter().enumerate().filter_map(function);
    found
        .filter_map(|(at, needs, gives)| {
            let head = &lines[at];
            let Token::Name(name) = &head.words.get(1)?.0 else { return None };
            Some(Function { name, needs, gives, head, body: block(lines, at) })
        })
        .collect()
}
