//! Values of names while a function is followed.

use std::collections::{BTreeMap, BTreeSet};

use crate::readers::document::{Node, NodeValue};

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
    /// Gives a value a name.
    pub fn set(&mut self, name: &str, node: Node) {
        self.parts.remove(name);
        self.unknown.remove(name);
        self.values.insert(name.to_owned(), node);
    }

    /// Gives what a name means, which may be a part of another value, a new value.
    pub fn set_whole(&mut self, name: &str, node: Node) {
        let line = node.line;
        match self.parts.get(name).cloned() {
            Some(path) => self.put(&path, Some(node), line),
            None => self.set(name, node),
        }
    }

    /// Gives a part of a value another name.
    pub fn alias(&mut self, name: &str, path: &[String]) {
        let path = self.whole(path);
        self.values.remove(name);
        self.unknown.remove(name);
        self.parts.insert(name.to_owned(), path);
    }

    /// A name has a value that is not known.
    pub fn forget(&mut self, name: &str) {
        self.values.remove(name);
        self.parts.remove(name);
        self.unknown.insert(name.to_owned());
    }

    /// Whether a name was given a value that is not known.
    pub fn is_unknown(&self, name: &str) -> bool {
        self.unknown.contains(name)
    }

    /// Whether a part of a name's value can be set.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.parts.contains_key(name)
    }

    /// A path whose first name is a value's own.
    fn whole(&self, path: &[String]) -> Vec<String> {
        match path.first().and_then(|first| self.parts.get(first)) {
            Some(part) => part.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }

    /// The value of a path.
    pub fn get(&self, path: &[String]) -> Option<&Node> {
        let path = self.whole(path);
        let mut node = self.values.get(path.first()?)?;
        for key in &path[1..] {
            let NodeValue::Map(entries) = &node.value else { return None };
            node = &entries.iter().find(|(known, ..)| known == key)?.2;
        }
        Some(node)
    }

    /// Sets a part of a value, with the tables above it; nothing where the first name means nothing.
    pub fn put(&mut self, path: &[String], node: Option<Node>, line: u32) {
        let path = self.whole(path);
        let Some((first, keys)) = path.split_first() else { return };
        let Some(mut at) = self.values.get_mut(first) else { return };
        for (depth, key) in keys.iter().enumerate() {
            if !matches!(at.value, NodeValue::Map(_)) {
                at.value = NodeValue::Map(Vec::new());
            }
            let NodeValue::Map(entries) = &mut at.value else { return };
            let place = entries.iter().position(|(known, ..)| known == key);
            if depth + 1 == keys.len() {
                entries.retain(|(known, ..)| known != key);
                entries.extend(node.map(|node| (key.clone(), line, node)));
                return;
            }
            let place = place.unwrap_or_else(|| {
                entries.push((key.clone(), line, Node { value: NodeValue::Map(Vec::new()), line }));
                entries.len() - 1
            });
            at = &mut entries[place].2;
        }
    }

    /// The value of a name.
    pub fn value(&self, name: &str) -> Option<Node> {
        self.get(&[name.to_owned()]).cloned()
    }
}
