//! Values of names while a function is followed.

use std::collections::{BTreeMap, BTreeSet};

use super::functions::partial;
use super::holes::{add_unknown, is_known, unknown};
use crate::readers::document::{CALLED, Entries, Node, NodeValue, TableEntry, value_of};

/// Values of names in this function and its module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    values: BTreeMap<String, Node>,
    /// Other names of a part of a value: `p = config.parallelism`.
    parts: BTreeMap<String, Vec<String>>,
    /// Names that were given values that are not known.
    unknown: BTreeSet<String>,
}

impl Names {
    /// Binds a name to a value.
    pub fn set(&mut self, name: &str, node: Node) {
        self.detach(&[name.to_owned()]);
        self.parts.remove(name);
        self.unknown.remove(name);
        self.values.insert(name.to_owned(), node);
    }

    /// Replaces the value that a name refers to, which may be a part of another value; other names of its parts stay bound to it.
    pub fn set_whole(&mut self, name: &str, node: Node) {
        let line = node.line;
        if let Some(path) = self.parts.get(name).cloned() {
            self.put(&path, Some(node), line);
        } else {
            self.unknown.remove(name);
            self.values.insert(name.to_owned(), node);
        }
    }

    /// Binds a name to a part of another value: `p = config.parallelism`.
    pub fn alias(&mut self, name: &str, path: &[String]) {
        let path = self.whole(path);
        if path.first().is_some_and(|first| first == name) {
            return match self.get(&path).cloned() {
                Some(node) => self.set(name, node),
                None => self.forget(name),
            };
        }
        self.detach(&[name.to_owned()]);
        self.values.remove(name);
        self.unknown.remove(name);
        self.parts.insert(name.to_owned(), path);
    }

    /// Makes the value of a name unknown.
    pub fn forget(&mut self, name: &str) {
        self.detach(&[name.to_owned()]);
        self.values.remove(name);
        self.parts.remove(name);
        self.unknown.insert(name.to_owned());
    }

    /// Before a value is replaced: gives a copy of it to each other name of the value or of one of its parts.
    fn detach(&mut self, path: &[String]) {
        let own = self.parts.iter().filter(|(_, part)| part.starts_with(path));
        let own: Vec<(String, Option<Node>)> =
            own.map(|(name, part)| (name.clone(), self.get(part).cloned())).collect();
        for (name, node) in own {
            self.parts.remove(&name);
            match node {
                Some(node) => drop(self.values.insert(name, node)),
                None => drop(self.unknown.insert(name)),
            }
        }
    }

    /// Whether a name was given a value that is not known.
    pub fn is_unknown(&self, name: &str) -> bool {
        self.unknown.contains(name)
    }

    /// Whether a part of a name's value can be set.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.parts.contains_key(name)
    }

    /// Path from the name that owns a value, for a path that may begin with the name of a part.
    fn whole(&self, path: &[String]) -> Vec<String> {
        match path.first().and_then(|first| self.parts.get(first)) {
            Some(part) => part.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }

    /// Value at a path; `None` where it is unknown.
    pub fn get(&self, path: &[String]) -> Option<&Node> {
        let path = self.whole(path);
        let mut node = self.values.get(path.first()?)?;
        for key in &path[1..] {
            let NodeValue::Map(entries) = &node.value else { return None };
            node = value_of(entries, key)?;
        }
        Some(node).filter(|node| is_known(node))
    }

    /// Replaces a part of a value; with `None` it becomes unknown.
    pub fn replace(&mut self, path: &[String], node: Option<Node>, line: u32) {
        self.detach(&self.whole(path));
        self.put(path, Some(node.unwrap_or_else(|| unknown(line))), line);
    }

    /// Takes a part out of a value.
    pub fn remove(&mut self, path: &[String]) {
        self.detach(&self.whole(path));
        self.put(path, None, 0);
    }

    /// Marks a part of a value as changed in an unknown way: a dictionary gains unknown entries, a list becomes unknown, and an
    /// object keeps the arguments of its constructor.
    pub fn change(&mut self, path: &[String], line: u32) {
        let Some(mut node) = self.get(path).cloned() else { return };
        match &mut node.value {
            NodeValue::Map(entries) if entries.iter().all(|entry| entry.key != CALLED) => add_unknown(entries, line),
            NodeValue::Map(_) | NodeValue::Scalar { .. } => return,
            NodeValue::List(_) => node = unknown(line),
        }
        match self.whole(path).as_slice() {
            [name] if !is_known(&node) => self.forget(name),
            whole => self.put(whole, Some(node), line),
        }
    }

    /// Sets or removes a part of a value and creates the tables above it; does nothing where the first name is not bound.
    pub fn put(&mut self, path: &[String], node: Option<Node>, line: u32) {
        let path = self.whole(path);
        let Some((first, keys)) = path.split_first() else { return };
        let Some(mut at) = self.values.get_mut(first) else { return };
        if let (true, Some(node)) = (keys.is_empty(), &node) {
            at.clone_from(node);
        }
        for (depth, key) in keys.iter().enumerate() {
            let is_last = depth + 1 == keys.len();
            if let (NodeValue::List(_), Ok(place)) = (&at.value, key.parse::<usize>()) {
                let known = node.clone().filter(is_known);
                if is_last && known.is_none() {
                    *at = unknown(line);
                    return;
                }
                let NodeValue::List(items) = &mut at.value else { return };
                let Some(item) = items.get_mut(place) else { return };
                at = item;
                if let (true, Some(node)) = (is_last, known) {
                    *at = node;
                    return;
                }
                continue;
            }
            if !matches!(at.value, NodeValue::Map(_)) {
                at.value = NodeValue::Map(Vec::new());
            }
            let NodeValue::Map(entries) = &mut at.value else { return };
            let place = entries.iter().position(|entry| entry.key == *key);
            if is_last {
                entries.retain(|entry| entry.key != *key);
                entries.extend(node.map(|node| TableEntry::new(key, line, node)));
                return;
            }
            let place = place.unwrap_or_else(|| {
                entries.push(TableEntry::new(key, line, Node { value: NodeValue::Map(Vec::new()), line }));
                entries.len() - 1
            });
            at = &mut entries[place].value;
        }
    }

    /// Functions that `functools.partial` is bound to under any name, each with its arguments.
    pub fn partials(&self) -> Vec<(String, Entries)> {
        self.values.values().filter_map(|node| partial(Some(node), &Entries::new())).collect()
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<Node> {
        self.get(&[name.to_owned()]).cloned()
    }
}
