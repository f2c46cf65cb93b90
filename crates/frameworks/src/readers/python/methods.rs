//! Calls of methods on the results of calls and on texts.

use super::builtins::method_of;
use super::library::OBJECT;
use super::tokens::Token;
use super::value::Expression;
use crate::readers::document::{Entries, Node, TableEntry, value_of};

impl Expression<'_> {
    /// Name of the method that is called next, behind `.`.
    fn method(&self) -> Option<String> {
        match self.words {
            [(Token::Sign("."), _), (Token::Name(name), _), (Token::Sign("("), _), ..] => Some(name.clone()),
            _ => None,
        }
    }

    /// A value after the methods that are called on it: `"|".join(stages)`.
    pub fn methods(&mut self, object: Node) -> Option<Node> {
        let mut object = object;
        while let Some(method) = self.method() {
            self.skip(3);
            let entries = self.arguments();
            let line = object.line;
            object = self.result(&object, &method, &entries, line)?;
        }
        Some(object)
    }

    /// Result of a method: Python's own, or one of a class that the library knows.
    pub fn result(&mut self, object: &Node, method: &str, entries: &Entries, line: u32) -> Option<Node> {
        if let Some(result) = method_of(object, method, entries, line) {
            return Some(result);
        }
        let mut all: Entries = vec![TableEntry::new(OBJECT, line, object.clone())];
        all.extend(entries.iter().cloned());
        (self.functions)(&format!(".{method}"), &all).map(|(node, _)| node)
    }

    /// Methods of what a class made: `AutoBridge.from_hf_pretrained("…").to_megatron_provider(load_weights=False)`. Their names go
    /// to the name of the call, their arguments behind its own.
    pub fn methods_of_made(&mut self, called: &mut String, entries: &mut Entries) {
        while let Some(method) = self.method() {
            self.skip(3);
            *called = format!("{called}.{method}");
            let is_known = |entry: &TableEntry| value_of(entries, &entry.key).is_some();
            let more: Entries = self.arguments().into_iter().filter(|entry| !is_known(entry)).collect();
            entries.extend(more);
        }
    }
}
