//! Words of doc comments and names of types.

use std::collections::{BTreeMap, BTreeSet};

use crate::{all_sources, files};

/// Words that this field does not use: `forgotten` is recomputed, `unlike` heterogeneous, `played` simulated, `alike` identical.
const BANNED_WORDS: [&str; 8] =
    ["alike", "forgotten", "off in the mean", "of one's own", "out of fold", "played", "so much of", "unlike"];

/// Type names with one meaning in each of several modules, which are always written with the module or stay inside it.
const SHARED_NAMES: [&str; 4] = ["Args", "Attention", "Group", "Pass"];

/// Doc comments of a file: number of the first line, text, and the line of code that follows.
fn doc_comments(text: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            match found.last_mut() {
                Some((_, text, _)) if open => {
                    text.push(' ');
                    text.push_str(words.trim());
                }
                Some(_) | None => found.push((at + 1, words.trim().to_owned(), String::new())),
            }
            open = true;
        } else {
            if let Some((_, _, item)) = found.last_mut()
                && item.is_empty()
                && !line.starts_with("#[")
            {
                line.clone_into(item);
            }
            open = open && line.starts_with("#[");
        }
    }
    found
}

/// The name of a public type that a line of code defines; none for `$name` in a macro.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "type ", "trait "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Whether a name is of several words, such as `PlanQuestion`.
fn is_compound(name: &str) -> bool {
    name.chars().any(char::is_lowercase) && name.chars().filter(|letter| letter.is_uppercase()).count() > 1
}

/// Docstrings of Python and doc comments of TypeScript: number of the first line, and the line's text.
fn doc_strings(text: &str, opening: &str) -> Vec<(usize, String)> {
    let opened = |(at, line): (usize, &str)| Some((at + 1, line.trim().strip_prefix(opening)?.trim().to_owned()));
    text.lines().enumerate().filter_map(opened).collect()
}

/// Beginnings of a comment that do not name its item.
const EMPTY_BEGINNINGS: [&str; 3] = ["What ", "The same", "Both"];

#[test]
fn doc_strings_say_what_items_are() {
    let python = ["python", "checks"].into_iter().flat_map(|folder| files(folder, "py")).map(|file| (file, "\"\"\""));
    let script = ["ts", "tsx"].into_iter().flat_map(|kind| files("web/src", kind)).map(|file| (file, "/**"));
    for ((path, text), opening) in python.chain(script) {
        for (line, words) in doc_strings(&text, opening) {
            for start in EMPTY_BEGINNINGS {
                assert!(!words.starts_with(start), "{path}:{line}: say what it is, not `{start}…`");
            }
        }
    }
}

#[test]
fn doc_comments_say_what_items_are() {
    for (path, text) in all_sources().into_iter().chain(files("tests", "rs")).chain(files("benches", "rs")) {
        for (line, words, item) in doc_comments(&text) {
            for start in EMPTY_BEGINNINGS {
                assert!(!words.starts_with(start), "{path}:{line}: say what it is, not `{start}…`");
            }
            let declares = ["struct ", "enum ", "type ", "trait ", "fn ", "const ", "static "];
            let is_item =
                item.strip_prefix("pub ").is_some_and(|rest| declares.iter().any(|word| rest.starts_with(word)));
            let count = words.split_whitespace().count();
            assert!(!is_item || count > 2, "{path}:{line}: `{words}` is too short for a public item");
        }
    }
}

#[test]
fn doc_comments_use_the_fields_words() {
    for (path, text) in all_sources() {
        for (line, words, _) in doc_comments(&text) {
            let spaced: String = words
                .chars()
                .map(|c| if c.is_alphanumeric() || c == '\'' { c.to_ascii_lowercase() } else { ' ' })
                .collect();
            let spaced = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
            for banned in BANNED_WORDS {
                assert!(
                    !spaced.contains(&format!(" {banned} ")),
                    "{path}:{line}: `{banned}` is not a word of the field"
                );
            }
        }
    }
}

/// A type's name in place of the noun is what a renaming leaves behind.
#[test]
fn doc_comments_begin_with_words() {
    let sources = all_sources();
    let names: BTreeSet<&str> =
        sources.iter().flat_map(|(_, text)| text.lines().filter_map(|line| public_type(line.trim()))).collect();
    for (path, text) in &sources {
        for (line, words, _) in doc_comments(text) {
            let first = words.split([' ', '.', ',', ':']).next().unwrap_or_default();
            assert!(
                !is_compound(first) || !names.contains(first),
                "{path}:{line}: `{first}` says no more than its code"
            );
        }
    }
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut defined: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in all_sources() {
        for name in text.lines().filter_map(|line| public_type(line.trim())) {
            if SHARED_NAMES.contains(&name) {
                continue;
            }
            if let Some(other) = defined.insert(name.to_owned(), path.clone()) {
                panic!("`{name}` is defined in {other} and in {path}");
            }
        }
    }
}

#[test]
fn comments_and_types_are_read() {
    let found = doc_comments("//! A file.\n\n/// One\n/// item.\n#[derive(Debug)]\npub struct Item;\n");
    assert_eq!(found.len(), 2);
    assert_eq!((found[1].0, found[1].1.as_str(), found[1].2.as_str()), (3, "One item.", "pub struct Item;"));
    assert_eq!(public_type("pub struct Item<'a> {"), Some("Item"));
    assert_eq!(public_type("struct Hidden;"), None);
}
