//! Other scripts and programs that a script calls.

use super::grammar::SyntaxError;
use super::run::{Called, DEEPEST, Flow, Shell, Status};
use super::text::{Text, readable};
use crate::import::finding::Finding;

impl Shell<'_> {
    pub(super) fn source(&mut self, words: &[Text], line: u32) {
        let name = words.get(1).map(Text::plain).unwrap_or_default();
        // A folder that only the machine knows is most often the script's own.
        let beside = super::text::after_unresolved(&name).trim_start_matches('/').to_owned();
        let text = (self.inputs.files)(&name).or_else(|| (self.inputs.files)(&beside));
        let read = text.filter(|_| self.depth < DEEPEST).map(|text| self.read(&Text::on_lines_of(&text, line)));
        match read {
            Some(Ok(list)) => {
                self.depth += 1;
                self.sourced += 1;
                let _ = self.list(&list);
                self.sourced -= 1;
                self.depth -= 1;
            }
            Some(Err(error)) => {
                let finding =
                    Finding::warning("unread-file", format!("`{}` cannot be read: {}", readable(&name), error.why))
                        .at(&self.place(line))
                        .expected("what it sets is not known");
                self.find(finding);
            }
            None => {
                let finding = Finding::note("unread-file", format!("`{}` was not found", readable(&name)))
                    .at(&self.place(line))
                    .expected("what it sets is not known");
                self.find(finding);
            }
        }
    }

    /// A script inside of a word: `eval`, `bash -c`.
    pub(super) fn inner(&mut self, text: &Text, line: u32) -> Flow {
        if self.depth >= DEEPEST {
            return Flow::On(Status::Unknown);
        }
        match self.read(text) {
            Ok(list) => {
                self.depth += 1;
                let flow = self.list(&list);
                self.depth -= 1;
                flow
            }
            Err(SyntaxError { why, .. }) => {
                let finding =
                    Finding::warning("unread-file", format!("the command cannot be read: {why}")).at(&self.place(line));
                self.find(finding);
                Flow::On(Status::Unknown)
            }
        }
    }

    /// A command that is no part of the shell.
    pub(super) fn program(&mut self, words: &[Text], line: u32) -> Flow {
        let name = words[0].plain();
        if name.starts_with("--") {
            let flag =
                if self.sourced > 0 { "a flag of a sourced file".to_owned() } else { format!("`{}`", readable(&name)) };
            let finding = Finding::error("broken-continuation", format!("{flag} stands where a command should be"))
                .at(&self.place(words[0].line().unwrap_or(line)))
                .expected("the line before must end in `\\`, with nothing after it");
            self.find(finding);
            return Flow::On(Status::No);
        }
        let is_shell = |word: &Text| matches!(word.plain().rsplit('/').next(), Some("bash" | "sh" | "zsh"));
        if let Some(at) = words.iter().position(is_shell) {
            let rest = &words[at + 1..];
            let is_inline = |word: &Text| word.plain().starts_with('-') && word.plain().ends_with('c');
            let outer = std::mem::replace(&mut self.around, words[..at].to_vec());
            let flow = if let Some(text) = rest.iter().position(is_inline).and_then(|c| rest.get(c + 1)) {
                self.inner(&text.clone().quoted(false), line)
            } else {
                self.script(rest, line)
            };
            self.around = outer;
            return flow;
        }
        self.ran.called.push(Called {
            words: words.to_vec(),
            around: self.around.clone(),
            own: self.own.clone(),
            line,
        });
        Flow::On(Status::Yes)
    }

    /// Another script, called with arguments.
    fn script(&mut self, words: &[Text], line: u32) -> Flow {
        let Some(at) = words.iter().position(|word| !word.plain().starts_with('-')) else {
            return Flow::On(Status::Unknown);
        };
        let text = (self.inputs.files)(&words[at].plain());
        let Some(text) = text.filter(|_| self.depth < DEEPEST) else { return Flow::On(Status::Yes) };
        let outer = std::mem::replace(&mut self.arguments, words[at + 1..].to_vec());
        let flow = self.inner(&Text::on_lines_of(&text, line), line);
        self.arguments = outer;
        flow
    }
}
