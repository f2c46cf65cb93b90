//! Syntax tree of a script.

use super::text::Text;

/// Commands in order, each with the operator that joins it to the one before.
pub type List = Vec<(Join, CommandPipeline)>;

/// Keyword of a loop with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// It goes on as long as the condition holds.
    While,
    /// It goes on until the condition holds.
    Until,
}

/// Operator before a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// A line end, `;` or `&`.
    Then,
    /// `&&`.
    And,
    /// `||`.
    Or,
}

/// Commands joined by `|`.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandPipeline {
    /// `!` before it.
    pub negated: bool,
    /// The commands.
    pub commands: Vec<Command>,
}

/// A redirection: `>`, `>>`, `<`, `<<<`; and its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Redirect {
    /// The operator.
    pub operator: String,
    /// The file, as written.
    pub target: Text,
}

/// Command of a shell script.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Words, unexpanded; assignments before the name are words too.
    Simple {
        /// The words.
        words: Vec<Text>,
        /// Redirections.
        redirects: Vec<Redirect>,
        /// The here-document: its number.
        heredoc: Option<usize>,
        /// First line.
        line: u32,
    },
    /// `if … then … elif … else … fi`.
    If {
        /// Conditions and their branches.
        arms: Vec<(List, List)>,
        /// The last `else`.
        otherwise: List,
        /// First line.
        line: u32,
    },
    /// `case … in … esac`.
    Case {
        /// Word that is matched.
        word: Text,
        /// Patterns and their branches.
        arms: Vec<(Vec<Text>, List)>,
    },
    /// `for name in words; do … done`.
    For {
        /// The variable.
        name: String,
        /// Values that it takes.
        words: Vec<Text>,
        /// The body.
        body: List,
    },
    /// `while` or `until … do … done`.
    While {
        /// Its keyword.
        kind: LoopKind,
        /// The condition.
        condition: List,
        /// The body.
        body: List,
        /// First line.
        line: u32,
    },
    /// `name() { … }`.
    Function {
        /// Its name.
        name: String,
        /// The body.
        body: List,
    },
    /// `{ … }` or `( … )`.
    Group(List),
    /// `[[ … ]]`.
    Test(Vec<Text>),
    /// `(( … ))`.
    Arithmetic(Text),
}

/// Body of a here-document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HereDocument {
    /// The text.
    pub text: Text,
    /// Whether variables are expanded in it.
    pub expands: bool,
}

/// Syntax tree of a script, with its here-documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Commands of the body.
    pub list: List,
    /// Bodies of here-documents, by number.
    pub heredocs: Vec<HereDocument>,
}

/// Syntax error of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The line.
    pub line: u32,
    /// Reason.
    pub why: String,
}
