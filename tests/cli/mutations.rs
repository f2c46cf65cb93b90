//! Command lines that nobody would write: none panics, aborts, hangs or refuses in silence.
//!
//! `MUTATIONS=100000 cargo test --release --test cli mutations -- --ignored --nocapture` runs that many, by default 10,000.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use meshwright::plan::text::KEYS;
use meshwright_planner::split_mix::SplitMix;

/// Longest time that one command computes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time from its start to its end: other work may keep it waiting.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

/// One of these words.
fn one<'w>(dice: &mut SplitMix, of: &[&'w str]) -> &'w str {
    of[dice.below(of.len())]
}

const COMMANDS: [&str; 12] = [
    "plan",
    "plan",
    "plan",
    "explain",
    "explain",
    "emit megatron",
    "emit nanotron",
    "budget",
    "models",
    "clusters",
    "gpus",
    "stacks",
];
const MODELS: [&str; 8] =
    ["llama3-8b", "mixtral-8x7b", "gpt2", "deepseek-v3", "nope", "", "tests/hf/qwen2-7b.json", "models/llama3-8b.toml"];
const CLUSTERS: [&str; 6] = ["dgx-h100-8", "dgx-h100-64", "h100-512", "dgx-h100-1k", "nope", "clusters/h100-512.toml"];
const NUMBERS: [&str; 16] =
    ["0", "1", "2", "3", "7", "8", "12", "64", "100", "128", "1000", "100003", "1048576", "4294967295", "-1", "1e300"];
const OPTIONS: [&str; 13] = [
    "--gpus",
    "--global-batch",
    "--seq-len",
    "--imbalance",
    "--risk",
    "--top",
    "--refine",
    "--place",
    "--time-limit",
    "--pareto-tolerance",
    "--spares",
    "--micro-batch",
    "--vocab",
];
const WORDS: [&str; 24] = [
    "--lora",
    "--exotic",
    "--allow-idle",
    "--pareto",
    "--no-refine",
    "--no-place",
    "--format=json",
    "--format=csv",
    "--format=markdown",
    "--precision=fp8",
    "--precision=nvfp4",
    "--hbm-profile=tight",
    "--for=torchtitan",
    "--for=any",
    "--stack=nanotron-2025",
    "--stack=jax-2025",
    "--tokens=1 T",
    "--objective=cost",
    "--objective=energy",
    "--terms=own",
    "--fit=none",
    "--sensitivity",
    "--wide",
    "--",
];
/// Beginnings of keys of a plan that end in a number.
const COUNTED: [&str; 2] = ["recompute=first-", "split=first-"];
const SETS: [&str; 12] = [
    "model.vocab",
    "model.hidden",
    "model.layers",
    "cluster.gpus",
    "cluster.nic",
    "gpu.hbm",
    "gpu.hbm_efficiency",
    "gpu.gemm.bf16.wave_exponent",
    "stack.jitter",
    "stack.overlap.tp",
    "stack.launches.x86",
    "market.site.pue",
];
const UNITS: [&str; 8] = ["", " GB", " Gb/s", " s", "e9 TB/s", "e-9 B", "%", "\u{0}"];

/// A number, in half of the cases one that many keys accept.
fn number_of(dice: &mut SplitMix) -> String {
    if dice.below(2) == 0 { one(dice, &["1", "2", "4", "8"]) } else { one(dice, &NUMBERS) }.to_owned()
}

/// Random command line.
fn line(dice: &mut SplitMix) -> Vec<String> {
    let mut args: Vec<String> = one(dice, &COMMANDS).split(' ').map(str::to_owned).collect();
    let listing = ["models", "clusters", "gpus", "stacks"].contains(&args[0].as_str());
    if !listing || dice.below(4) == 0 {
        args.push(if dice.below(2) == 0 { "llama3-8b" } else { one(dice, &MODELS) }.to_owned());
    }
    if !listing && args[0] != "budget" || dice.below(8) == 0 {
        args.push(if dice.below(2) == 0 { "dgx-h100-64" } else { one(dice, &CLUSTERS) }.to_owned());
    }
    for _ in 0..dice.below(5) {
        match dice.below(5) {
            0 => args.extend([one(dice, &OPTIONS).to_owned(), number_of(dice)]),
            1 => args.push(one(dice, &WORDS).to_owned()),
            2 => {
                let keys = [&KEYS[..], &COUNTED].concat();
                let item = format!("{}={}", one(dice, &keys), number_of(dice)).replace("-=", "-");
                args.extend([one(dice, &["--fix", "--forbid", "--plan", "--why-not"]).to_owned(), item]);
            }
            3 => {
                let value = format!("{}={}{}", one(dice, &SETS), one(dice, &NUMBERS), one(dice, &UNITS));
                args.extend(["--set".to_owned(), value.replace('\u{0}', "\u{7f}")]);
            }
            _ => {
                let at = dice.below(args.len());
                let letters: Vec<char> = args[at].chars().filter(|_| dice.below(12) > 0).collect();
                args[at] = letters.into_iter().collect();
            }
        }
    }
    args
}

/// Whether a process has computed for too long by the system's account, or lasted too long where the system keeps none.
fn hangs(process: u32, start: Instant) -> bool {
    let lasted = start.elapsed();
    let account = || {
        let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // user and system time, the 12th and 13th field behind the name, in hundredths of a second
        let fields: Vec<&str> = line.rsplit(')').next()?.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(Duration::from_millis(10 * ticks))
    };
    lasted > PATIENCE && (lasted > LONGEST_WAIT || account().is_none_or(|computed| computed > PATIENCE))
}

/// Exit code of the command, or how it breaks.
fn outcome(args: &[String]) -> Result<usize, String> {
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(args)
        .args(["--time-limit", "5"].iter().filter(|_| args[0] == "plan" && !args.iter().any(|arg| arg == "--")))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RAYON_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut pipe).unwrap_or_default());
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if hangs(child.id(), start) => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err(format!("runs for over {PATIENCE:?}, or waits for over {LONGEST_WAIT:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let talk = reader.join().unwrap();
    match status.code() {
        Some(0) => Ok(0),
        Some(code @ 1..=3) if !talk.trim().is_empty() && !talk.contains("panicked") => Ok(code as usize),
        code => Err(format!("ends with {code:?}: {talk}")),
    }
}

/// Number in a variable of the environment.
pub fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Seed in the variable `SEED`, or the clock's.
pub fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64))
}

#[test]
#[ignore = "minutes: thousands of processes"]
fn no_command_line_breaks_it() {
    let (count, seed) = (number("MUTATIONS", 10_000), seed());
    let (next, codes) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 4]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = |done: usize| println!("SEED={seed}: {done} of {count}, exit codes 0 to 3: {codes:?}");
    let failures: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < count) {
                let args = line(&mut SplitMix::new(seed ^ (at as u64).wrapping_mul(0x9E37_79B9)));
                match outcome(&args) {
                    Ok(code) => drop(codes[code].fetch_add(1, Ordering::Relaxed)),
                    Err(why) => found.push(format!("{args:?} {why}")),
                }
                if at > 0 && at.is_multiple_of(5_000) {
                    report(at);
                }
            }
            found
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    report(count);
    assert!(failures.is_empty(), "SEED={seed}: {} of {count}:\n{}", failures.len(), failures.join("\n"));
}
