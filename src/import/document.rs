//! JSON, TOML and YAML as one tree that knows its lines; what is read from it is remembered, so that the rest can be named.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle};
use toml::de::{DeTable, DeValue};

use super::finding::{Finding, Place};
use super::python::CALLED;
use super::{Context, ImportError};

/// A value of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text, number or truth value; whether it stood in quotes.
    Scalar(String, bool),
    /// A table.
    Map(Entries),
    /// A list.
    List(Vec<Node>),
}

/// Keys of a table, each with its line and its value.
pub type Entries = Vec<(String, u32, Node)>;

/// A value and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// The line, from 1.
    pub line: u32,
}

/// Form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// Most values of a file: an alias of aliases must not take the memory.
const MOST_NODES: usize = 100_000;

/// Reads a file whose top is a table.
///
/// # Errors
/// Names the line that does not parse, a key that stands twice, or a top that is no table.
pub fn parse(text: &str, form: Form, context: &Context) -> Result<Document, ImportError> {
    let bad = |line: u32, why: String, expected: &str| ImportError {
        file: context.file.into(),
        line,
        why,
        expected: expected.into(),
    };
    let text = text.trim_start_matches('\u{feff}');
    let node = match form {
        Form::Json => {
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or(&why).to_owned();
                return Err(bad(error.line() as u32, format!("column {}: not JSON: {why}", error.column()), ""));
            }
            yaml(&text.replace('\t', " "))
        }
        Form::Yaml => yaml(text),
        Form::Toml => toml(text).map(|node| (node, Vec::new())),
    };
    let (node, twice) = node.map_err(|(line, why)| bad(line.max(1), why, ""))?;
    if let Some((line, why)) = twice.first().filter(|_| form == Form::Json) {
        return Err(bad(*line, why.clone(), "one of them: DeepSpeed refuses keys that stand twice"));
    }
    match node.value {
        Value::Map(_) => {
            let document = Document::new(node, context.file);
            for (line, why) in twice {
                let place = Place { file: context.file.to_owned(), line };
                document.note(
                    Finding::warning("flag-twice", why).at(&place).expected("the last one counts; remove the other"),
                );
            }
            Ok(document)
        }
        Value::Scalar(..) | Value::List(_) => {
            Err(bad(1, "the file is no table of settings".into(), "keys and values at its top"))
        }
    }
}

/// A file, and the keys that stand twice in it.
type Read = (Node, Vec<(u32, String)>);

fn yaml(text: &str) -> Result<Read, (u32, String)> {
    let mut reader = Yaml { twice: Vec::new(), parser: Parser::new_from_str(text), anchors: BTreeMap::new(), nodes: 0 };
    loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamEnd => return Err((1, "the file is empty".into())),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => {
                let node = reader.node(event, line, 0)?;
                return Ok((node, reader.twice));
            }
        }
    }
}

struct Yaml<'a> {
    /// Keys that stand twice: the last counts.
    twice: Vec<(u32, String)>,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

/// Deepest nesting.
const DEEPEST: u32 = 64;

impl<'a> Yaml<'a> {
    fn next(&mut self) -> Result<(Event<'a>, u32), (u32, String)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line() as u32)),
            Some(Err(error)) => Err((error.marker().line() as u32, error.info().to_owned())),
            None => Err((1, "the file ends too early".into())),
        }
    }

    fn node(&mut self, event: Event<'a>, line: u32, depth: u32) -> Result<Node, (u32, String)> {
        self.nodes += 1;
        if depth > DEEPEST || self.nodes > MOST_NODES {
            return Err((line, "more values, or deeper ones, than any settings have".into()));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, _) => {
                (anchor, Value::Scalar(text.into_owned(), !matches!(style, ScalarStyle::Plain)))
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, line) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    items.push(self.node(event, line, depth + 1)?);
                }
                (anchor, Value::List(items))
            }
            Event::MappingStart(anchor, _) => (anchor, Value::Map(self.map(depth)?)),
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or((line, "an alias of nothing".to_owned()))?;
                self.nodes += size(&node);
                return Ok(Node { line, ..node });
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err((line, "a value is missing".into())),
        };
        let node = Node { value, line };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn map(&mut self, depth: u32) -> Result<Entries, (u32, String)> {
        let mut entries: Vec<(String, u32, Node)> = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let Value::Scalar(key, _) = self.node(event, line, depth + 1)?.value else {
                return Err((line, "a key that is no word".into()));
            };
            let (event, at) = self.next()?;
            let node = self.node(event, at, depth + 1)?;
            if key == "<<" {
                if let Value::Map(merged) = node.value {
                    entries.extend(merged);
                }
                continue;
            }
            if let Some((_, before, _)) = entries.iter().find(|(known, ..)| *known == key) {
                self.twice.push((line, format!("`{key}` stands here and on line {before}")));
                entries.retain(|(known, ..)| *known != key);
            }
            entries.push((key, line, node));
        }
    }
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar(..) => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|(_, _, node)| size(node)).sum::<usize>(),
    }
}

fn toml(text: &str) -> Result<Node, (u32, String)> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() as u32 + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        (line, error.message().to_owned())
    })?;
    Ok(Node { value: toml_table(table.get_ref(), &line_of), line: 1 })
}

fn toml_table(table: &DeTable, line_of: &dyn Fn(usize) -> u32) -> Value {
    let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<str>>, &toml::Spanned<DeValue>)| {
        let line = line_of(key.span().start);
        (key.get_ref().to_string(), line, Node { value: toml_value(value.get_ref(), line_of), line })
    };
    Value::Map(table.iter().map(entry).collect())
}

fn toml_value(value: &DeValue, line_of: &dyn Fn(usize) -> u32) -> Value {
    match value {
        DeValue::String(text) => Value::Scalar(text.to_string(), true),
        DeValue::Integer(number) => Value::Scalar(number.to_string(), false),
        DeValue::Float(number) => Value::Scalar(number.to_string(), false),
        DeValue::Boolean(yes) => Value::Scalar(yes.to_string(), false),
        DeValue::Datetime(time) => Value::Scalar(time.to_string(), false),
        DeValue::Array(items) => {
            let item = |item: &toml::Spanned<DeValue>| Node {
                value: toml_value(item.get_ref(), line_of),
                line: line_of(item.span().start),
            };
            Value::List(items.iter().map(item).collect())
        }
        DeValue::Table(table) => toml_table(table, line_of),
    }
}

/// A file's settings, by dotted path.
pub struct Document {
    root: Node,
    file: String,
    used: RefCell<BTreeSet<String>>,
    /// What is odd about it.
    pub findings: RefCell<Vec<Finding>>,
}

impl Document {
    /// Settings to read from.
    pub fn new(root: Node, file: &str) -> Self {
        Self { root, file: file.to_owned(), used: RefCell::default(), findings: RefCell::default() }
    }

    /// Puts a value in, over what is there: an override of the command line.
    pub fn put(&mut self, path: &str, value: &str, line: u32) {
        let mut node = &mut self.root;
        for key in path.split('.') {
            if !matches!(node.value, Value::Map(_)) {
                node.value = Value::Map(Vec::new());
            }
            let Value::Map(entries) = &mut node.value else { return };
            let at = entries.iter().position(|(known, ..)| known == key).unwrap_or_else(|| {
                entries.push((key.to_owned(), line, Node { value: Value::Scalar(String::new(), false), line }));
                entries.len() - 1
            });
            entries[at].1 = line;
            node = &mut entries[at].2;
        }
        *node = Node { value: Value::Scalar(value.to_owned(), false), line };
    }

    fn find(&self, path: &str) -> Option<(&Node, u32)> {
        let (mut node, mut line) = (&self.root, 1);
        for key in path.split('.') {
            (node, line) = match &node.value {
                Value::Map(entries) => {
                    let (_, at, inner) = entries.iter().find(|(known, ..)| known == key)?;
                    (inner, *at)
                }
                Value::List(items) => {
                    let inner = items.get(key.parse::<usize>().ok()?)?;
                    (inner, inner.line)
                }
                Value::Scalar(..) => return None,
            };
        }
        Some((node, line))
    }

    /// Where a key stands.
    pub fn place(&self, path: &str) -> Option<Place> {
        self.find(path).map(|(_, line)| Place { file: self.file.clone(), line })
    }

    /// Whether a key stands there, even with nothing.
    pub fn has(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The keys below a path.
    pub fn keys(&self, path: &str) -> Vec<String> {
        let node = if path.is_empty() { Some(&self.root) } else { self.find(path).map(|(node, _)| node) };
        match node.map(|node| &node.value) {
            Some(Value::Map(entries)) => {
                entries.iter().filter(|(key, ..)| key != CALLED).map(|(key, ..)| key.clone()).collect()
            }
            Some(Value::Scalar(..) | Value::List(_)) | None => Vec::new(),
        }
    }

    /// How many values the list of a key has, or the list that the call of a key begins with.
    pub fn count(&self, path: &str) -> Option<u32> {
        self.used.borrow_mut().insert(path.to_owned());
        match &self.find(path)?.0.value {
            Value::List(items) => Some(items.len() as u32),
            Value::Map(_) => self.count(&format!("{path}.0")),
            Value::Scalar(..) => None,
        }
    }

    /// The text of a key; nothing where it is null or a table.
    pub fn word(&self, path: &str) -> Option<String> {
        let (node, _) = self.find(path)?;
        self.used.borrow_mut().insert(path.to_owned());
        match &node.value {
            Value::Scalar(text, false) if matches!(text.as_str(), "" | "null" | "~" | "Null" | "NULL" | "None") => None,
            Value::Scalar(text, _) => Some(text.clone()),
            Value::Map(_) | Value::List(_) => {
                self.wrong(path, "a table or a list", "a single value");
                None
            }
        }
    }

    /// The texts of a list, or of one word.
    pub fn words(&self, path: &str) -> Vec<String> {
        self.used.borrow_mut().insert(path.to_owned());
        match self.find(path).map(|(node, _)| &node.value) {
            Some(Value::List(items)) => items
                .iter()
                .filter_map(|item| if let Value::Scalar(text, _) = &item.value { Some(text.clone()) } else { None })
                .collect(),
            Some(Value::Scalar(..)) => self.word(path).into_iter().collect(),
            Some(Value::Map(_)) | None => Vec::new(),
        }
    }

    fn read<T>(&self, path: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let word = self.word(path)?;
        if word == "auto" {
            return None;
        }
        let value = parse(word.trim());
        if value.is_none() {
            self.wrong(path, &word, expected);
        }
        value
    }

    /// A whole number; `auto` is none.
    pub fn number(&self, path: &str) -> Option<u32> {
        self.read(path, "a whole number", |word| {
            word.replace('_', "").parse().ok().or_else(|| {
                word.parse::<f64>()
                    .ok()
                    .filter(|x| x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(x))
                    .map(|x| x as u32)
            })
        })
    }

    /// A whole number above 0.
    pub fn size(&self, path: &str) -> Option<u32> {
        let number = self.number(path)?;
        if number == 0 {
            self.wrong(path, "0", "a whole number above 0");
            return None;
        }
        Some(number)
    }

    /// A degree, where −1 and nothing mean "what is left".
    pub fn degree(&self, path: &str) -> Option<u32> {
        if self.word(path).is_some_and(|word| word.trim() == "-1") {
            return None;
        }
        self.size(path)
    }

    /// A number.
    pub fn real(&self, path: &str) -> Option<f64> {
        self.read(path, "a number", |word| word.parse::<f64>().ok().filter(|x| x.is_finite()))
    }

    /// A truth value.
    pub fn switch(&self, path: &str) -> Option<bool> {
        self.read(path, "true or false", |word| match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        })
    }

    /// Keeps a finding.
    pub fn note(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// Says that a value is not what it must be.
    pub fn wrong(&self, path: &str, read: &str, expected: &str) {
        let place = self.place(path);
        self.note(
            Finding::error("wrong-value", format!("`{path}`: `{read}`"))
                .at_maybe(place.as_ref())
                .expected(format!("{expected} expected")),
        );
    }

    /// Every key with a value that nobody read, with its place.
    pub fn unread(&self) -> Vec<(String, Place)> {
        let mut found = Vec::new();
        self.walk(&self.root, String::new(), 1, &mut found);
        found
    }

    fn walk(&self, node: &Node, path: String, line: u32, found: &mut Vec<(String, Place)>) {
        if self.used.borrow().contains(&path) {
            return;
        }
        match &node.value {
            Value::Map(entries) if !entries.is_empty() => {
                for (key, line, inner) in entries.iter().filter(|(key, ..)| key != CALLED) {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.walk(inner, below, *line, found);
                }
            }
            Value::Map(_) | Value::List(_) | Value::Scalar(..) => {
                found.push((path, Place { file: self.file.clone(), line }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, form: Form) -> Result<Document, ImportError> {
        parse(text, form, &Context::alone("f"))
    }

    #[test]
    fn three_forms_one_tree() {
        let texts = [
            ("{\n \"a\": {\"b\": 4, \"c\": \"auto\"},\n\t\"d\": [1, 2]\n}", Form::Json),
            ("d = [1, 2]\n[a]\nb = 4\nc = \"auto\"\n", Form::Toml),
            ("# x\na:\n  b: 4\n  c: auto\nd: [1, 2]\n", Form::Yaml),
        ];
        for (text, form) in texts {
            let document = read(text, form).unwrap();
            assert_eq!((document.number("a.b"), document.number("a.c"), document.number("a.x")), (Some(4), None, None));
            assert_eq!(document.words("d"), ["1", "2"]);
            assert_eq!(document.place("a.b").unwrap().line, if form == Form::Json { 2 } else { 3 });
            assert!(document.unread().is_empty() && document.findings.borrow().is_empty());
        }
    }

    #[test]
    fn malformed_files_name_their_line() {
        for (text, form, line) in [
            ("{\"a\": 1,\n \"b\": }", Form::Json, 2),
            ("{\"a\": 1,\n \"a\": 2}", Form::Json, 2),
            ("[a]\nb = = 3", Form::Toml, 2),
            ("a = 1\na = 2", Form::Toml, 2),
            ("a: 1\nb: [1, 2\nc: 3", Form::Yaml, 2),
            ("[1, 2]", Form::Json, 1),
            ("", Form::Yaml, 1),
            ("a: *nothing", Form::Yaml, 1),
        ] {
            let error = read(text, form).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.line >= line, "{text}: {error}");
        }
        let document = read("a: x\nb: 1", Form::Yaml).unwrap();
        assert_eq!((document.number("a"), document.switch("b")), (None, Some(true)));
        assert_eq!(document.findings.borrow().len(), 1);
        let twice = read("a: 1\na: 2", Form::Yaml).unwrap();
        assert_eq!((twice.number("a"), twice.findings.borrow().len()), (Some(2), 1));
    }
}
