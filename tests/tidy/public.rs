//! Public functions and constants of the library crates, and the names that others use.

use std::collections::{BTreeMap, BTreeSet};

/// Code of a file: its text without comments and without the test module at its end.
fn code(text: &str) -> String {
    let tested = text.find("#[cfg(test)]\nmod").unwrap_or(text.len());
    text[..tested].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Identifiers of a text.
pub fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code(text).split(|c| !is_part(c)).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Name of the public function or constant that a line declares: free, or of a type.
fn declared(line: &str) -> Option<&str> {
    let rest =
        line.strip_prefix("    pub ").filter(|rest| rest.contains("fn ")).or_else(|| line.strip_prefix("pub "))?;
    let rest = ["const fn ", "fn ", "const ", "static "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// Files of a crate that belong to public modules, by their path below `src/`: those that `pub mod` leads to from `lib.rs`.
fn reachable(files: &BTreeMap<String, &str>) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec!["lib.rs".to_owned()]);
    while let Some(file) = open.pop() {
        let Some(text) = files.get(&file) else { continue };
        let folder = file.trim_end_matches("lib.rs").trim_end_matches("mod.rs").trim_end_matches(".rs").to_owned();
        let folder = if folder.is_empty() || folder.ends_with('/') { folder } else { folder + "/" };
        for line in text.lines() {
            if let Some(module) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) {
                open.extend([format!("{folder}{module}.rs"), format!("{folder}{module}/mod.rs")]);
            }
        }
        found.insert(file);
    }
    found
}

/// Public functions and constants of the public modules of a crate that no name `used` elsewhere means, with their file.
pub fn unused<'a>(files: &'a [(String, String)], used: &BTreeSet<String>) -> Vec<(&'a str, &'a str)> {
    let inside = |path: &str| path.split_once("src/").unwrap().1.to_owned();
    let texts = files.iter().map(|(path, text)| (inside(path), text.as_str())).collect();
    let reachable = reachable(&texts);
    let of_file = |(path, text): &'a (String, String)| {
        let end = text.find("#[cfg(test)]\nmod").unwrap_or(text.len());
        text[..end].lines().filter_map(declared).map(|name| (path.as_str(), name)).collect::<Vec<_>>()
    };
    let public = files.iter().filter(|(path, _)| reachable.contains(&inside(path))).flat_map(of_file);
    public.filter(|(_, name)| !used.contains(*name)).collect()
}
