//! Choices, conditions and comparisons in expressions.

use super::holes::{is_plain_table, merge};
use super::tokens::Token;
use super::truth::{boolean, compared, truth};
use super::value::Expression;
use crate::readers::document::{Node, NodeValue};

impl Expression<'_> {
    fn is_name(&self, at: usize, name: &str) -> bool {
        matches!(self.words.get(at), Some((Token::Name(word), _)) if word == name)
    }

    /// `a if condition else b`, and all that binds closer.
    pub fn choice(&mut self) -> Option<Node> {
        let first = self.any();
        if !self.is_name(0, "if") {
            return first;
        }
        self.skip(1);
        let condition = self.any();
        if !self.is_name(0, "else") {
            return None;
        }
        self.skip(1);
        let second = self.choice();
        if truth(&condition?)? { first } else { second }
    }

    /// `a or b`: the first that is true.
    fn any(&mut self) -> Option<Node> {
        let mut left = self.all();
        while self.is_name(0, "or") {
            self.skip(1);
            let right = self.all();
            left = match left.as_ref().map(truth) {
                Some(Some(true)) => left,
                Some(Some(false)) => right,
                // One side that is true for sure is enough for a condition.
                Some(None) | None => right.filter(|right| truth(right) == Some(true)),
            };
        }
        left
    }

    /// `a and b`: the first that is false.
    fn all(&mut self) -> Option<Node> {
        let mut left = self.negation();
        while self.is_name(0, "and") {
            self.skip(1);
            let right = self.negation();
            left = match left.as_ref().map(truth) {
                Some(Some(false)) => left,
                Some(Some(true)) => right,
                Some(None) | None => right.filter(|right| truth(right) == Some(false)),
            };
        }
        left
    }

    fn negation(&mut self) -> Option<Node> {
        if !self.is_name(0, "not") {
            return self.comparison();
        }
        let line = self.line();
        self.skip(1);
        let value = self.negation()?;
        Some(boolean(!truth(&value)?, line))
    }

    fn comparison(&mut self) -> Option<Node> {
        let line = self.line();
        let mut left = self.union();
        while let Some((sign, words)) = self.comparator() {
            self.skip(words);
            let right = self.union();
            left = compared(sign, &left?, &right?).map(|value| boolean(value, line));
        }
        left
    }

    /// `table | other`, and all that binds closer.
    fn union(&mut self) -> Option<Node> {
        let mut left = self.sum();
        while self.sign("|") {
            let line = self.line();
            self.skip(1);
            let right = self.sum();
            let Node { value: NodeValue::Map(mut entries), line: begun } = left.filter(is_plain_table)? else {
                return None;
            };
            if !merge(&mut entries, right, line) {
                self.unread.push(line);
            }
            left = Some(Node { value: NodeValue::Map(entries), line: begun });
        }
        left
    }

    fn comparator(&self) -> Option<(&'static str, usize)> {
        match &self.words.first()?.0 {
            Token::Sign(sign @ ("==" | "!=" | "<" | ">" | "<=" | ">=")) => Some((sign, 1)),
            Token::Name(name) if name == "is" && self.is_name(1, "not") => Some(("is not", 2)),
            Token::Name(name) if name == "is" => Some(("is", 1)),
            Token::Name(name) if name == "not" && self.is_name(1, "in") => Some(("not in", 2)),
            Token::Name(name) if name == "in" => Some(("in", 1)),
            Token::Name(_) | Token::Sign(_) | Token::Number(_) | Token::Text(_) | Token::Formatted => None,
        }
    }
}
