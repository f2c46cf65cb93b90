//! Mechanisms that the default space leaves out have no published run.

use std::collections::BTreeSet;
use std::fs::File;

use meshwright::runs;
use meshwright::space::Unproven;

/// Where this fails, a published run has shown the mechanism: take it from the list.
#[test]
fn no_published_run_has_an_unproven_mechanism() {
    let path = format!("{}/tests/published/runs.csv", env!("CARGO_MANIFEST_DIR"));
    let rows = runs::read(File::open(path).unwrap()).unwrap();
    let (mut read, mut shown) = (0, BTreeSet::new());
    for row in &rows {
        let Ok((problem, plan)) = runs::problem_of(row) else { continue };
        read += 1;
        shown.extend(Unproven::in_plan(&problem, &plan).into_iter().map(|found| (found.what, row.id.clone())));
    }
    assert!(read > 600, "{read} rows have a plan");
    assert!(shown.is_empty(), "{shown:#?}");
}
