//! The session shown in `docs/tune.md`, run as it is written. `UPDATE_EXPECT=1 cargo test --test cli tune_session` writes it anew.
use std::path::Path;
use std::process::Command;

use super::sweep::{folder, text};

/// Log of the trial that the session adds.
const LOG: &str = "tests/logs/megatron-llama3-8b.log";

/// Output of each command of a session after its line, run in turn in a folder that holds the log.
fn replayed(session: &str) -> String {
    let folder = folder("tune_session");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir_all(folder.join(LOG).parent().unwrap()).unwrap();
    std::fs::copy(root.join(LOG), folder.join(LOG)).unwrap();
    let printed = |line: &str| {
        let args = line.trim_start_matches("$ meshwright ").split_whitespace();
        let output = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        format!("{line}\n{}", text(&output.stdout))
    };
    let commands = session.lines().filter(|line| line.starts_with("$ meshwright "));
    commands.map(printed).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_guide_shows_what_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tune.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once("```console\n").expect("a session");
    let (session, after) = rest.split_once("```").expect("the session's end");
    let printed = replayed(session);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, format!("{before}```console\n{printed}```{after}")).unwrap();
        return;
    }
    assert!(session == printed, "run UPDATE_EXPECT=1 cargo test --test cli tune_session; now printed:\n{printed}");
}
