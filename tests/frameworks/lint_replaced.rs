//! Settings that a question of `lint` has in place of the file's.
#![cfg(feature = "cli")]

use std::process::Command;

use serde_json::Value;

use super::lint::{GOOD, json, out, script};

/// The command that lint prints prices what lint priced.
#[test]
fn the_command_that_is_printed_prices_the_same() {
    let path = script("same.sh", GOOD);
    for replaced in [
        &[][..],
        &["--optimizer", "muon"],
        &["--global-batch", "1024", "--seq-len", "4096"],
        &["--gpus", "256"],
        &["--stack", "nemo-24", "--set", "cluster.nic=\"200 Gb/s\""],
    ] {
        let (answer, _) = json(&path, &[&["--quick"], replaced].concat());
        let command = answer["command"].as_str().unwrap();
        let shell = format!("{command} --hbm-profile tight --format json");
        let shell = shell.replacen("meshwright", env!("CARGO_BIN_EXE_meshwright"), 1);
        let explained = Command::new("bash").args(["-c", &shell]).output().unwrap();
        let explained: Value =
            serde_json::from_str(&out(&explained)).unwrap_or_else(|error| panic!("{error}: {command}"));
        for key in ["step_time_s", "peak_mem_gib"] {
            assert_eq!(explained["prediction"][key], answer["prediction"][key], "{key}: {command}");
        }
    }
}

/// `--optimizer` replaces the file's update as well as its bytes per parameter: Muon's takes longer.
#[test]
fn another_optimizer_has_its_own_update() {
    let path = script("optimizer.sh", GOOD);
    let update = |more: &[&str]| json(&path, more).0["prediction"]["terms"]["optimizer_s"].as_f64().unwrap();
    let (adam, muon) = (update(&["--quick"]), update(&["--quick", "--optimizer", "muon"]));
    assert!(muon > 2.0 * adam, "{muon} {adam}");
}
