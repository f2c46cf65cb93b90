//! The house rules that can be read off the files: layering, circles, first lines, sources, lists, sizes.

mod circles;
mod public;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of all crates from the bottom up; each may use only itself and those before it. Between crates cargo holds the
/// order; within a crate this list does. The frameworks crate and the module for the browser are one entry each: their files are ordered by having no
/// circle.
const LAYERS: &[&str] = &[
    "units",
    "range",
    "sources",
    "suggest",
    "model",
    "gpu",
    "cluster",
    "transport",
    "schedule",
    "split",
    "stack",
    "workload",
    "problem",
    "plan",
    "stages",
    "kernel",
    "collective",
    "cost",
    "goodput",
    "money",
    "limits",
    "space",
    "search",
    "refine",
    "placement",
    "pools",
    "catalog",
    "confidence",
    "advice",
    "least_squares",
    "probe",
    "frameworks",
    "runs",
    "validate",
    "fit",
    "files",
    "sweep",
    "report",
    "question",
    "cli",
    "web",
];

/// Most lines of a source file.
const MOST_LINES: usize = 600;

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

/// The module that a source file belongs to: `cost` for `crates/engine/src/cost/data.rs` and for `crates/engine/src/cost.rs`.
fn module_of(path: &str) -> &str {
    if path.starts_with("crates/frameworks/") {
        return "frameworks";
    }
    if path.starts_with("crates/web/") {
        return "web";
    }
    let inside = path.split_once("src/").unwrap().1;
    inside.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Modules that code names after `crate::` or the name of one of the crates, alone or in braces.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !is_comment(line)).collect::<Vec<_>>().join("\n");
    let ident = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut used = BTreeSet::new();
    if code.contains("meshwright_frameworks") {
        used.insert("frameworks".to_owned());
    }
    let roots = ["crate::", "meshwright_engine::", "meshwright_planner::", "meshwright_lab::"];
    let places = roots.iter().flat_map(|root| code.match_indices(root).map(move |(at, _)| at + root.len()));
    for at in places {
        let rest = &code[at..];
        let Some(list) = rest.strip_prefix('{') else {
            used.insert(ident(rest));
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    used.insert(ident(item.trim()));
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(c);
        }
        used.insert(ident(item.trim()));
    }
    used.remove("");
    used
}

#[test]
fn modules_use_only_lower_layers() {
    for (path, text) in all_sources() {
        let module = module_of(&path);
        if module == "lib" || module == "main" {
            continue;
        }
        let text = if matches!(module, "frameworks" | "web") { text.replace("crate::", "self::") } else { text };
        let rank = |name: &str| LAYERS.iter().position(|layer| *layer == name);
        let own = rank(module).unwrap_or_else(|| panic!("{path}: give `{module}` its place in LAYERS"));
        for used in used_modules(&text) {
            if let Some(other) = rank(&used) {
                assert!(other <= own, "{path}: `{module}` may not use `{used}`");
            } else {
                panic!("{path}: `crate::{used}` is no module of LAYERS");
            }
        }
    }
}

#[test]
fn files_use_each_other_in_no_circle() {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in all_sources() {
        crates.entry(path.split("src/").next().unwrap().to_owned()).or_default().push((path, text));
    }
    let circles: Vec<Vec<String>> = crates.values().flat_map(|files| circles::circles(files)).collect();
    assert!(circles.is_empty(), "files use each other in circles: {circles:#?}");
}

/// A name that no other crate, test or benchmark means is `pub(crate)`, so that the compiler tells when it is dead.
#[test]
fn what_is_public_is_used() {
    let crates: BTreeMap<String, Vec<(String, String)>> = ["engine", "planner", "frameworks", "lab"]
        .map(|name| (name.to_owned(), files(&format!("crates/{name}/src"), "rs")))
        .into();
    let others = ["src", "tests", "benches", "crates/web/src"].into_iter().flat_map(|folder| files(folder, "rs"));
    let around: BTreeSet<String> = others.flat_map(|(_, text)| public::names(&text)).collect();
    for (name, own) in &crates {
        let others = crates.iter().filter(|(other, _)| *other != name).flat_map(|(_, files)| files);
        let used: BTreeSet<String> =
            others.flat_map(|(_, text)| public::names(text)).chain(around.iter().cloned()).collect();
        let unused = public::unused(own, &used);
        assert!(unused.is_empty(), "public, and used in {name} only: {unused:#?}");
    }
}

#[test]
fn unused_names_are_found() {
    let file = |path: &str, text: &str| (format!("crates/a/src/{path}"), text.to_owned());
    let own = [
        file("lib.rs", "pub mod b;\nmod c;\n"),
        file("b/mod.rs", "pub mod d;\nimpl B {\n    pub fn e(&self) {}\n    pub(crate) fn f(&self) {}\n}\n"),
        file("b/d.rs", "pub const G: u32 = 1; // H\npub fn h() {}\nmod i {\n    pub const J: u32 = 1;\n}\n"),
        file("c.rs", "pub fn k() {}\n"),
    ];
    let used = public::names("fn m() { a::b::d::h() } // e, G\n");
    let expected = [("crates/a/src/b/mod.rs", "e"), ("crates/a/src/b/d.rs", "G")];
    assert_eq!(public::unused(&own, &used), expected);
}

#[test]
fn a_circle_is_found() {
    let file = |path: &str, text: &str| (format!("src/{path}"), text.to_owned());
    let files = |last: &str| {
        [
            file("a.rs", "use crate::b::{\n    self,\n    c::{D, E},\n};\n"),
            file("b/mod.rs", "pub mod c;\n"),
            file("b/c.rs", "// use crate::a::A;\nuse super::super::d;\n"),
            file("d.rs", last),
        ]
    };
    assert!(
        circles::circles(&files("fn e() { b::f() }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")).is_empty()
    );
    let circle = ["src/a.rs", "src/b/c.rs", "src/d.rs"].map(str::to_owned).to_vec();
    assert_eq!(circles::circles(&files("fn e() -> crate::a::A {}\n")), BTreeSet::from([circle]));
}

#[test]
fn lists_in_braces_are_read() {
    let used = used_modules("use crate::{units::{Bytes, Seconds}, model};\nuse crate::plan::Plan;\n// crate::cli\n");
    assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), ["model", "plan", "units"]);
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in all_sources().into_iter().chain(files("tests", "rs")) {
        assert!(text.starts_with("//! "), "{path}: the first line must be `//!`");
    }
}

#[test]
fn files_are_short() {
    for (path, text) in all_sources() {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{path}: {lines} lines, over {MOST_LINES}");
    }
}

#[test]
fn the_binary_keeps_its_libraries() {
    for (path, text) in all_sources() {
        if matches!(module_of(&path), "cli" | "main") {
            continue;
        }
        for name in
            ["clap::", "clap_complete::", "clap_mangen::", "anyhow::", "comfy_table::", "indicatif::", "ctrlc::"]
        {
            if name == "comfy_table::" && path.ends_with("report/table.rs") {
                continue; // the one file that lays tables out
            }
            let found = text.lines().position(|line| {
                !is_comment(line) && !line.contains("cfg_attr(feature = \"cli\"") && line.contains(name)
            });
            assert!(found.is_none(), "{path}:{}: `{name}` belongs in src/cli", found.unwrap_or_default() + 1);
        }
    }
}

/// Calls into the driver and its libraries are in one folder, which prices and judges nothing. The browser's exports have
/// names that are attributes of this kind, and no more.
#[test]
fn unsafe_code_has_its_place() {
    for (path, text) in all_sources() {
        if path.starts_with("crates/lab/src/probe/cuda/") {
            continue;
        }
        if path == "crates/web/src/exports.rs" {
            assert!(!text.contains("unsafe {") && !text.contains("unsafe fn"), "{path}: names of exports alone");
            continue;
        }
        for name in ["unsafe ", "unsafe_code", "cudarc::"] {
            let found = text.lines().position(|line| {
                !is_comment(line) && !line.contains("cfg_attr(feature = \"cli\"") && line.contains(name)
            });
            assert!(
                found.is_none(),
                "{path}:{}: `{name}` belongs in crates/lab/src/probe/cuda",
                found.unwrap_or_default() + 1
            );
        }
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
            if path == "tests/tidy.rs" {
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

/// Words of no field: `forgotten` is recomputed, `unlike` heterogeneous, `played` simulated, `alike` identical.
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

#[test]
fn doc_comments_say_what_items_are() {
    for (path, text) in all_sources() {
        for (line, words, item) in doc_comments(&text) {
            for start in ["What ", "The same"] {
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

#[test]
fn every_data_file_is_built_in() {
    use meshwright::catalog::files::{CLUSTERS, FITS, GPUS, INTERVALS, MODELS, PRICES, STACKS};
    for (folder, list) in [
        ("models", MODELS),
        ("clusters", CLUSTERS),
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
