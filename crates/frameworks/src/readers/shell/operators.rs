//! Operators of `${NAME…}`: defaults, alternatives, errors, cuts and replacements.

use super::expand::EMPTY;
use super::pattern::{self, CutLength, Replaced};
use super::run::{Shell, Variable};
use super::text::{Quoting, Text};

impl Shell<'_> {
    /// Expansion of `${name…}` by the operator that `rest` begins with: `:-`, `:=`, `:+`, `:?`, `%`, `#`, `,`, `^^`, `/`,
    /// `:start:length`.
    pub(super) fn operated(&mut self, name: &str, value: Option<Text>, rest: &Text, line: u32, place: Quoting) -> Text {
        let text = rest.plain();
        let empty = value.as_ref().is_none_or(|value| value.plain().chars().all(|c| c == EMPTY));
        let colon = text.starts_with(':');
        let lacks = if colon { empty } else { value.is_none() };
        let operand = |skipped: usize| Text(rest.0[skipped + usize::from(colon)..].to_vec());
        match text.chars().nth(usize::from(colon)).unwrap_or(' ') {
            '-' | '=' if !lacks => value.unwrap_or_default(),
            operator @ ('-' | '=') => {
                let default = self.operand(&operand(1), place);
                self.took_default(name, &default, line);
                if operator == '=' {
                    self.set(name, Variable::One(default.clone()));
                }
                default
            }
            '+' if lacks => Text::default(),
            '+' => self.operand(&operand(1), place),
            '?' => value.filter(|_| !lacks).unwrap_or_else(|| Text::unresolved(&format!("${name}"), line)),
            _ => match value {
                None => Text::unresolved(&format!("${name}"), line),
                Some(value) if !value.missing().is_empty() => value,
                Some(value) => match self.cut(&value.plain(), rest) {
                    Some(cut) => Text::on(&cut, value.line().unwrap_or(line))
                        .sourced(value.is_sourced())
                        .quoted(place == Quoting::Double),
                    None => Text::unresolved(&format!("${{{name}{text}}}"), line),
                },
            },
        }
    }

    /// Default or alternative of a variable, expanded.
    fn operand(&mut self, written: &Text, place: Quoting) -> Text {
        if place == Quoting::Double { self.double(&unquoted(written)) } else { self.expand(written) }
    }

    /// A value cut, replaced or in other case, as the operator at the start of `rest` says; `None` for an operator that
    /// is not known.
    fn cut(&mut self, value: &str, rest: &Text) -> Option<String> {
        let text = rest.plain();
        let mut pattern = |skipped: usize| self.expand_unsplit(&Text(rest.0[skipped..].to_vec())).plain();
        Some(match text.chars().next()? {
            '%' if text.starts_with("%%") => pattern::cut_end(value, &pattern(2), CutLength::Longest),
            '%' => pattern::cut_end(value, &pattern(1), CutLength::Shortest),
            '#' if text.starts_with("##") => pattern::cut_start(value, &pattern(2), CutLength::Longest),
            '#' => pattern::cut_start(value, &pattern(1), CutLength::Shortest),
            ',' => value.to_lowercase(),
            '^' if text.starts_with("^^") => value.to_uppercase(),
            '/' => {
                let (replaced, slashes) =
                    if text.starts_with("//") { (Replaced::All, 2) } else { (Replaced::First, 1) };
                let replacement = pattern(slashes);
                let (from, to) = replacement.split_once('/').unwrap_or((&replacement, ""));
                pattern::replace(value, from, to, replaced)
            }
            ':' => {
                let range = self.double(&Text(rest.0[1..].to_vec())).plain();
                let mut bounds = range.splitn(2, ':').map(|n| n.trim().parse::<usize>().ok());
                let (start, length) = (bounds.next()??, bounds.next());
                value.chars().skip(start).take(length.flatten().unwrap_or(usize::MAX)).collect()
            }
            _ => return None,
        })
    }
}

/// Quotes inside of `"${X:-"default"}"` only group.
fn unquoted(text: &Text) -> Text {
    let plain = text.plain();
    let quoted = plain.len() > 1 && (plain.starts_with('"') && plain.ends_with('"'));
    if quoted { Text(text.0[1..text.0.len() - 1].to_vec()) } else { text.clone() }
}
