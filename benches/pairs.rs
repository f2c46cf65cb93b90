//! CPU time of `meshwright plan` over random pairs of the catalogue: `cargo bench --bench pairs`, results in `benches/runs/`.
//!
//! Each pair is one run of the command, start and output included. Arguments after `--` go to every run: `-- --for any`.
//! `MESHWRIGHT_PAIRS` is the number of pairs, 100 unless given. CPU time is that of Linux, in ticks of 10 ms.

use std::process::{Command, Stdio};

use meshwright::catalog;
use meshwright_planner::split_mix::SplitMix;

/// Seed of the pairs.
const SEED: u64 = 20_261_123;
/// Pairs that are named with their times.
const NAMED: usize = 10;
/// Clock ticks of `/proc` per second.
const TICKS: f64 = 100.0;

/// CPU time of all children that ended, in seconds.
fn of_children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells the CPU time of processes");
    // Behind the name in parentheses, which may hold blanks: fields 3 onwards; 16 and 17 are the children's.
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    fields[13..15].iter().map(|ticks| ticks.parse::<f64>().expect("a number of ticks")).sum::<f64>() / TICKS
}

fn main() {
    let passed: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = std::env::var("MESHWRIGHT_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let (models, clusters) = (catalog::model_names(), catalog::cluster_names());
    println!("seed {SEED}, {wanted} pairs of {} models and {} clusters, plan {passed:?}", models.len(), clusters.len());
    let mut numbers = SplitMix::new(SEED);
    let mut times: Vec<(f64, &str, &str)> = Vec::new();
    for _ in 0..wanted {
        let pair = (models[numbers.below(models.len())], clusters[numbers.below(clusters.len())]);
        let before = of_children();
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(["plan", pair.0, pair.1]).args(&passed).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("the binary runs");
        times.push((of_children() - before, pair.0, pair.1));
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    for percent in [50, 90, 99, 100] {
        let at = (times.len() * percent).div_ceil(100).max(1) - 1;
        println!("p{percent:<3} {:8.2} s of CPU", times[at].0);
    }
    for (time, model, cluster) in times.iter().rev().take(NAMED) {
        println!("{time:8.2} s  {model} {cluster}");
    }
}
