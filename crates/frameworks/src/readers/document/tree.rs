//! A tree of values with their lines, whatever form the file had.

/// Key of the callee in the table of a Python call.
pub(crate) const CALLED: &str = "()";

/// A value of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// A text, number or truth value.
    Scalar {
        /// The text.
        text: String,
        /// Whether it was in quotes.
        quoted: bool,
    },
    /// A table.
    Map(Entries),
    /// A list.
    List(Vec<Node>),
}

/// Entries of a table, in the order of the file.
pub type Entries = Vec<TableEntry>;

/// Key of a table with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct TableEntry {
    /// The key.
    pub key: String,
    /// The line of the key, from 1.
    pub line: u32,
    /// The value.
    pub value: Node,
}

impl TableEntry {
    /// Entry of a key on a line.
    pub fn new(key: impl Into<String>, line: u32, value: Node) -> Self {
        Self { key: key.into(), line, value }
    }
}

/// Value of a key among the entries of a table.
pub fn value_of<'e>(entries: &'e [TableEntry], key: &str) -> Option<&'e Node> {
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}

/// A value and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: NodeValue,
    /// The line, from 1.
    pub line: u32,
}

impl Node {
    /// Text, number or truth value without quotes.
    pub fn bare(text: impl Into<String>, line: u32) -> Self {
        Self { value: NodeValue::Scalar { text: text.into(), quoted: false }, line }
    }

    /// Text in quotes.
    pub fn quoted(text: impl Into<String>, line: u32) -> Self {
        Self { value: NodeValue::Scalar { text: text.into(), quoted: true }, line }
    }
}
