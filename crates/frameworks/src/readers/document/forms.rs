//! YAML, of which JSON is a part, and TOML as trees with their lines.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use toml::de::{DeTable, DeValue};

use super::tree::{Entries, Node, NodeValue, TableEntry};

/// Most values of a file, so that aliases of aliases do not exhaust memory.
const MOST_NODES: usize = 100_000;

/// A file, and the keys that it has twice.
pub(super) type Read = (Node, Vec<(u32, String)>);

/// First document of a YAML text.
///
/// # Errors
/// The line at which the text does not parse, and the reason.
pub(super) fn yaml(text: &str) -> Result<Read, (u32, String)> {
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

/// Reader of one YAML document.
struct Yaml<'a> {
    /// Keys that occur twice: the last counts.
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
                (anchor, NodeValue::Scalar { text: text.into_owned(), quoted: !matches!(style, ScalarStyle::Plain) })
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
                (anchor, NodeValue::List(items))
            }
            Event::MappingStart(anchor, _) => (anchor, NodeValue::Map(self.map(depth)?)),
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

    /// Entries of a mapping up to its end; those of `<<` are merged into it.
    fn map(&mut self, depth: u32) -> Result<Entries, (u32, String)> {
        let mut entries = Entries::new();
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let NodeValue::Scalar { text: key, .. } = self.node(event, line, depth + 1)?.value else {
                return Err((line, "a key that is no word".into()));
            };
            let (event, at) = self.next()?;
            let node = self.node(event, at, depth + 1)?;
            if key == "<<" {
                if let NodeValue::Map(merged) = node.value {
                    entries.extend(merged);
                }
                continue;
            }
            if let Some(before) = entries.iter().find(|entry| entry.key == key).map(|entry| entry.line) {
                self.twice.push((line, format!("`{key}` stands here and on line {before}")));
                entries.retain(|entry| entry.key != key);
            }
            entries.push(TableEntry { key, line, value: node });
        }
    }
}

/// Number of values in a value, with itself.
fn size(node: &Node) -> usize {
    match &node.value {
        NodeValue::Scalar { .. } => 1,
        NodeValue::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        NodeValue::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.value)).sum::<usize>(),
    }
}

/// Table of a TOML text.
///
/// # Errors
/// The line at which the text does not parse, and the reason.
pub(super) fn toml(text: &str) -> Result<Node, (u32, String)> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() as u32 + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        (line, error.message().to_owned())
    })?;
    if table.get_ref().is_empty() {
        return Err((1, "the file is empty".into()));
    }
    Ok(Node { value: toml_table(table.get_ref(), &line_of), line: 1 })
}

fn toml_table(table: &DeTable, line_of: &dyn Fn(usize) -> u32) -> NodeValue {
    let entry = |(key, value): (&toml::Spanned<std::borrow::Cow<str>>, &toml::Spanned<DeValue>)| {
        let line = line_of(key.span().start);
        TableEntry::new(key.get_ref().as_ref(), line, Node { value: toml_value(value.get_ref(), line_of), line })
    };
    NodeValue::Map(table.iter().map(entry).collect())
}

fn toml_value(value: &DeValue, line_of: &dyn Fn(usize) -> u32) -> NodeValue {
    match value {
        DeValue::String(text) => NodeValue::Scalar { text: text.to_string(), quoted: true },
        DeValue::Integer(number) => NodeValue::Scalar { text: number.to_string(), quoted: false },
        DeValue::Float(number) => NodeValue::Scalar { text: number.to_string(), quoted: false },
        DeValue::Boolean(yes) => NodeValue::Scalar { text: yes.to_string(), quoted: false },
        DeValue::Datetime(time) => NodeValue::Scalar { text: time.to_string(), quoted: false },
        DeValue::Array(items) => {
            let item = |item: &toml::Spanned<DeValue>| Node {
                value: toml_value(item.get_ref(), line_of),
                line: line_of(item.span().start),
            };
            NodeValue::List(items.iter().map(item).collect())
        }
        DeValue::Table(table) => toml_table(table, line_of),
    }
}
