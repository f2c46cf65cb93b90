//! Order of crates and modules: layers, cycles of files, public names, and the libraries and code that have one place.

use std::collections::{BTreeMap, BTreeSet};

use crate::{all_sources, cycles, files, is_comment, public, root};

/// Modules of all crates from the bottom up; each may use only itself and those before it. Between crates cargo holds
/// the order; within a crate this list does. The frameworks crate and the module for the browser are one entry each:
/// their files are ordered by having no cycle.
const LAYERS: &[&str] = &[
    "ascending",
    "distinct",
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
    "fnv",
    "median",
    "split_mix",
    "limits",
    "space",
    "search",
    "refine",
    "pools",
    "catalog",
    "confidence",
    "discrepancy",
    "advice",
    "least_squares",
    "probe",
    "frameworks",
    "runs",
    "validate",
    "fit",
    "tuning",
    "files",
    "placement",
    "sweep",
    "report",
    "question",
    "tune",
    "serve",
    "cli",
    "web",
];

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
        used.extend(cycles::items(list).iter().map(|item| ident(item)));
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

/// The table of crates in ARCHITECTURE.md lists the modules of each crate from the bottom up.
#[test]
fn the_map_lists_every_module() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, sources) in [
        ("crates/engine", "crates/engine/src"),
        ("crates/planner", "crates/planner/src"),
        ("crates/lab", "crates/lab/src"),
        ("src/", "src"),
    ] {
        let files = files(sources, "rs");
        let own: BTreeSet<&str> = files.iter().map(|(path, _)| module_of(path)).collect();
        let modules: Vec<&str> = LAYERS.iter().copied().filter(|module| own.contains(module)).collect();
        let row = map.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        assert_eq!(row.split(" | ").nth(1), Some(modules.join(", ").as_str()), "{name}");
    }
}

#[test]
fn files_use_each_other_in_no_cycle() {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in all_sources() {
        crates.entry(path.split("src/").next().unwrap().to_owned()).or_default().push((path, text));
    }
    let cycles: Vec<Vec<String>> = crates.values().flat_map(|files| cycles::cycles(files)).collect();
    assert!(cycles.is_empty(), "files use each other in cycles: {cycles:#?}");
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
fn a_cycle_is_found() {
    let file = |path: &str, text: &str| (format!("src/{path}"), text.to_owned());
    let files = |last: &str| {
        [
            file("a.rs", "use crate::b::{\n    self,\n    c::{D, E},\n};\n"),
            file("b/mod.rs", "pub mod c;\n"),
            file("b/c.rs", "// use crate::a::A;\nuse super::super::d;\n"),
            file("d.rs", last),
        ]
    };
    assert!(cycles::cycles(&files("fn e() { b::f() }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")).is_empty());
    let cycle = ["src/a.rs", "src/b/c.rs", "src/d.rs"].map(str::to_owned).to_vec();
    assert_eq!(cycles::cycles(&files("fn e() -> crate::a::A {}\n")), BTreeSet::from([cycle]));
}

#[test]
fn lists_in_braces_are_read() {
    let used = used_modules("use crate::{units::{Bytes, Seconds}, model};\nuse crate::plan::Plan;\n// crate::cli\n");
    assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), ["model", "plan", "units"]);
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
