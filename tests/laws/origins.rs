//! The function that each term of time and each tenant of memory names is there, and ARCHITECTURE.md lists it.

use std::fmt::Write as _;

use meshwright::cost::term::Origin;
use meshwright::cost::{Tenant, Term};

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR")))
        .unwrap_or_else(|why| panic!("{file}: {why}"))
}

fn all() -> Vec<(String, Origin)> {
    let terms = Term::ALL.iter().map(|term| (term.to_string(), term.origin()));
    let tenants = Tenant::ALL.iter().map(|tenant| (format!("{tenant} (memory)"), tenant.origin()));
    terms.chain(tenants).collect()
}

#[test]
fn every_number_names_a_function_that_exists() {
    for (number, Origin { file, function, .. }) in all() {
        let text = read(file);
        let found = text.lines().any(|line| {
            line.split_once("fn ")
                .is_some_and(|(_, rest)| rest.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<'])))
        });
        assert!(found, "{number}: {file} has no function `{function}`");
    }
}

/// Lines between which ARCHITECTURE.md holds the table that this test writes under `UPDATE_EXPECT=1`.
const MARKS: (&str, &str) = ("<!-- numbers: written by tests/laws/origins.rs -->\n", "<!-- end of numbers -->\n");

#[test]
fn the_architecture_lists_the_functions() {
    let mut table = String::from("| number | function | file | specification |\n|---|---|---|---|\n");
    for (number, Origin { file, function, section }) in all() {
        writeln!(table, "| {number} | `{function}` | [{file}]({file}) | §{section} |").unwrap();
    }
    let text = read("ARCHITECTURE.md");
    let from = text.find(MARKS.0).expect("ARCHITECTURE.md has the marks") + MARKS.0.len();
    let to = text.find(MARKS.1).expect("ARCHITECTURE.md has the marks");
    if std::env::var_os("UPDATE_EXPECT").is_some() && text[from..to] != table {
        let path = format!("{}/ARCHITECTURE.md", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
        return;
    }
    assert_eq!(&text[from..to], table, "run UPDATE_EXPECT=1 cargo test --test laws origins");
}
