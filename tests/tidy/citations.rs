//! Citations: sources of figures and sections of documents exist, and every source is used.

use std::collections::{BTreeMap, BTreeSet};

use crate::{all_sources, files, is_comment, root};

/// `[key]` in a comment: lower-case, not in backticks, and no link to an item or address.
///
/// Words with a `.` are tables of a file (`[layer.x]`), not keys.
fn citations(text: &str) -> BTreeSet<String> {
    let mut cited = BTreeSet::new();
    for line in text.lines().filter(|line| is_comment(line)) {
        for (at, _) in line.match_indices('[') {
            let Some(end) = line[at..].find(']').map(|end| at + end) else { continue };
            let (key, next) = (&line[at + 1..end], line[end + 1..].chars().next());
            let looks = key.starts_with(|c: char| c.is_ascii_lowercase())
                && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            let in_code = line[..at].matches('`').count() % 2 == 1;
            if looks && !in_code && !matches!(next, Some('(' | '[')) {
                cited.insert(key.to_owned());
            }
        }
    }
    cited
}

/// Every `source = "…"` and `…_source = "…"` of a TOML file.
fn sources(value: &toml::Value, into: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                match value.as_str() {
                    Some(source) if key == "source" || key.ends_with("_source") => {
                        into.insert(source.to_owned());
                    }
                    _ => sources(value, into),
                }
            }
        }
        toml::Value::Array(items) => items.iter().for_each(|item| sources(item, into)),
        _ => {}
    }
}

#[test]
fn sources_are_known_and_used() {
    let text = std::fs::read_to_string(root().join("docs/sources.toml")).unwrap();
    let known: toml::Table = toml::from_str(&text).unwrap();
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in all_sources().into_iter().chain(files("tests", "rs")) {
        for key in citations(&text) {
            wanted.entry(key).or_insert_with(|| path.clone());
        }
    }
    for (path, text) in files("models", "toml").into_iter().chain(files("clusters", "toml")) {
        let mut found = BTreeSet::new();
        sources(&toml::from_str(&text).unwrap(), &mut found);
        assert!(!found.is_empty(), "{path}: no source");
        for key in found {
            wanted.entry(key).or_insert_with(|| path.clone());
        }
    }
    for (key, path) in &wanted {
        assert!(known.contains_key(key), "{path}: `{key}` is not in docs/sources.toml");
    }
    for (key, entry) in &known {
        assert!(wanted.contains_key(key), "docs/sources.toml: `{key}` is used nowhere");
        for field in ["title", "authors", "link", "taken"] {
            let text = entry.get(field).and_then(toml::Value::as_str).unwrap_or_default();
            assert!(!text.is_empty(), "docs/sources.toml: `{key}` has no {field}");
        }
    }
    let papers: Vec<&str> =
        known.values().filter_map(|entry| entry["link"].as_str()).filter(|link| link.contains("arxiv.org")).collect();
    let distinct: BTreeSet<&str> = papers.iter().copied().collect();
    assert_eq!(papers.len(), distinct.len(), "docs/sources.toml: a paper stands there under two keys");
}

/// The document that a `§` belongs to, by what stands before it: a source in brackets is a paper, else the specification.
fn document(before: &str) -> Option<&'static str> {
    let before = before.trim_end().to_lowercase();
    if before.ends_with(']') {
        return None;
    }
    let of_runs = before.ends_with("run mapping") || before.ends_with("run-mapping.md)");
    Some(if of_runs { "docs/run-mapping.md" } else { "docs/specification.md" })
}

/// Every section that a text cites, with its document: `specification §4.2`, `run mapping §3`, and `§4.2` alone.
fn cited_sections(text: &str) -> BTreeSet<(&'static str, String)> {
    let words = |line: &str| line.trim().trim_start_matches(['/', '!']).trim().to_owned();
    let text: Vec<String> = text.lines().map(words).collect();
    let text = text.join(" ");
    let number = |text: &str| text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
    text.match_indices('§')
        .filter_map(|(at, sign)| Some((document(&text[..at])?, number(&text[at + sign.len()..]))))
        .map(|(document, number)| (document, number.trim_end_matches('.').to_owned()))
        .filter(|(_, number)| !number.is_empty())
        .collect()
}

/// Numbers of a document's headings.
fn headings(document: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let number =
        |line: &str| Some(line.trim_start_matches('#').split_whitespace().next()?.trim_end_matches('.').to_owned());
    text.lines().filter(|line| line.starts_with('#')).filter_map(number).collect()
}

#[test]
fn cited_sections_exist() {
    let known: BTreeMap<&str, BTreeSet<String>> =
        ["docs/specification.md", "docs/run-mapping.md"].map(|document| (document, headings(document))).into();
    let mut checked = 0;
    for (folder, extension) in
        [("crates", "rs"), ("src", "rs"), ("tests", "rs"), ("benches", "rs"), ("docs", "md"), ("docs", "toml")]
    {
        for (path, text) in files(folder, extension) {
            if path == "tests/tidy/citations.rs" {
                continue; // its examples
            }
            for (document, section) in cited_sections(&text) {
                assert!(known[document].contains(&section), "{path}: {document} has no §{section}");
                checked += 1;
            }
        }
    }
    assert!(checked > 150, "only {checked} citations were found");
}

#[test]
fn sections_are_read() {
    let cited = cited_sections("/// Source: specification\n/// §7.4, [gpipe] §9, (§4.2) and run mapping §3, \"§{}\".");
    let spec = "docs/specification.md";
    let expected = [("docs/run-mapping.md", "3"), (spec, "4.2"), (spec, "7.4")];
    assert!(cited.iter().map(|(document, number)| (*document, number.as_str())).eq(expected), "{cited:?}");
}
