//! `verify`: recordings in place of a GPU.

use std::path::Path;

use crate::measure::{VERIFY, code, err, folder, out, record, run};
use meshwright::probe::kernel::Kernel;

#[test]
fn a_verification_shows_the_error_before_and_after() {
    let folder = folder("verify");
    record(&folder, 1.3);
    let play = [&VERIFY[..], &["--quick", "--probe", "samples.toml", "--format", "json"]].concat();
    let output = run(&folder, &play);
    code(&output, 0);
    let json: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(json["verdict"], "confirmed");
    let total = json["plans"][0]["terms"].as_array().unwrap().last().unwrap().clone();
    let figure = |name: &str| total[name].as_f64().unwrap();
    assert!(figure("covered") > 0.99, "{total}");
    assert!(figure("predicted_s") / figure("measured_s") < 0.9, "{total}");
    assert!((figure("calibrated_s") / figure("measured_s") - 1.0).abs() < 0.01, "{total}");
    // Each pass of a layer and the update, too.
    let parts = json["plans"][0]["parts"].as_array().unwrap();
    for name in ["forward", "backward", "optimizer"] {
        let part = parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("no {name}: {parts:?}"));
        let figure = |name: &str| part[name].as_f64().unwrap();
        assert!(figure("covered") > 0.9 && figure("covered") <= 1.0, "{part}");
        // The GEMMs were slower than predicted, and the update has none.
        assert_eq!(figure("predicted_s") / figure("measured_s") < 0.9, name != "optimizer", "{part}");
        assert!((figure("calibrated_s") / figure("measured_s") - 1.0).abs() < 0.02, "{part}");
    }
    let sheets = run(&folder, &[&VERIFY[..], &["--quick", "--probe", "samples.toml", "--format", "markdown"]].concat());
    code(&sheets, 0);
    assert!(out(&sheets).contains("GEMMs dgrad") && out(&sheets).contains("confirmed"), "{}", out(&sheets));
    assert!(err(&sheets).contains("confirmed:"), "{}", err(&sheets));
}

/// The cost model's clocks are those of a run already.
#[test]
fn predictions_in_place_of_measurements_change_no_step() {
    let output =
        run(&folder("verify-model"), &[&VERIFY[..], &["--quick", "--probe", "model", "--format", "json"]].concat());
    code(&output, 1);
    let json: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&json["verdict"], json["step_clocks"].as_f64()), (&"inconclusive".into(), Some(1.0)));
    for plan in json["plans"].as_array().unwrap() {
        let change = plan["measured_s"].as_f64().unwrap() / plan["predicted_s"].as_f64().unwrap() - 1.0;
        assert!(change.abs() < 0.01, "{plan}");
    }
}

#[test]
fn a_recording_that_lacks_kernels_confirms_nothing() {
    let folder = folder("verify-lacking");
    let mut samples = record(&folder, 1.0);
    samples.of.retain(|kernel, _| !matches!(kernel, Kernel::Gemm(_)));
    std::fs::write(folder.join("samples.toml"), samples.to_toml()).unwrap();
    let output = run(&folder, &[&VERIFY[..], &["--quick", "--probe", "samples.toml"]].concat());
    code(&output, 1);
    assert!(err(&output).contains("inconclusive") && err(&output).contains("not in the recording"), "{}", err(&output));
}

/// A verification on a recording of an H200: kernels, a layer as one run and its memory are measured, and the search is done again,
/// all of it the same each time. The recording has the plans that were on top when it was taken, some of which still are.
#[test]
fn a_recorded_verification_is_the_same_without_the_gpu() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/silicon/h200-2026-11-26-b/samples.toml");
    let question = ["verify", "llama3-70b", "h200-1k", "--gpus", "64", "--top", "2", "--format", "json", "--probe"];
    let args = [&question[..], &[samples.to_str().unwrap()]].concat();
    let folder = folder("verify-recorded");
    let (first, second) = (run(&folder, &args), run(&folder, &args));
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(first.status.code(), Some(0), "{}\n{}", out(&first), err(&first));
    // Another device's samples verify nothing.
    let elsewhere: Vec<&str> = args.iter().map(|arg| if *arg == "h200-1k" { "h100-512" } else { arg }).collect();
    let refused = run(&folder, &elsewhere);
    code(&refused, 2);
    assert!(err(&refused).contains("the recording is of a h200-sxm, and the plans are for H100"), "{}", err(&refused));
    let json: serde_json::Value = serde_json::from_str(&out(&first)).unwrap();
    assert_eq!(json["verdict"], "confirmed");
    assert!((json["step_clocks"].as_f64().unwrap() - 0.87).abs() < 1e-9, "{json}");
    let plans = json["plans"].as_array().unwrap();
    let is_whole = |plan: &&serde_json::Value| {
        let covered = plan["terms"].as_array().unwrap().last().unwrap()["covered"].as_f64().unwrap();
        let has = |key: &str| plan[key].as_array().unwrap().len() == 1;
        has("layers") && has("runs") && covered > 0.999
    };
    assert!(plans.iter().any(|plan| is_whole(&plan)), "{json}");
    let again = &json["again"];
    let terms = again["terms"].as_array().unwrap();
    assert!(terms.iter().any(|term| term["name"] == "compute"), "{again}");
    // At the clocks that a run keeps of one GPU's, this device is much as the catalogue, which fits runs.
    let number = |key: &str| again[key].as_f64().unwrap();
    let change = number("recalibrated_s") / number("before_s") - 1.0;
    assert!(change != 0.0 && change.abs() < 0.05, "{again}");
    assert!(again["after_s"].as_f64() <= again["recalibrated_s"].as_f64(), "{again}");
}
