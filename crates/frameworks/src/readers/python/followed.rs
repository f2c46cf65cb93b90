//! A program whose functions are called from outside, with arguments that its launcher gives.

use std::rc::Rc;

use super::documented;
use super::functions::Function;
use super::holes::unknowns;
use super::library::Library;
use super::modules::{MAIN, Unread};
use super::names::Names;
use super::program::{Call, Frame, Program};
use super::tokens::Token;
use crate::import::context::{Context, ImportError};
use crate::readers::document::{Document, Entries, Node, NodeValue, TableEntry};

/// Name of a function with its positional parameters.
pub(crate) struct FunctionSignature {
    pub name: String,
    pub positional: Vec<String>,
}

/// A program that is followed from several of its functions.
pub(crate) struct Followed<'c> {
    program: Program<'c>,
    context: &'c Context<'c>,
    /// Values of its names, with those that are set where it is started.
    names: Names,
    unread: Unread,
}

impl<'c> Followed<'c> {
    /// A program and its names at its end.
    ///
    /// # Errors
    /// The line that is no Python.
    pub fn new(text: &str, context: &'c Context<'c>, library: &'c dyn Library) -> Result<Self, ImportError> {
        let text = text.trim_start_matches('\u{feff}');
        let program = Program::new(text, context, library).map_err(|(line, why)| ImportError {
            file: context.file.into(),
            line,
            why,
            expected: String::new(),
        })?;
        let main = program.modules.module(MAIN);
        // What stands outside of functions is read where they use it.
        let (names, _) = program.top_level(&main, &mut Vec::new());
        let names = program.of_main(&main, &names, &mut Vec::new());
        Ok(Self { program, context, names, unread: Vec::new() })
    }

    /// Functions at its top whose annotation says that they return this class.
    pub fn returning(&self, class: &str) -> Vec<FunctionSignature> {
        let main = self.program.modules.module(MAIN);
        let gives = |gives: &str| gives.rsplit('.').next() == Some(class);
        let found = main.functions.iter().filter(|function| gives(&function.gives));
        let named = |name: &&str| (*name).to_owned();
        let signature = |function: &Rc<Function>| FunctionSignature {
            name: function.name.clone(),
            positional: function.parameters().by_place.iter().map(named).collect(),
        };
        found.map(signature).collect()
    }

    /// Values that calls of `partial` have under names: the function of each, and its arguments by name.
    pub fn partials(&self) -> Vec<(String, Entries)> {
        self.names.partials()
    }

    /// Result of a function with these arguments.
    pub fn call(&mut self, name: &str, arguments: &Entries) -> Option<Node> {
        let mut lines = Vec::new();
        let given = self.program.called(Call { name, arguments, line: 1 }, &self.names, Frame::of(MAIN), &mut lines);
        self.unread.append(&mut lines);
        given.map(|(node, _)| node)
    }

    /// The object that a function takes first, after what the function sets in it.
    pub fn object_after_call(&mut self, name: &str, object: Node) -> Option<Node> {
        let function = self.program.modules.function(MAIN, name)?;
        let parameter = (*function.parameters().by_place.first()?).to_owned();
        let arguments = vec![TableEntry::new("0", object.line, object)];
        let mut lines = Vec::new();
        let (_, after) = self.program.call(&function, &arguments, &self.names, Frame::of(MAIN), &mut lines);
        self.unread.append(&mut lines);
        after.value(&parameter)
    }

    /// Arguments of the calls of a method anywhere in the file, as far as they are known:
    /// `parser.add_argument("--seed", default=1)`.
    pub fn calls_of(&self, method: &str) -> Vec<Entries> {
        let main = self.program.modules.module(MAIN);
        let mut found = Vec::new();
        for line in &main.lines {
            let Some(at) = (1..line.words.len()).find(|at| {
                matches!(&line.words[*at].0, Token::Name(name) if name == method)
                    && matches!(line.words.get(at + 1), Some((Token::Sign("("), _)))
            }) else {
                continue;
            };
            found.push(self.program.arguments_of(&line.words[at + 2..], &self.names));
        }
        found
    }

    /// Paths of what is not known in a configuration, with their lines, and the configuration with a finding for each line that was
    /// not read.
    ///
    /// # Errors
    /// A value that is no table.
    pub fn document(self, root: Node) -> Result<(Document, Vec<(String, u32)>), ImportError> {
        debug_assert!(matches!(root.value, NodeValue::Map(_)), "what a class made");
        let open = unknowns(&root);
        let document = documented(root, &self.program, self.unread, None, self.context)?;
        Ok((document, open))
    }
}
