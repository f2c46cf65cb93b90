//! Statements that change a table or a list in its place: `table.update(other)`, `table.pop(key)`, `list.extend(more)`,
//! `del table[key]`.

use super::assign::{item, path};
use super::functions::is_word;
use super::holes::{insert, is_known, is_plain_table, merge};
use super::modules::Unread;
use super::names::Names;
use super::program::{Call, Frame, Program};
use super::tokens::{Line, Token};
use super::truth::key_of;
use super::value::Expression;
use crate::readers::document::{Entries, Node, NodeValue, TableEntry, value_of};

impl Program<'_> {
    /// Follows a statement that changes a table, a list or an attribute in its place; whether all that it sets is
    /// known. None, without a change, where the statement is of another form.
    pub fn change_inside(&self, line: &Line, names: &mut Names, frame: Frame, unread: &mut Unread) -> Option<bool> {
        if is_word(line, 0, "del") {
            return delete(&line.words[1..], names, line.number);
        }
        let opening = line.words.iter().position(|(word, _)| *word == Token::Sign("("))?;
        let called = path(&line.words[..opening])?;
        let words = &line.words[opening + 1..];
        let arguments = self.arguments(words, line.number, names, frame, unread)?;
        if called == ["setattr"] {
            return set_attribute(words, &arguments, names, line.number);
        }
        let (method, object) = called.split_last()?;
        let mut node = names.get(object)?.clone();
        let is_table = is_plain_table(&node);
        let is_whole = match &mut node.value {
            NodeValue::Map(entries) if is_table => change_table(entries, method, &arguments, line.number)?,
            NodeValue::List(items) => change_list(items, method, argument(&arguments, 0))?,
            NodeValue::Map(_) | NodeValue::Scalar { .. } => return None,
        };
        match object {
            [name] => names.set_whole(name, node),
            _ => names.put(object, Some(node), line.number),
        }
        Some(is_whole)
    }

    /// Arguments of a call that ends its line, behind its bracket; nothing where the line goes on.
    fn arguments(
        &self,
        words: &[(Token, u32)],
        line: u32,
        names: &Names,
        frame: Frame,
        unread: &mut Unread,
    ) -> Option<Entries> {
        let mut inner = Vec::new();
        let mut functions =
            |name: &str, arguments: &Entries| self.called(Call { name, arguments, line }, names, frame, &mut inner);
        let mut expression = Expression { words, names, functions: &mut functions, unread: Vec::new() };
        let arguments = expression.arguments();
        let is_whole = expression.words.is_empty();
        unread.append(&mut inner);
        is_whole.then_some(arguments)
    }
}

/// Argument of a call by its place.
fn argument(arguments: &Entries, at: usize) -> Option<&Node> {
    value_of(arguments, &at.to_string())
}

/// `setattr(object, name, value)`, where `words` follow its bracket; whether the value is known.
fn set_attribute(words: &[(Token, u32)], arguments: &Entries, names: &mut Names, line: u32) -> Option<bool> {
    let object = words.split(|(word, _)| *word == Token::Sign(",")).next()?;
    let mut target = path(object).filter(|object| names.get(object).is_some())?;
    target.push(argument(arguments, 1).and_then(key_of)?);
    let value = argument(arguments, 2).filter(|node| is_known(node)).cloned();
    let is_whole = value.is_some();
    names.replace(&target, value, line);
    Some(is_whole)
}

/// Applies a method to a table; whether all that it sets is known, none for a method that is not followed.
fn change_table(entries: &mut Entries, method: &str, arguments: &Entries, line: u32) -> Option<bool> {
    match (method, argument(arguments, 0)) {
        ("update", _) => Some(updated(entries, arguments, line)),
        ("clear", _) => {
            entries.clear();
            Some(true)
        }
        ("pop", Some(key)) => {
            let key = key_of(key)?;
            entries.retain(|entry| entry.key != key);
            Some(true)
        }
        _ => None,
    }
}

/// Applies a method to a list, as [`change_table`] does to a table.
fn change_list(items: &mut Vec<Node>, method: &str, argument: Option<&Node>) -> Option<bool> {
    match (method, argument.cloned()) {
        ("append", Some(item)) if is_known(&item) => items.push(item),
        ("extend", Some(Node { value: NodeValue::List(more), .. })) => items.extend(more),
        _ => return None,
    }
    Some(true)
}

/// `del table[key]`, and `del object.name`, which leaves the class's own.
fn delete(target: &[(Token, u32)], names: &mut Names, line: u32) -> Option<bool> {
    let target = path(target).or_else(|| item(target, names)).filter(|target| target.len() > 1)?;
    let (_, object) = target.split_last()?;
    let is_table = is_plain_table(names.get(object)?);
    if is_table {
        names.remove(&target);
    } else {
        names.replace(&target, None, line);
    }
    Some(is_table)
}

/// Applies `update` to a table; whether all that it sets is known.
fn updated(entries: &mut Entries, arguments: &Entries, line: u32) -> bool {
    let mut whole = true;
    for TableEntry { key, line: at, value } in arguments {
        if key == "0" {
            whole &= merge(entries, Some(value.clone()), *at);
        } else {
            whole &= is_known(value);
            insert(entries, TableEntry::new(key, line, value.clone()));
        }
    }
    whole
}
