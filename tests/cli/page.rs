//! The page of a sweep in a real browser: headless Chromium driven by playwright-core. Skipped, and said so, where either is absent.
//!
//! `CHROMIUM` names the browser where it is not on the path; `PLAYWRIGHT_FROM` a file of the folder that `playwright-core` is
//! installed in (`npm install playwright-core`) where it is not `tests/page/`.
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const SWEEP: &str = r#"
name = "A page <with> a \"name\" </script>"
[[workload]]
name = "short"
model = "llama3-8b"
tokens = "1 B"
global_batch = 128
[[workload]]
name = "long"
model = "llama3-8b"
tokens = "20 B"
runs = 3
global_batch = 256
[options]
gpu = ["h100-sxm", "b200-sxm"]
gpus = [8, 16, 32]
terms = ["contract", "own"]
[buy]
finish_by = "90 d"
"#;

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    named.into_iter().chain(usual).find(|path| path.exists())
}

fn has_driver() -> bool {
    let from = std::env::var("PLAYWRIGHT_FROM")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/check.mjs").into());
    let script = "require('node:module').createRequire(process.argv[1]).resolve('playwright-core')";
    Command::new("node").args(["-e", script, &from]).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_reader_sees_the_front_the_steps_and_the_plans() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sweep-page");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sweep.toml");
    std::fs::write(&file, SWEEP).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["sweep", file.to_str().unwrap(), "--out", folder.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let page = folder.join("page.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(!text.contains("src=\"http") && !text.contains("href=\"http") && !text.contains("@import"), "no network");

    let Some(chromium) = browser() else {
        eprintln!("SKIPPED: no Chromium here (apt-get install chromium, or set CHROMIUM)");
        return;
    };
    if !has_driver() {
        eprintln!(
            "SKIPPED: no playwright-core here (npm install playwright-core in tests/page, or set PLAYWRIGHT_FROM)"
        );
        return;
    }
    let shot = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/check.mjs");
    let output = Command::new("node")
        .arg(script)
        .args([page.to_str().unwrap(), chromium.to_str().unwrap(), &shot("light.png"), &shot("dark.png")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| seen[key].as_u64().unwrap();
    assert_eq!((&seen["errors"], &seen["requests"]), (&serde_json::json!([]), &serde_json::json!([])), "{seen}");
    assert_eq!(seen["title"], "A page <with> a \"name\" </script>");
    assert_eq!((number("dots"), number("rows")), (12, 12), "{seen}");
    assert!(seen["front"].as_str().unwrap().starts_with('M'), "{seen}");
    assert!(number("bars") > 6 && number("tornado") >= 6, "{seen}");
    let tip = seen["tip"].as_str().unwrap();
    for word in ["tp=", "short:", "long:", "MFU", "GPUs", "$"] {
        assert!(tip.contains(word), "no `{word}` in {tip}");
    }
    assert_eq!(seen["tip_visible"], true);
    assert_eq!((&seen["energy_title"], &seen["theme"]), (&"Energy against time".into(), &"dark".into()));
    assert_eq!((&seen["overflow"], &seen["narrow_overflow"]), (&false.into(), &false.into()), "wider than its window");
}
