//! JSON, TOML and YAML as one tree with line numbers. It records which keys are read, so that findings can name the others.

mod forms;
mod references;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::import::context::{Context, ImportError};
use crate::import::finding::{Finding, Place};

pub(crate) use tree::CALLED;
pub use tree::{Entries, Node, NodeValue, TableEntry, value_of};

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

/// Reads a file whose top is a table.
///
/// # Errors
/// The file does not parse, has a key twice, or its top is no table; with the line.
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
            forms::yaml(&text.replace('\t', " "))
        }
        Form::Yaml => forms::yaml(text),
        Form::Toml => forms::toml(text).map(|node| (node, Vec::new())),
    };
    let (node, twice) = node.map_err(|(line, why)| bad(line.max(1), why, ""))?;
    if let Some((line, why)) = twice.first().filter(|_| form == Form::Json) {
        return Err(bad(*line, why.clone(), "one of them: DeepSpeed refuses keys that stand twice"));
    }
    match node.value {
        NodeValue::Map(_) => {
            let document = Document::new(node, context.file);
            for (line, why) in twice {
                let place = Place { file: context.file.to_owned(), line };
                document.note(
                    Finding::warning("flag-twice", why).at(&place).expected("the last one counts; remove the other"),
                );
            }
            Ok(document)
        }
        NodeValue::Scalar { .. } | NodeValue::List(_) => {
            Err(bad(1, "the file is no table of settings".into(), "keys and values at its top"))
        }
    }
}

/// A file's settings, by dotted path.
pub struct Document {
    root: Node,
    file: String,
    used: RefCell<BTreeSet<String>>,
    /// Findings about settings that are unused or malformed.
    pub findings: RefCell<Vec<Finding>>,
}

impl Document {
    /// Settings to read from.
    pub fn new(root: Node, file: &str) -> Self {
        Self { root, file: file.to_owned(), used: RefCell::default(), findings: RefCell::default() }
    }

    /// No settings yet, of a file; `line` is where what sets them stands.
    pub fn empty(line: u32, file: &str) -> Self {
        Self::new(Node { value: NodeValue::Map(Vec::new()), line }, file)
    }

    /// Sets a value, as an override of the command line does.
    pub fn put(&mut self, path: &str, value: &str, line: u32) {
        let mut node = &mut self.root;
        for key in path.split('.') {
            if !matches!(node.value, NodeValue::Map(_)) {
                node.value = NodeValue::Map(Vec::new());
            }
            let NodeValue::Map(entries) = &mut node.value else { return };
            let at = entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
                entries.push(TableEntry::new(key, line, Node::bare("", line)));
                entries.len() - 1
            });
            entries[at].line = line;
            node = &mut entries[at].value;
        }
        *node = Node::bare(value, line);
    }

    /// Takes over the keys of another document that this one lacks at its top.
    pub fn join(&mut self, other: Self) {
        if let (NodeValue::Map(entries), NodeValue::Map(more)) = (&mut self.root.value, other.root.value) {
            let known: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
            entries.extend(more.into_iter().filter(|entry| !known.contains(&entry.key)));
        }
    }

    /// The table at a key as a document of its own; none where the value is no table.
    pub fn below(&self, path: &str) -> Option<Self> {
        let (node, _) = self.find(path)?;
        matches!(node.value, NodeValue::Map(_)).then(|| Self::new(node.clone(), &self.file))
    }

    /// Texts below a key, at any depth of its lists.
    pub fn leaves(&self, path: &str) -> Vec<String> {
        fn walk(node: &Node, found: &mut Vec<String>) {
            match &node.value {
                NodeValue::Scalar { text, .. } => found.push(text.clone()),
                NodeValue::List(items) => items.iter().for_each(|item| walk(item, found)),
                NodeValue::Map(_) => {}
            }
        }
        self.used.borrow_mut().insert(path.to_owned());
        let mut found = Vec::new();
        if let Some((node, _)) = self.find(path) {
            walk(node, &mut found);
        }
        found
    }

    fn find(&self, path: &str) -> Option<(&Node, u32)> {
        let (mut node, mut line) = (&self.root, 1);
        for key in path.split('.') {
            (node, line) = match &node.value {
                NodeValue::Map(entries) => {
                    let entry = entries.iter().find(|entry| entry.key == key)?;
                    (&entry.value, entry.line)
                }
                NodeValue::List(items) => {
                    let inner = items.get(key.parse::<usize>().ok()?)?;
                    (inner, inner.line)
                }
                NodeValue::Scalar { .. } => return None,
            };
        }
        Some((node, line))
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// File and line of a key.
    pub fn place(&self, path: &str) -> Option<Place> {
        self.find(path).map(|(_, line)| Place { file: self.file.clone(), line })
    }

    /// The first line of the file.
    pub fn start(&self) -> Place {
        Place { file: self.file.clone(), line: 1 }
    }

    /// Whether the file has a key, even without a value.
    pub fn has(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The keys below a path.
    pub fn keys(&self, path: &str) -> Vec<String> {
        let node = if path.is_empty() { Some(&self.root) } else { self.find(path).map(|(node, _)| node) };
        match node.map(|node| &node.value) {
            Some(NodeValue::Map(entries)) => {
                entries.iter().filter(|entry| entry.key != CALLED).map(|entry| entry.key.clone()).collect()
            }
            Some(NodeValue::Scalar { .. } | NodeValue::List(_)) | None => Vec::new(),
        }
    }

    /// Length of the list of a key, or of the list that the call of a key begins with.
    pub fn count(&self, path: &str) -> Option<u32> {
        self.used.borrow_mut().insert(path.to_owned());
        match &self.find(path)?.0.value {
            NodeValue::List(items) => Some(items.len() as u32),
            NodeValue::Map(_) => self.count(&format!("{path}.0")),
            NodeValue::Scalar { .. } => None,
        }
    }

    /// The text of a key; nothing where it is null or a table.
    pub fn word(&self, path: &str) -> Option<String> {
        let (node, _) = self.find(path)?;
        self.used.borrow_mut().insert(path.to_owned());
        match &node.value {
            NodeValue::Scalar { text, quoted: false }
                if matches!(text.as_str(), "" | "null" | "~" | "Null" | "NULL" | "None") =>
            {
                None
            }
            NodeValue::Scalar { text, .. } => Some(text.clone()),
            NodeValue::Map(_) | NodeValue::List(_) => {
                self.wrong(path, "a table or a list", "a single value");
                None
            }
        }
    }

    /// The text of a key, which stays unread.
    pub fn peek(&self, path: &str) -> Option<&str> {
        match &self.find(path)?.0.value {
            NodeValue::Scalar { text, .. } => Some(text),
            NodeValue::Map(_) | NodeValue::List(_) => None,
        }
    }

    /// The texts of a list, or of one word.
    pub fn words(&self, path: &str) -> Vec<String> {
        self.used.borrow_mut().insert(path.to_owned());
        match self.find(path).map(|(node, _)| &node.value) {
            Some(NodeValue::List(items)) => items
                .iter()
                .filter_map(
                    |item| if let NodeValue::Scalar { text, .. } = &item.value { Some(text.clone()) } else { None },
                )
                .collect(),
            Some(NodeValue::Scalar { .. }) => self.word(path).into_iter().collect(),
            Some(NodeValue::Map(_)) | None => Vec::new(),
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

    /// A degree; none where it is −1 or absent, which mean the remaining ranks.
    pub fn degree(&self, path: &str) -> Option<u32> {
        if self.word(path).is_some_and(|word| word.trim() == "-1") {
            return None;
        }
        self.size(path)
    }

    /// Finite number at a path; none where there is none.
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

    /// Adds a finding, unless it was added before.
    pub fn note(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }

    /// Records that the value of a key is malformed.
    pub fn wrong(&self, path: &str, read: &str, expected: &str) {
        let place = self.place(path);
        self.note(Finding::wrong_value(path, read, expected).at_maybe(place.as_ref()));
    }

    /// Every key with a value that was not read, with its place.
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
            NodeValue::Map(entries) if !entries.is_empty() => {
                for TableEntry { key, line, value: inner } in entries.iter().filter(|entry| entry.key != CALLED) {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.walk(inner, below, *line, found);
                }
            }
            NodeValue::Map(_) | NodeValue::List(_) | NodeValue::Scalar { .. } => {
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
