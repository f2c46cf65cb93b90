//! Documents and checks of every framework, for which the compiler does not ask.

use meshwright::frameworks::FRAMEWORKS;
use std::path::Path;

#[test]
fn every_framework_has_its_documents_and_its_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (emit, lint) = (read("docs/emit.md"), read("docs/lint.md"));
    for framework in FRAMEWORKS {
        let (name, kind) = (framework.name(), framework.reader.kind);
        assert!(emit.contains(&format!("\n### `{name}`\n")), "docs/emit.md has no section on {name}");
        assert!(lint.contains(&format!("\n| `{kind}` | ")), "docs/lint.md does not list the files of {name}");
        let check = format!("checks/check_{}.py", name.replace('-', "_"));
        assert!(root.join(&check).is_file(), "{check} does not exist");
    }
}
