//! Numbers at their edges: what lies outside is refused with its key, its value and its range; what lies inside is answered
//! within the limits of time and memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::commands::{code, err, file, out, refused, run};

/// Longest time of a question with a limit of time or memory, in a test build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Catalogue file with one line replaced.
fn changed(path: &str, from: &str, to: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{path} has no `{from}`");
    let path: PathBuf = file(name, &text.replacen(from, to, 1));
    path.display().to_string()
}

fn model(layers: &str, name: &str) -> String {
    changed("models/llama3-8b.toml", "layers = \"d*32\"", &format!("layers = \"{layers}\""), name)
}

#[test]
fn counts_out_of_range_are_refused_with_their_key() {
    let plan = |set: &'static str| ["plan", "llama3-8b", "dgx-h100-64", "--set", set];
    refused(&["models", &model("dd(*2)", "edge-star.toml")], &["edge-star.toml", "a `*` with nothing before it"]);
    refused(&["models", &model("d*65536", "edge-deep.toml")], &["edge-deep.toml", "over 512 layers"]);
    refused(&plan("model.vocab=4294967295"), &["`vocab` is 4,294,967,295", "from 1 to 16,777,216", "model.vocab"]);
    refused(&plan("cluster.gpus=4294967295"), &["`gpus` is 4,294,967,295", "from 1 to 1,048,576"]);
    for (option, most) in [("--global-batch", "1,048,576"), ("--gpus", "1,048,576"), ("--seq-len", "134,217,728")] {
        for value in ["0", "2147483647", "4294967295"] {
            refused(&["plan", "llama3-8b", "dgx-h100-64", option, value], &[option, most]);
        }
    }
    for plan in ["mbs=4294967295", "tp=1048577", "pp=1048576 vpp=2", "recompute=first-513", "shard=4294967295"] {
        let key = plan.split('=').next().unwrap();
        refused(&["explain", "llama3-8b", "dgx-h100-64", "--plan", plan], &["--plan", key]);
    }
    let config = changed(
        "tests/hf/deepseek-v3.json",
        "\"num_nextn_predict_layers\": 1",
        "\"num_nextn_predict_layers\": 65536",
        "edge-mtp.json",
    );
    refused(&["models", &config], &["edge-mtp.json", "num_nextn_predict_layers", "65536", "64"]);
}

#[test]
fn quantities_out_of_range_are_refused_with_their_key() {
    let plan = |set: &'static str| ["plan", "llama3-8b", "dgx-h100-64", "--set", set];
    for (set, key, range) in [
        ("gpu.gemm.bf16.efficiency=1.5", "`gemm.bf16.efficiency` is 1.5", "from 0.001 to 1"),
        ("gpu.hbm_efficiency=1.01", "`hbm_efficiency` is 1.01", "from 0.001 to 1"),
        ("gpu.gemm.bf16.wave_exponent=1e6", "`gemm.bf16.wave_exponent` is 1,000,000", "from 0 to 8"),
        ("gpu.gemm.bf16.intensity_exponent=1e6", "`gemm.bf16.intensity_exponent` is 1,000,000", "from 0 to 8"),
        ("gpu.hbm=1e200 GB", "`hbm` is 9.313", "GiB"),
        ("gpu.contention=1e9", "`contention` is", "from 0 to 100"),
        ("cluster.nic=1e-300 GB/s", "`nic` is 1e-300 GB/s", "GB/s"),
        ("cluster.oversubscription=1e9", "`oversubscription` is", "from 1 to 1,000"),
        ("stack.jitter=1e6", "`jitter` is 1,000,000", "from 0 to 1"),
        ("stack.quirks.network_efficiency=3", "`quirks.network_efficiency` is 3", "from 0.001 to 1"),
        ("stack.overlap.tp=1.5", "`overlap.tp` is 1.5", "from 0 to 1"),
        ("stack.launches.forward=1e12", "`launches.forward` is", "from 0 to 10,000"),
        ("stack.quirks.step_overhead=1e200 y", "`quirks.step_overhead` is", "60 s"),
    ] {
        refused(&plan(set), &[key, range, set.split('=').next().unwrap()]);
    }
    refused(&plan("cluster.level=3"), &["--set"]);
    let bill = ["plan", "llama3-8b", "dgx-h100-64", "--tokens"];
    refused(&[&bill[..], &["1e200 T"]].concat(), &["`--tokens` is", "tokens"]);
    refused(&[&bill[..], &["1 T", "--price", "1e200 $/h"]].concat(), &["`--price` is", "$/h"]);
    refused(&[&bill[..], &["1 T", "--storage", "1e-9 B/s"]].concat(), &["`--storage` is", "GB/s"]);
    refused(&["plan", "llama3-8b", "dgx-h100-64", "--imbalance", "1e300"], &["--imbalance"]);
    refused(&["plan", "llama3-8b", "dgx-h100-64", "--time-limit", "1e300"], &["--time-limit"]);
    refused(&["plan", "llama3-8b", "dgx-h100-64", "--time-limit", "nan"], &["--time-limit"]);
    refused(&["plan", "llama3-8b", "dgx-h100-64", "--top", "4294967295"], &["--top"]);
}

#[test]
fn sweep_files_have_ranges_too() {
    let sweep = |buy: &str, axis: &str| {
        format!(
            "name = \"edge\"\n[[workload]]\nmodel = \"llama3-8b\"\ntokens = \"1 T\"\n\
             [options]\ngpu = \"h100-sxm\"\n{axis}\n[buy]\n{buy}\n"
        )
    };
    for (buy, axis, words) in [
        ("time_limit = \"1e300 h\"", "gpus = 64", ["buy.time_limit", "from 0 s to 31,557,600 s"]),
        ("racks = 1e300", "gpus = 64", ["buy.racks", "from 0 to 1,048,576"]),
        ("finish_by = \"0 d\"", "gpus = 64", ["buy.finish_by", "from"]),
        ("", "gpus = 4_000_000_000", ["options.gpus", "from 1 to 1,048,576"]),
        ("", "gpus = 64\nnic = \"1e300 GB/s\"", ["options.nic", "GB/s"]),
        ("", "gpus = 64\nspares = 4000000000", ["options.spares", "from 0 to"]),
        ("", "gpus = 64\npue = 1e9", ["options.pue", "from 1 to 1,000"]),
    ] {
        let path = file("edge-sweep.toml", &sweep(buy, axis));
        refused(&["sweep", &path.display().to_string()], &words);
    }
}

/// 100,003 is prime: all of its micro-batches go through one pipeline, and one schedule alone has millions of passes.
#[test]
fn a_time_limit_holds_inside_a_batch_of_the_search() {
    let start = Instant::now();
    let output = run(&["plan", "llama3-8b", "dgx-h100-64", "--global-batch", "100003", "--time-limit", "3"]);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(code(&output) <= 1, "{}", err(&output));
}

#[test]
fn a_memory_limit_ends_a_search_with_a_sentence() {
    let deep = model("d*400", "edge-400.toml");
    let start = Instant::now();
    let output = run(&["plan", &deep, "dgx-h100-64", "--memory-limit", "40 MB", "--no-refine"]);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let talk = err(&output);
    assert!(talk.contains("--memory-limit") && talk.contains("--fix"), "{talk}");
}

/// Where --forbid takes what --fix leaves, the memory of no plan is the reason.
#[test]
fn restrictions_that_contradict_each_other_are_the_reason() {
    let asked = ["plan", "llama3-70b", "dgx-h100-64", "--fix", "recompute=none", "--forbid", "recompute=none"];
    let output = run(&asked);
    let talk = err(&output);
    assert_eq!(code(&output), 1, "{talk}");
    assert!(talk.contains("no plan satisfies --fix, --forbid and --for") && !talk.contains("GiB"), "{talk}");
}

/// The second term of a step is named where its share does not round to nothing.
#[test]
fn no_slowest_part_has_nothing() {
    let output = run(&["plan", "llama3-8b", "8xh100-sxm"]);
    let table = out(&output);
    assert!(table.contains("slowest part"), "{table}");
    assert!(table.lines().all(|line| !line.ends_with(" 0 %")), "{table}");
}

#[test]
fn a_sweep_keeps_its_time_limit() {
    refused(&["sweep", "clusters/sweeps/network.toml", "--time-limit", "0"], &["--time-limit", "--resume"]);
}

#[test]
fn a_fit_of_no_constants_is_refused() {
    let fit = ["fit", "--runs", "tests/published/runs.csv"];
    let empty = file("edge-free.toml", "source = \"mine\"\nblock = []\n").display().to_string();
    refused(&[&fit[..], &["--block", "hopper"]].concat(), &["--block hopper", "they are `A100`"]);
    refused(&[&fit[..], &["--free", &empty]].concat(), &["no constants"]);
    let published = std::fs::read_to_string("tests/published/runs.csv").unwrap();
    let few: String = published.split_inclusive('\n').take(2).collect();
    let few = file("edge-runs.csv", &few).display().to_string();
    refused(&["fit", "--runs", &few, "--block", "A100"], &["prediction of no run depends"]);
}
