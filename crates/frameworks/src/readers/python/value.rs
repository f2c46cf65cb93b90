//! Python's expressions, as far as they say a value without running anything.

use std::collections::BTreeMap;

use super::tokens::Token;
use crate::readers::document::{CALLED, Entries, Node, NodeValue};

/// Most values of one expression: `[0] * 1000000000` must not take the memory.
const MOST_VALUES: usize = 100_000;

/// Values of names in this function and its module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    values: BTreeMap<String, Node>,
    /// Other names of a part of a value: `p = config.parallelism`.
    parts: BTreeMap<String, Vec<String>>,
}

impl Names {
    /// Gives a value a name.
    pub fn set(&mut self, name: &str, node: Node) {
        self.parts.remove(name);
        self.values.insert(name.to_owned(), node);
    }

    /// Gives a part of a value another name.
    pub fn alias(&mut self, name: &str, path: &[String]) {
        let path = self.whole(path);
        self.values.remove(name);
        self.parts.insert(name.to_owned(), path);
    }

    /// A name means nothing that is known any more.
    pub fn forget(&mut self, name: &str) {
        self.values.remove(name);
        self.parts.remove(name);
    }

    /// A path whose first name is a value's own.
    fn whole(&self, path: &[String]) -> Vec<String> {
        match path.first().and_then(|first| self.parts.get(first)) {
            Some(part) => part.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }

    /// The value of a path.
    pub fn get(&self, path: &[String]) -> Option<&Node> {
        let path = self.whole(path);
        let mut node = self.values.get(path.first()?)?;
        for key in &path[1..] {
            let NodeValue::Map(entries) = &node.value else { return None };
            node = &entries.iter().find(|(known, ..)| known == key)?.2;
        }
        Some(node)
    }

    /// Sets a part of a value, with the tables above it; nothing where the first name means nothing.
    pub fn put(&mut self, path: &[String], node: Option<Node>, line: u32) {
        let path = self.whole(path);
        let Some((first, keys)) = path.split_first() else { return };
        let Some(mut at) = self.values.get_mut(first) else { return };
        for (depth, key) in keys.iter().enumerate() {
            if !matches!(at.value, NodeValue::Map(_)) {
                at.value = NodeValue::Map(Vec::new());
            }
            let NodeValue::Map(entries) = &mut at.value else { return };
            let place = entries.iter().position(|(known, ..)| known == key);
            if depth + 1 == keys.len() {
                entries.retain(|(known, ..)| known != key);
                entries.extend(node.map(|node| (key.clone(), line, node)));
                return;
            }
            let place = place.unwrap_or_else(|| {
                entries.push((key.clone(), line, Node { value: NodeValue::Map(Vec::new()), line }));
                entries.len() - 1
            });
            at = &mut entries[place].2;
        }
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<Node> {
        self.get(&[name.to_owned()]).cloned()
    }
}

/// The value that a call of a function of the same file returns with these arguments, and whether all of it was read.
pub(super) type Functions<'f> = &'f mut dyn FnMut(&str, &Entries) -> Option<(Node, bool)>;

/// Reads one expression; stops where it ends or where it is no value any more.
pub(super) struct Expression<'e> {
    pub words: &'e [(Token, u32)],
    pub names: &'e Names,
    pub functions: Functions<'e>,
    /// Lines of what is no value: comprehensions, conditions, stars.
    pub unread: Vec<u32>,
}

fn scalar(text: impl Into<String>, line: u32) -> Node {
    Node { value: NodeValue::Scalar(text.into(), false), line }
}

impl Expression<'_> {
    fn sign(&self, sign: &str) -> bool {
        matches!(self.words.first(), Some((Token::Sign(known), _)) if *known == sign)
    }

    fn line(&self) -> u32 {
        self.words.first().map_or(0, |(_, line)| *line)
    }

    fn skip(&mut self, words: usize) {
        self.words = &self.words[words.min(self.words.len())..];
    }

    fn ends(&self) -> bool {
        self.words.is_empty() || [",", ")", "]", "}", "=", ":"].iter().any(|sign| self.sign(sign))
    }

    /// One value; what is none is skipped up to the next comma or closing bracket, and its line kept.
    pub fn value(&mut self) -> Option<Node> {
        let line = self.line();
        let value = self.sum();
        if self.ends() && value.is_some() {
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

    fn sum(&mut self) -> Option<Node> {
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
            return operated("-", scalar("0", line), self.signed()?);
        }
        self.primary()
    }

    /// A number, a text, a bracket, or a name with what is called and looked up on it.
    fn primary(&mut self) -> Option<Node> {
        let (word, line) = self.words.first()?.clone();
        match word {
            Token::Number(number) => {
                self.skip(1);
                Some(scalar(number, line))
            }
            Token::Text(_) => {
                let mut whole = String::new();
                while let Some((Token::Text(text), _)) = self.words.first() {
                    whole.push_str(text);
                    self.skip(1);
                }
                Some(Node { value: NodeValue::Scalar(whole, true), line })
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
            let key = self.value();
            if self.sign(":") {
                self.skip(1);
                if let (Some(Node { value: NodeValue::Scalar(key, _), .. }), Some(value)) = (key, self.value()) {
                    entries.push((key, at, value));
                }
            } else if !self.sign("}") {
                self.skip(1);
            }
        }
        self.skip(1);
        Node { value: NodeValue::Map(entries), line }
    }

    fn named(&mut self, first: String, line: u32) -> Option<Node> {
        let mut path = vec![first];
        while self.sign(".") {
            let Some((Token::Name(name), _)) = self.words.get(1) else { return None };
            path.push(name.clone());
            self.skip(2);
        }
        if !self.sign("(") {
            if self.sign("[") {
                return None;
            }
            return Some(self.names.get(&path).cloned().unwrap_or_else(|| scalar(path.join("."), line)));
        }
        self.skip(1);
        let entries = self.arguments();
        let mut called = path.join(".");
        // A method of what was made, without arguments: `AutoBridge.from_hf_pretrained("…").get_model_config()`.
        while let [(Token::Sign("."), _), (Token::Name(method), _), (Token::Sign("("), _), (Token::Sign(")"), _), ..] =
            self.words
        {
            called = format!("{called}.{method}");
            self.skip(4);
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
        // A function of another module that takes a configuration changes or replaces it: the configuration goes on, and what
        // the function does is not read.
        if !made(&called)
            && let Some((_, _, given)) = entries.iter().find(|(key, _, value)| key == "0" && is_configuration(value))
        {
            self.unread.push(line);
            return Some(given.clone());
        }
        let mut all: Entries = Vec::new();
        if called != "dict" {
            all.push((CALLED.to_owned(), line, scalar(called, line)));
        }
        all.extend(entries);
        Some(Node { value: NodeValue::Map(all), line })
    }

    /// Arguments of a call: those without a name are numbered.
    fn arguments(&mut self) -> Entries {
        let mut entries: Entries = Vec::new();
        let mut at = 0;
        while !self.words.is_empty() && !self.sign(")") {
            let line = self.line();
            if self.sign(",") {
                self.skip(1);
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
            if let Some(value) = self.value() {
                entries.push((key, line, value));
            }
            if !self.sign(",") && !self.sign(")") {
                self.skip(1);
            }
        }
        self.skip(1);
        entries
    }
}

/// Whether a name is a class's, which is written with a capital.
pub(super) fn made(called: &str) -> bool {
    let name = called.rsplit('.').next().unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Whether a value is a configuration: what a class or a function made.
fn is_configuration(node: &Node) -> bool {
    matches!(&node.value, NodeValue::Map(entries) if entries.iter().any(|(key, ..)| key == CALLED))
}

/// Two numbers, a list repeated, or two lists joined.
fn operated(sign: &str, left: Node, right: Node) -> Option<Node> {
    let line = left.line;
    let number = |node: &Node| match &node.value {
        NodeValue::Scalar(text, false) => text.parse::<f64>().ok(),
        NodeValue::Scalar(..) | NodeValue::Map(_) | NodeValue::List(_) => None,
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
        return result.is_finite().then(|| scalar(result.to_string(), line));
    }
    let times = |list: Vec<Node>, times: f64| {
        let fits = times >= 0.0 && times * list.len() as f64 <= MOST_VALUES as f64;
        let count = times as usize * list.len();
        fits.then(|| Node { value: NodeValue::List(list.iter().cycle().take(count).cloned().collect()), line })
    };
    match (sign, number(&left), number(&right), left.value, right.value) {
        ("*", _, Some(n), NodeValue::List(list), _) | ("*", Some(n), _, _, NodeValue::List(list)) => times(list, n),
        ("+", _, _, NodeValue::List(mut a), NodeValue::List(b)) if a.len() + b.len() <= MOST_VALUES => {
            a.extend(b);
            Some(Node { value: NodeValue::List(a), line })
        }
        _ => None,
    }
}
