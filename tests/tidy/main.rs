//! Rules of the project that can be read off its files.

mod citations;
mod cycles;
mod layers;
mod public;
mod signatures;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most lines of a source file.
const MOST_LINES: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a folder with an extension, as paths from the root with `/`, and their text.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, extension, into);
            } else if path.extension().is_some_and(|known| known == extension) {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root().join(folder), extension, &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "{folder} holds no .{extension}");
    paths
        .into_iter()
        .map(|path| {
            let parts: Vec<_> =
                path.strip_prefix(root()).unwrap().iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            (parts.join("/"), std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Source files of all crates.
fn all_sources() -> Vec<(String, String)> {
    files("crates", "rs").into_iter().chain(files("src", "rs")).filter(|(path, _)| path.contains("src/")).collect()
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in all_sources().into_iter().chain(files("tests", "rs")) {
        assert!(text.starts_with("//! "), "{path}: the first line must be `//!`");
    }
}

#[test]
fn files_are_short() {
    for (path, text) in all_sources().into_iter().chain(files("tests", "rs")) {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{path}: {lines} lines, over {MOST_LINES}");
    }
}

/// A hash map's order differs from run to run; answers must not.
#[test]
fn nothing_is_hashed() {
    for (path, text) in all_sources() {
        for name in ["HashMap", "HashSet"] {
            let found = text.lines().position(|line| {
                !is_comment(line) && !line.contains("cfg_attr(feature = \"cli\"") && line.contains(name)
            });
            assert!(found.is_none(), "{path}:{}: use BTree{}", found.unwrap_or_default() + 1, &name[4..]);
        }
    }
}

#[test]
fn every_data_file_is_built_in() {
    use meshwright::catalog::files::{CLUSTERS, DISCREPANCY, FITS, GPUS, INTERVALS, MODELS, PRICES, STACKS};
    for (folder, list) in [
        ("models", MODELS),
        ("clusters", CLUSTERS),
        ("clusters/discrepancy", DISCREPANCY),
        ("clusters/fits", FITS),
        ("clusters/gpus", GPUS),
        ("clusters/intervals", INTERVALS),
        ("clusters/prices", PRICES),
        ("clusters/stacks", STACKS),
    ] {
        let on_disk: BTreeMap<String, String> = files(folder, "toml")
            .into_iter()
            .filter_map(|(path, text)| {
                let name = path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".toml")?.to_owned();
                (!name.contains('/')).then_some((name, text))
            })
            .collect();
        let built_in: Vec<(String, String)> =
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let names: Vec<&String> = built_in.iter().map(|(name, _)| name).collect();
        assert_eq!(names, on_disk.keys().collect::<Vec<_>>(), "{folder}");
        assert!(built_in.into_iter().eq(on_disk), "{folder}: a name stands beside another's text");
    }
}
