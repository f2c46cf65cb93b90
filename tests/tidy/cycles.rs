//! Cycles of files: files of one crate that use each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

/// Files that each file of a crate uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Segments of a module's path below its crate: `["cost", "data"]` for `src/cost/data.rs`.
fn module_path(inside: &str) -> Vec<String> {
    let stem = inside.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if matches!(stem, "lib" | "main") { Vec::new() } else { stem.split('/').map(str::to_owned).collect() }
}

/// Code without comments and without the test module at its end.
fn code(text: &str) -> String {
    let tested = text.find("#[cfg(test)]\nmod").unwrap_or(text.len());
    text[..tested].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Items of a list in braces, from behind its opening brace on; lists inside of items stay whole.
pub(super) fn items(list: &str) -> Vec<String> {
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(c);
        }
    }
    items.into_iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

/// Paths of a tree such as `a::{b, c::{d, e}}`, one for each leaf.
fn leaves(tree: &str, before: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        into.push(format!("{before}{}", path.trim_end_matches("::self")));
        return;
    };
    for item in items(list) {
        leaves(&item, &format!("{before}{head}"), into);
    }
}

/// Paths that code names: every leaf of its `use`, and paths that begin with `crate::` or `super::` elsewhere.
fn paths(text: &str) -> Vec<String> {
    let code = code(text);
    let mut found = Vec::new();
    let begins = |line: &str| {
        ["use ", "pub use ", "pub(crate) use ", "pub(super) use "].iter().any(|start| line.starts_with(start))
    };
    for statement in code.split(';') {
        let words: Vec<&str> = statement.lines().map(str::trim).skip_while(|line| !begins(line)).collect();
        let words = words.join(" ");
        if let Some((_, tree)) = words.split_once("use ") {
            leaves(tree, "", &mut found);
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for root in ["crate::", "super::"] {
        let own = |before: &str| !before.ends_with(is_path) && !before.ends_with("pub(in ");
        let starts = code.match_indices(root).filter(|(at, _)| own(&code[..*at]));
        let paths = starts.map(|(at, _)| code[at..].chars().take_while(|c| is_path(*c)).collect::<String>());
        found.extend(paths.filter(|path| !path.ends_with("::"))); // what stands in braces is a leaf of a `use`
    }
    found
}

/// The file that a path leads to: the longest beginning of it that is a module.
fn target<'a>(path: &str, own: &[String], modules: &'a BTreeMap<Vec<String>, String>) -> Option<&'a String> {
    let mut segments = path.split("::").filter(|segment| !segment.is_empty()).peekable();
    let mut module = match *segments.peek()? {
        "crate" => Vec::new(),
        "self" | "super" => own.to_vec(),
        child => {
            let below: Vec<String> = own.iter().cloned().chain([child.to_owned()]).collect();
            modules.contains_key(&below).then(|| own.to_vec())?
        }
    };
    for segment in segments {
        match segment {
            "crate" | "self" => {}
            "super" => drop(module.pop()),
            name => {
                module.push(name.to_owned());
                if !modules.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
        }
    }
    modules.get(&module)
}

/// Which file uses which, of files of one crate given as path and text.
fn uses(files: &[(String, String)]) -> Uses {
    let path_of = |file: &str| module_path(file.split_once("src/").unwrap().1);
    let modules: BTreeMap<_, _> = files.iter().map(|(file, _)| (path_of(file), file.clone())).collect();
    let of_file = |(file, text): &(String, String)| {
        let own = path_of(file);
        let used = paths(text).into_iter().filter_map(|path| target(&path, &own, &modules));
        (file.clone(), used.filter(|used| *used != file).cloned().collect())
    };
    files.iter().map(of_file).collect()
}

/// Files that a file reaches, itself only over a cycle.
fn reached<'a>(file: &str, uses: &'a Uses) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = uses[file].iter().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(uses[next].iter().map(String::as_str));
        }
    }
    found
}

/// Cycles among files of one crate, each as its files in order; every file is in one cycle at most.
pub fn cycles(files: &[(String, String)]) -> BTreeSet<Vec<String>> {
    let uses = uses(files);
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (file.as_str(), reached(file, &uses))).collect();
    let of_file = |(file, others): (&&str, &BTreeSet<&str>)| {
        let cycle = others.iter().filter(|other| reached[**other].contains(*file));
        cycle.map(|other| (*other).to_owned()).collect::<Vec<String>>()
    };
    reached.iter().map(of_file).filter(|cycle| !cycle.is_empty()).collect()
}
