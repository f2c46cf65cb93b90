//! A tree of values with their lines, whatever form the file had.

/// Key of the callee in the table of a Python call.
pub(crate) const CALLED: &str = "()";

/// A value of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
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
    pub value: NodeValue,
    /// The line, from 1.
    pub line: u32,
}
