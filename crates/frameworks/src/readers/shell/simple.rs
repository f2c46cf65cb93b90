//! One simple command: its words, its output, and its effect on the script.

use super::assign::{ArrayKind, assignment};
use super::grammar::{HereDocument, Redirect};
use super::run::{DEEPEST, Flow, Shell, Status, Variable};
use super::syntax::is_name;
use super::text::Text;
use crate::import::finding::Finding;

/// Text that `echo` prints: its arguments, with blanks between them and a line end behind.
fn echoed(words: &[Text]) -> Text {
    let mut text = Text::default();
    for (at, word) in words.iter().skip(1).filter(|word| word.plain() != "-e").enumerate() {
        if at > 0 {
            text.0.extend(Text::on(" ", 1).0);
        }
        text.0.extend(word.0.iter().copied());
    }
    text.0.extend(Text::on("\n", 1).0);
    text
}

impl Shell<'_> {
    /// Follows a simple command: assignments, then the expanded words under their name. `heredoc` is the number of its
    /// here-document.
    pub(super) fn simple(&mut self, raw: &[Text], redirects: &[Redirect], heredoc: Option<usize>, line: u32) -> Flow {
        let assignments = raw.iter().take_while(|word| assignment(word).is_some()).count();
        for word in &raw[..assignments] {
            self.assign(word, ArrayKind::Indexed);
        }
        let Some(first) = raw.get(assignments) else { return Flow::On(Status::Yes) };
        if matches!(first.plain().as_str(), "export" | "declare" | "local" | "readonly" | "typeset") {
            let is_associative = raw.iter().any(|word| word.plain() == "-A");
            let kind = if is_associative { ArrayKind::Associative } else { ArrayKind::Indexed };
            for word in &raw[assignments + 1..] {
                self.assign(word, kind);
            }
            return Flow::On(Status::Yes);
        }
        let words: Vec<Text> = raw[assignments..].iter().flat_map(|word| self.fields(word)).collect();
        for word in &words {
            if self.sourced > 0 || word.is_sourced() {
                self.hide(word);
            }
        }
        let Some(name) = words.first().map(Text::plain) else { return Flow::On(Status::Yes) };
        let document = heredoc
            .and_then(|id| self.heredocs.get(id).cloned())
            .map(|HereDocument { text, expands }| if expands { self.double(&text) } else { text });
        self.record_write(&name, &words, redirects, document.as_ref());
        let before = self.own.len();
        for assigned in raw[..assignments].iter().filter_map(assignment) {
            let value = self.scalar(&assigned.name);
            self.own.extend(value.map(|value| (assigned.name, value)));
        }
        let flow = self.call(&name, &words, document, line);
        self.own.truncate(before);
        flow
    }

    /// Records the text that a command writes to a file.
    fn record_write(&mut self, name: &str, words: &[Text], redirects: &[Redirect], document: Option<&Text>) {
        let to = redirects.iter().find(|redirect| matches!(redirect.operator.as_str(), ">" | ">>" | ">|"));
        let (target, text) = match (name, to, document) {
            ("cat", Some(to), Some(text)) => (self.expand_unsplit(&to.target), text.clone()),
            ("tee", _, Some(text)) if words.len() > 1 => (words[1].clone(), text.clone()),
            ("echo", Some(to), None) => (self.expand_unsplit(&to.target), echoed(words)),
            _ => return,
        };
        let append = to.is_some_and(|to| to.operator == ">>");
        let file = self.ran.written.entry(target.plain()).or_default();
        if !append {
            file.0.clear();
        }
        file.0.extend(text.0);
    }

    /// Runs a builtin or a function of the script, or records the call of a program; `document` is the text of a here-document.
    fn call(&mut self, name: &str, words: &[Text], document: Option<Text>, line: u32) -> Flow {
        match name {
            "[" | "test" => {
                return Flow::On(self.test(&words[1..words.len() - usize::from(name == "[" && words.len() > 1)]));
            }
            "false" => return Flow::On(Status::No),
            "break" => return Flow::Break,
            "continue" => return Flow::Continue,
            "return" => return Flow::Return,
            "exit" => {
                let finding =
                    Finding::warning("script-ends", "the script ends here with what is known of its variables")
                        .at(&self.place(line))
                        .expected("it is read on as if it did not; give --var NAME=VALUE or its arguments after --");
                self.find(finding);
            }
            "shift" => {
                let n = words.get(1).and_then(|n| n.plain().parse().ok()).unwrap_or(1).min(self.arguments.len());
                self.arguments.drain(..n);
            }
            "set" if words.get(1).is_some_and(|word| word.plain() == "--") => self.arguments = words[2..].to_vec(),
            "unset" => words[1..].iter().for_each(|word| {
                self.variables.remove(&word.plain());
            }),
            "read" => {
                let name = words.last().map(Text::plain).unwrap_or_default();
                if let (Some(text), true) = (document, is_name(&name)) {
                    self.set(&name, Variable::One(text));
                }
            }
            "printf" if words.len() > 3 && words[1].plain() == "-v" => {
                if let Some(text) = super::substitute::printed(&words[3..], line) {
                    self.set(&words[2].plain(), Variable::One(text));
                }
            }
            "let" => words[1..].iter().for_each(|word| drop(self.counted(word))),
            ":" | "true" | "echo" | "printf" | "cd" | "mkdir" | "set" | "trap" | "wait" | "sleep" | "ulimit"
            | "module" | "rm" | "cp" | "mv" | "ls" | "pwd" | "chmod" | "touch" | "tee" | "cat" | "date" | "shopt"
            | "which" | "hostname" | "ln" => {}
            "command" | "type" | "grep" | "nvidia-smi" | "pgrep" => return Flow::On(Status::Unknown),
            "source" | "." => self.source(words, line),
            "eval" => {
                let mut text = Text::default();
                for word in &words[1..] {
                    text.0.extend(word.clone().quoted(false).0);
                    text.0.extend(Text::on(" ", line).0);
                }
                return self.inner(&text, line);
            }
            _ if self.functions.contains_key(name) => return self.function(name, &words[1..]),
            _ => return self.program(words, line),
        }
        Flow::On(Status::Yes)
    }

    /// Calls a function of the script, whose exit status is taken for success.
    fn function(&mut self, name: &str, arguments: &[Text]) -> Flow {
        let Some(body) = self.functions.get(name).cloned() else { return Flow::On(Status::Unknown) };
        if self.depth >= DEEPEST {
            return Flow::On(Status::Unknown);
        }
        self.depth += 1;
        let outer = std::mem::replace(&mut self.arguments, arguments.to_vec());
        let _ = self.list(&body);
        self.arguments = outer;
        self.depth -= 1;
        Flow::On(Status::Yes)
    }
}
