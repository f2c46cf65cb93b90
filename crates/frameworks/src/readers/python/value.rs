//! Python's expressions, as far as they say a value without running anything.

use super::builtins::{attribute_of, item_of, result_of};
use super::holes::{OPEN, add_unknown, insert, is_plain_table, merge, unknown};
use super::names::Names;
use super::operators::operated;
use super::tokens::Token;
use super::truth::{is_class_name, is_configuration, key_of};
use crate::readers::document::{CALLED, Entries, Node, NodeValue, TableEntry, value_of};

/// The value that a call of a function of the program returns with these arguments, and whether all of it was read.
pub(super) type Functions<'f> = &'f mut dyn FnMut(&str, &Entries) -> Option<(Node, bool)>;

/// Reads one expression; stops where it ends or where it is no value any more.
pub(super) struct Expression<'e> {
    pub words: &'e [(Token, u32)],
    pub names: &'e Names,
    pub functions: Functions<'e>,
    /// Lines of expressions without a known value: comprehensions, conditions, stars.
    pub unread: Vec<u32>,
}

impl Expression<'_> {
    pub fn sign(&self, sign: &str) -> bool {
        matches!(self.words.first(), Some((Token::Sign(known), _)) if *known == sign)
    }

    pub fn line(&self) -> u32 {
        self.words.first().map_or(0, |(_, line)| *line)
    }

    pub fn skip(&mut self, words: usize) {
        self.words = &self.words[words.min(self.words.len())..];
    }

    /// Whether an expression ends here.
    fn is_at_end(&self) -> bool {
        self.words.is_empty() || [",", ")", "]", "}", "=", ":"].iter().any(|sign| self.sign(sign))
    }

    /// One value; any other expression is skipped up to the next comma or closing bracket, and its line kept.
    pub fn value(&mut self) -> Option<Node> {
        let line = self.line();
        let value = self.choice();
        if self.is_at_end() && value.is_some() {
            return value;
        }
        self.unread.push(line);
        let mut depth = 0_u32;
        while let Some((word, _)) = self.words.first() {
            match word {
                Token::Sign("(" | "[" | "{") => depth += 1,
                Token::Sign(")" | "]" | "}" | ",") if depth == 0 => break,
                Token::Sign(")" | "]" | "}") => depth -= 1,
                _ => {}
            }
            self.skip(1);
        }
        None
    }

    pub fn sum(&mut self) -> Option<Node> {
        let mut left = self.product();
        while let Some(sign @ ("+" | "-")) = self.operator() {
            self.skip(1);
            let right = self.product();
            left = operated(sign, left?, right?);
        }
        left
    }

    fn product(&mut self) -> Option<Node> {
        let mut left = self.signed();
        while let Some(sign @ ("*" | "/" | "//" | "%" | "**")) = self.operator() {
            self.skip(1);
            let right = self.signed();
            left = operated(sign, left?, right?);
        }
        left
    }

    fn operator(&self) -> Option<&'static str> {
        match self.words.first() {
            Some((Token::Sign(sign), _)) => Some(sign),
            Some(_) | None => None,
        }
    }

    fn signed(&mut self) -> Option<Node> {
        let line = self.line();
        if self.sign("-") {
            self.skip(1);
            return operated("-", Node::bare("0", line), self.signed()?);
        }
        self.primary()
    }

    /// A number, a text, a bracket, or a name with its calls and attributes.
    fn primary(&mut self) -> Option<Node> {
        let (word, line) = self.words.first()?.clone();
        match word {
            Token::Number(number) => {
                self.skip(1);
                Some(Node::bare(number, line))
            }
            Token::Text(_) => {
                let mut whole = String::new();
                while let Some((Token::Text(text), _)) = self.words.first() {
                    whole.push_str(text);
                    self.skip(1);
                }
                self.methods(Node::quoted(whole, line))
            }
            Token::Sign("(") => {
                self.skip(1);
                let (mut items, commas) = self.items(")")?;
                match (items.len(), commas) {
                    (1, 0) => items.pop(),
                    _ => Some(Node { value: NodeValue::List(items), line }),
                }
            }
            Token::Sign("[") => {
                self.skip(1);
                if let Some((end, at)) = self.comprehension() {
                    return Some(Node { value: NodeValue::List(self.comprehended(end, at)?), line });
                }
                let (items, _) = self.items("]")?;
                Some(Node { value: NodeValue::List(items), line })
            }
            Token::Sign("{") => {
                self.skip(1);
                Some(self.table(line))
            }
            Token::Sign(_) | Token::Formatted => None,
            Token::Name(name) if name == "lambda" || name == "not" || name == "await" => None,
            Token::Name(name) => {
                self.skip(1);
                self.named(name, line)
            }
        }
    }

    /// Values up to a bracket, and how many commas stood between; nothing where one of them is none.
    fn items(&mut self, end: &str) -> Option<(Vec<Node>, usize)> {
        let (mut items, mut commas, mut whole) = (Vec::new(), 0, true);
        while !self.words.is_empty() && !self.sign(end) {
            if self.sign(",") {
                commas += 1;
                self.skip(1);
                continue;
            }
            match self.value() {
                Some(item) => items.push(item),
                None => whole = false,
            }
            if !self.sign(",") && !self.sign(end) {
                whole = false;
                self.skip(1);
            }
        }
        self.skip(1);
        whole.then_some((items, commas))
    }

    fn table(&mut self, line: u32) -> Node {
        let mut entries: Entries = Vec::new();
        while !self.words.is_empty() && !self.sign("}") {
            let at = self.line();
            if self.sign(",") {
                self.skip(1);
                continue;
            }
            if self.sign("**") {
                self.skip(1);
                let other = self.value();
                if !merge(&mut entries, other, at) {
                    self.unread.push(at);
                }
                continue;
            }
            let key = self.value();
            if self.sign(":") {
                self.skip(1);
                let value = self.value().unwrap_or_else(|| unknown(at));
                match key.as_ref().and_then(key_of) {
                    Some(key) => insert(&mut entries, TableEntry { key, line: at, value }),
                    None => add_unknown(&mut entries, at),
                }
            } else if key.is_none() {
                add_unknown(&mut entries, at);
            } else if !self.sign("}") {
                self.skip(1);
            }
        }
        self.skip(1);
        Node { value: NodeValue::Map(entries), line }
    }

    /// Positions of the closing bracket and of `for` in `f(x) for x in values]`.
    fn comprehension(&self) -> Option<(usize, usize)> {
        let mut depth = 0_u32;
        let end = self.words.iter().position(|(word, _)| {
            match word {
                Token::Sign("(" | "[" | "{") => depth += 1,
                Token::Sign("]") if depth == 0 => return true,
                Token::Sign(")" | "]" | "}") => depth = depth.saturating_sub(1),
                Token::Sign(_) | Token::Name(_) | Token::Number(_) | Token::Text(_) | Token::Formatted => {}
            }
            false
        })?;
        let is_name = |at: usize, name: &str| matches!(&self.words[at].0, Token::Name(word) if word == name);
        let at = (0..end.saturating_sub(2)).find(|at| is_name(*at, "for") && is_name(at + 2, "in"))?;
        Some((end, at))
    }

    /// Items of `f(x) for x in values]`, up to and with its bracket; nothing where they are not known.
    fn comprehended(&mut self, end: usize, at: usize) -> Option<Vec<Node>> {
        let (inside, names) = (&self.words[..end], self.names);
        self.skip(end + 1);
        let (each, rest) = (&inside[..at], &inside[at + 3..]);
        let Token::Name(variable) = &inside[at + 1].0 else { return None };
        if rest.iter().any(|(word, _)| matches!(word, Token::Name(name) if name == "for" || name == "if")) {
            return None;
        }
        let NodeValue::List(values) = self.with(rest, names)?.value else { return None };
        let item = |value| {
            let mut names = names.clone();
            names.set(variable, value);
            self.with(each, &names)
        };
        values.into_iter().map(item).collect()
    }

    /// Value of other words with these names.
    fn with(&mut self, words: &[(Token, u32)], names: &Names) -> Option<Node> {
        let mut inner = Expression { words, names, functions: &mut *self.functions, unread: Vec::new() };
        let value = inner.value();
        inner.words.is_empty().then_some(value)?
    }

    /// The item that a bracket behind a value names.
    fn item(&mut self, object: &Node) -> Option<Node> {
        self.skip(1);
        let (mut keys, commas) = self.items("]")?;
        let line = self.line();
        let key = if commas == 0 { keys.pop()? } else { Node { value: NodeValue::List(keys), line } };
        item_of(object, &key)
    }

    fn named(&mut self, first: String, line: u32) -> Option<Node> {
        let mut path = vec![first];
        while self.sign(".") {
            let Some((Token::Name(name), _)) = self.words.get(1) else { return None };
            path.push(name.clone());
            self.skip(2);
        }
        if !self.sign("(") {
            let known = self.names.get(&path).cloned();
            if known.is_none() && self.names.is_unknown(&path[0]) {
                return None;
            }
            if self.sign("[") {
                return self.item(&known?);
            }
            // A part of a known value that was never set may have any value.
            let is_part = path.len() > 1
                && self.names.get(&path[..1]).is_some_and(|root| matches!(root.value, NodeValue::Map(_)));
            return if known.is_none() && is_part {
                None
            } else {
                Some(known.unwrap_or_else(|| Node::bare(path.join("."), line)))
            };
        }
        self.skip(1);
        let mut entries = self.arguments();
        if let Some(named) = self.names.value(&path.join(".")).as_ref().and_then(attribute_of) {
            path = named.split('.').map(str::to_owned).collect();
        }
        let object = path.split_last().filter(|(_, object)| !object.is_empty());
        if let Some(object) = object.and_then(|(_, object)| self.names.get(object))
            && let Some(method) = path.last()
        {
            let object = object.clone();
            if let Some(result) = self.result(&object, method, &entries, line) {
                return self.methods(result);
            }
        }
        let mut called = path.join(".");
        if path.iter().any(|name| is_class_name(name)) {
            if self.sign(".")
                && let Some((object, whole)) = (self.functions)(&called, &entries)
            {
                if !whole {
                    self.unread.push(line);
                }
                return self.methods(object);
            }
            self.methods_of_made(&mut called, &mut entries);
        }
        if self.sign(".") || self.sign("[") || self.sign("(") {
            return None;
        }
        if let Some((given, whole)) = (self.functions)(&called, &entries) {
            if !whole {
                self.unread.push(line);
            }
            return Some(given);
        }
        if let Some(result) = result_of(&called, &entries, line) {
            return Some(result);
        }
        // A function of another module that takes a configuration changes or replaces it: the configuration goes on, and what
        // the function does is not read.
        if !is_class_name(&called)
            && let Some(given) = value_of(&entries, "0").filter(|given| is_configuration(given))
        {
            self.unread.push(line);
            return Some(given.clone());
        }
        if called == "dict" {
            return Some(self.dict(entries, line));
        }
        let mut all: Entries = vec![TableEntry::new(CALLED, line, Node::bare(called, line))];
        all.extend(entries);
        Some(Node { value: NodeValue::Map(all), line })
    }

    /// The table that `dict(other, key=value)` makes.
    fn dict(&mut self, arguments: Entries, line: u32) -> Node {
        let mut entries = Entries::new();
        for TableEntry { key, line: at, value } in arguments {
            if key != "0" {
                insert(&mut entries, TableEntry { key, line: at, value });
            } else if !merge(&mut entries, Some(value), at) {
                self.unread.push(at);
            }
        }
        Node { value: NodeValue::Map(entries), line }
    }

    /// Some of a call's arguments are not known.
    fn lose(&mut self, entries: &mut Entries, line: u32) {
        insert(entries, TableEntry::new(OPEN, line, unknown(line)));
        self.unread.push(line);
    }

    /// Arguments of a call: those without a name are numbered.
    pub fn arguments(&mut self) -> Entries {
        let mut entries: Entries = Vec::new();
        let mut at = 0;
        while !self.words.is_empty() && !self.sign(")") {
            let line = self.line();
            if self.sign(",") {
                self.skip(1);
                continue;
            }
            if self.sign("**") {
                self.skip(1);
                // What is given by name is not given twice: entries that are not known replace none.
                let table = self.value().filter(is_plain_table).map(|node| node.value);
                if let Some(NodeValue::Map(more)) = table {
                    for entry in more {
                        insert(&mut entries, entry);
                    }
                } else {
                    self.lose(&mut entries, line);
                }
                continue;
            }
            if self.sign("*") {
                self.skip(1);
                if let Some(Node { value: NodeValue::List(items), .. }) = self.value() {
                    let places = at..;
                    at += items.len();
                    entries
                        .extend(places.zip(items).map(|(place, item)| TableEntry::new(place.to_string(), line, item)));
                } else {
                    self.lose(&mut entries, line);
                }
                continue;
            }
            let key = if let [(Token::Name(name), _), (Token::Sign("="), _), ..] = self.words {
                let name = name.clone();
                self.skip(2);
                name
            } else {
                at += 1;
                (at - 1).to_string()
            };
            let value = self.value().unwrap_or_else(|| unknown(line));
            entries.push(TableEntry { key, line, value });
            if !self.sign(",") && !self.sign(")") {
                self.skip(1);
            }
        }
        self.skip(1);
        entries
    }
}
