//! Assignments to variables, arrays and associative arrays.

use std::collections::BTreeMap;

use super::run::{Shell, Variable};
use super::syntax::{self, is_name};
use super::text::Text;

/// Kind of an array that an assignment declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayKind {
    /// By number.
    Indexed,
    /// By key (`declare -A`).
    Associative,
}

impl Shell<'_> {
    /// `name=value`, `name+=value`, `name=(…)`, `name[key]=value`.
    pub fn assign(&mut self, word: &Text, kind: ArrayKind) {
        let Some(Assignment { name, key, append, value }) = assignment(word) else { return };
        let is_array = value.0.first().is_some_and(|g| g.char == '(') && value.0.last().is_some_and(|g| g.char == ')');
        if is_array {
            let inner = Text(value.0[1..value.0.len() - 1].to_vec());
            let written = syntax::words(&inner).unwrap_or_default();
            if kind == ArrayKind::Associative {
                let items = written.iter().filter_map(|item| self.pair(item)).collect();
                return self.set(&name, Variable::Map(items));
            }
            let mut items = if append { self.items(&name).unwrap_or_default() } else { Vec::new() };
            items.extend(written.iter().flat_map(|item| self.fields(item)));
            return self.set(&name, Variable::List(items));
        }
        let mut text = self.expand_unsplit(&value);
        if let Some(key) = key {
            let word = self.expand_unsplit(&key).plain();
            match self.variables.get_mut(&name) {
                Some(Variable::Map(items)) => {
                    items.insert(word, text);
                }
                Some(Variable::List(items)) => {
                    if let Ok(at) = word.parse::<usize>() {
                        if at < items.len() {
                            items[at] = text;
                        } else {
                            items.push(text);
                        }
                    }
                }
                Some(Variable::One(_)) | None => self.set(&name, Variable::Map(BTreeMap::from([(word, text)]))),
            }
            return;
        }
        if append {
            let mut before = self.scalar(&name).unwrap_or_default();
            before.0.append(&mut text.0);
            text = before;
        }
        self.set(
            &name,
            if kind == ArrayKind::Associative { Variable::Map(BTreeMap::new()) } else { Variable::One(text) },
        );
    }

    /// `[key]=value` of an associative array.
    fn pair(&mut self, item: &Text) -> Option<(String, Text)> {
        let end = item.0.iter().position(|g| g.char == ']')?;
        let starts = item.0.first()?.char == '[' && item.0.get(end + 1)?.char == '=';
        let key = starts.then(|| Text(item.0[1..end].to_vec()))?;
        Some((self.expand_unsplit(&key).plain(), self.expand_unsplit(&Text(item.0[end + 2..].to_vec()))))
    }
}

/// The parts of a word that assigns.
pub struct Assignment {
    pub(super) name: String,
    key: Option<Text>,
    append: bool,
    value: Text,
}

/// The parts of a word that assigns.
pub fn assignment(word: &Text) -> Option<Assignment> {
    let text = word.plain();
    let equals = word.0.iter().position(|g| g.char == '=')?;
    let left: String = text.chars().take(equals).collect();
    let append = left.ends_with('+');
    let left = left.trim_end_matches('+');
    let (name, key) = match left.split_once('[') {
        Some((name, key)) => {
            let open = name.chars().count();
            let _ = key.strip_suffix(']')?;
            (name, Some(Text(word.0[open + 1..left.chars().count() - 1].to_vec())))
        }
        None => (left, None),
    };
    is_name(name).then(|| Assignment { name: name.to_owned(), key, append, value: Text(word.0[equals + 1..].to_vec()) })
}
