//! Conditions and loops.

use super::grammar::{Command, List, LoopKind};
use super::run::{Flow, Shell, Status, Variable};
use super::syntax::is_name;
use super::text::{Text, readable};
use crate::import::finding::Finding;

/// Most rounds of a loop.
const MOST_ROUNDS: u32 = 1000;

/// Whether a list of commands ends in `exit`.
fn ends_script(body: &List) -> bool {
    let last = body.last().and_then(|(_, pipeline)| pipeline.commands.last());
    matches!(last, Some(Command::Simple { words, .. }) if words.first().is_some_and(|word| word.plain() == "exit"))
}

impl Shell<'_> {
    pub(super) fn conditional(&mut self, arms: &[(List, List)], otherwise: &List, line: u32) -> Flow {
        for (condition, body) in arms {
            match self.condition(condition) {
                Status::Yes => return self.list(body),
                Status::No => {}
                Status::Unknown if ends_script(body) => {} // what is launched is launched because it does not hold
                Status::Unknown => {
                    let finding =
                        Finding::warning("unresolved-condition", "the condition of this `if` depends on the machine")
                            .at(&self.place(line))
                            .expected("it is taken as false; give --var NAME=VALUE where a variable decides it");
                    self.find(finding);
                }
            }
        }
        self.list(otherwise)
    }

    pub(super) fn case(&mut self, word: &Text, arms: &[(Vec<Text>, List)]) -> Flow {
        let line = word.line().unwrap_or(1);
        let Some(text) = self.known(word) else {
            let finding = Finding::warning(
                "unresolved-condition",
                format!("`case {}` depends on the machine", readable(&word.plain())),
            )
            .at(&self.place(line))
            .expected("no branch is taken; give --var NAME=VALUE");
            self.find(finding);
            return Flow::On(Status::Unknown);
        };
        for (patterns, body) in arms {
            for pattern in patterns {
                let pattern = self.expand_unsplit(pattern).plain();
                if super::pattern::matches(&text, &pattern) {
                    return self.list(body);
                }
            }
        }
        Flow::On(Status::Yes)
    }

    pub(super) fn for_loop(&mut self, name: &str, words: &[Text], body: &List) -> Flow {
        if name.is_empty() {
            return self.counted_loop(words.first().unwrap_or(&Text::default()), body);
        }
        let items: Vec<Text> = words.iter().flat_map(|word| self.fields(word)).collect();
        for item in items {
            self.set(name, Variable::One(item));
            match self.list(body) {
                Flow::Break => break,
                Flow::Return => return Flow::Return,
                Flow::On(_) | Flow::Continue => {}
            }
        }
        Flow::On(Status::Yes)
    }

    pub(super) fn while_loop(&mut self, kind: LoopKind, condition: &List, body: &List, line: u32) -> Flow {
        for round in 0..=MOST_ROUNDS {
            let status = self.condition(condition);
            let goes_on = if kind == LoopKind::Until { status.not() } else { status };
            if goes_on == Status::Unknown || round == MOST_ROUNDS {
                let finding =
                    Finding::warning("unresolved-condition", "the condition of this loop depends on the machine")
                        .at(&self.place(line))
                        .expected("its body is left out");
                self.find(finding);
                break;
            }
            if goes_on == Status::No {
                break;
            }
            match self.list(body) {
                Flow::Break => break,
                Flow::Return => return Flow::Return,
                Flow::On(_) | Flow::Continue => {}
            }
        }
        Flow::On(Status::Yes)
    }

    /// `for (( i = 0; i < n; i++ ))`.
    fn counted_loop(&mut self, header: &Text, body: &List) -> Flow {
        let inner = Text(header.0.get(2..header.0.len().saturating_sub(2)).unwrap_or_default().to_vec());
        let parts: Vec<Text> = inner.0.split(|glyph| glyph.char == ';').map(|part| Text(part.to_vec())).collect();
        let [first, condition, next] = parts.as_slice() else { return Flow::On(Status::Unknown) };
        let line = header.line().unwrap_or(1);
        let _ = self.counted(first);
        for round in 0..=MOST_ROUNDS {
            let value = self.counted(condition);
            if round == MOST_ROUNDS || !value.missing().is_empty() {
                let finding = Finding::warning("unresolved-condition", "the end of this loop is not known")
                    .at(&self.place(line))
                    .expected("its body is left out from there; give --var NAME=VALUE");
                self.find(finding);
                break;
            }
            if value.plain() == "0" {
                break;
            }
            match self.list(body) {
                Flow::Break => break,
                Flow::Return => return Flow::Return,
                Flow::On(_) | Flow::Continue => {}
            }
            let _ = self.counted(next);
        }
        Flow::On(Status::Yes)
    }

    /// The value of `i = 0`, `i += 2`, `i++`, or of an expression without assignment.
    pub(super) fn counted(&mut self, text: &Text) -> Text {
        let line = text.line().unwrap_or(1);
        let plain = text.plain();
        let plain = plain.trim();
        let name_of = |text: &str| Some(text.trim().to_owned()).filter(|name| is_name(name));
        let stepped = [("++", "+1"), ("--", "-1")].into_iter().find_map(|(sign, step)| {
            let name = plain.strip_suffix(sign).or_else(|| plain.strip_prefix(sign)).and_then(name_of)?;
            Some((name.clone(), format!("{name}{step}")))
        });
        let assigned = stepped.or_else(|| {
            let (left, right) = plain.split_once('=').filter(|(_, right)| !right.starts_with('='))?;
            let operator = left.chars().next_back().filter(|c| "+-*/%".contains(*c));
            let name = name_of(operator.map_or(left, |c| left.trim_end_matches(c)))?;
            Some(match operator {
                Some(operator) => (name.clone(), format!("{name}{operator}({right})")),
                None => (name, right.to_owned()),
            })
        });
        let Some((name, expression)) = assigned else { return self.arithmetic(text, line) };
        let value = self.arithmetic(&Text::on(&expression, line), line);
        self.set(&name, Variable::One(value.clone()));
        value
    }
}
