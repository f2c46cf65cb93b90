//! Sweeps and studies of tune that are killed at any moment, and go on.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::mutations::{number, seed};
use super::sweep::{SMALL, text};
use super::tune::CANDIDATES;
use meshwright_planner::split_mix::SplitMix;

/// Command whose folder is the worker's own, so that nothing that it writes names another.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end, and gives its time.
fn well(folder: &Path, args: &[&str]) -> Duration {
    let start = Instant::now();
    let output = command(folder, args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    start.elapsed()
}

/// Whether a command was killed before it ended: at a random moment of a span and a tenth beyond it, or in the last third of that,
/// where files take their places.
fn killed(folder: &Path, args: &[&str], span: Duration, dice: &mut SplitMix) -> bool {
    let mut child = command(folder, args).spawn().unwrap();
    let share = dice.below(1 << 20) as f64 / f64::from(1 << 20);
    let moment = if dice.below(2) == 0 { share } else { (2.0 + share) / 3.0 };
    std::thread::sleep(span.mul_f64(1.1 * moment));
    child.kill().unwrap(); // SIGKILL: nothing of its own can run any more
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), None | Some(0)), "{args:?}: {}", text(&output.stderr));
    output.status.code().is_none()
}

/// Names and bytes of all files below a folder, but for hidden ones.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                walk(root, &path, into);
            } else if !path.file_name().unwrap().to_string_lossy().starts_with('.') {
                into.insert(path.strip_prefix(root).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

#[track_caller]
fn same(folder: &Path, undisturbed: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = files(folder);
    let differs: Vec<&PathBuf> =
        undisturbed.keys().chain(now.keys()).filter(|path| now.get(*path) != undisturbed.get(*path)).collect();
    assert!(differs.is_empty(), "{differs:?} differ from those of an undisturbed run");
}

/// Kills of all workers by the phase that they struck.
struct Kills {
    name: &'static str,
    wanted: usize,
    seed: u64,
    by_phase: Mutex<BTreeMap<String, usize>>,
}

impl Kills {
    /// Counts a kill; every fiftieth prints how many there are.
    fn count(&self, phase: String) {
        let mut by_phase = self.by_phase.lock().unwrap();
        *by_phase.entry(phase).or_default() += 1;
        let all: usize = by_phase.values().sum();
        if all.is_multiple_of(50) {
            let _ = writeln!(std::io::stderr(), "{}: {all} of {} kills", self.name, self.wanted);
        }
    }

    fn are_enough(&self) -> bool {
        self.by_phase.lock().unwrap().values().sum::<usize>() >= self.wanted
    }
}

/// Starts lives, each in a new folder, on several threads until there are enough kills; returns their number by phase.
fn endured(
    name: &'static str,
    wanted: usize,
    life: impl Fn(&Path, &mut SplitMix, &Kills) + Sync,
) -> BTreeMap<String, usize> {
    let kills = Kills { name, wanted, seed: seed(), by_phase: Mutex::default() };
    let workers = 2 * std::thread::available_parallelism().map_or(1, usize::from); // most wait for the disk
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (kills, life) = (&kills, &life);
            scope.spawn(move || {
                let mut dice = SplitMix::new(kills.seed ^ worker as u64);
                while !kills.are_enough() {
                    let folder = tempfile::tempdir().unwrap();
                    life(folder.path(), &mut dice, kills);
                }
            });
        }
    });
    let Kills { name, seed, by_phase, .. } = kills;
    let by_phase = by_phase.into_inner().unwrap();
    let all: usize = by_phase.values().sum();
    let _ = writeln!(std::io::stderr(), "{name}: {all} kills, SEED={seed}: {by_phase:?}");
    by_phase
}

/// Phase of a sweep by the files that are there.
fn phase(out: &Path) -> &'static str {
    let has = |name: &str| out.join(name).exists();
    let lines = std::fs::read_to_string(out.join("results.part")).map_or(0, |text| text.lines().count());
    match lines {
        _ if has("page.html") => "reports written",
        _ if has("results.csv") => "page",
        _ if has("results.jsonl") => "table",
        12 => "ordering",
        0 => "start",
        _ => "lines",
    }
}

/// Kills sweeps; each goes on where it was, and all end with the bytes of an undisturbed one.
fn sweeps(wanted: usize) -> BTreeMap<String, usize> {
    let args = ["sweep", "sweep.toml", "--out", "out", "--resume"];
    let written = |folder: &Path| std::fs::write(folder.join("sweep.toml"), SMALL).unwrap();
    let whole = tempfile::tempdir().unwrap();
    written(whole.path());
    let span = well(whole.path(), &args);
    let undisturbed = files(whole.path());
    assert_eq!(undisturbed.len(), 4);
    endured("sweep", wanted, |folder, dice, kills| {
        written(folder);
        while killed(folder, &args, span, dice) {
            kills.count(phase(&folder.join("out")).to_owned());
        }
        same(folder, &undisturbed);
    })
}

/// Commands of a study, and the file whose change says that a command has done its work; `apply` is repeated in any case.
const STUDY: [(&[&str], Option<&str>); 6] = [
    (
        &["init", "llama3-8b", "dgx-h100-8", "--global-batch", "128", "--candidates", "candidates.csv"],
        Some("trials/tune.toml"),
    ),
    (&["next", "--count", "2"], Some("trials/trials.csv")),
    (&["add", "log"], Some("trials/trials.csv")),
    (&["next", "--anyway"], Some("trials/trials.csv")),
    (&["add", "--measured", "measured.csv"], Some("trials/trials.csv")),
    (&["apply", "--force"], None),
];

/// Fifth candidate, so that one is left to try whichever of the others come first.
const FIFTH: &str = "e,Megatron-LM,H100,8,32,4096,32,8,14336,128256,8192,4,1,1,2,1,2,128,none,1\n";

/// Kills every command of studies; each is then as if the command had not begun, or had ended, and the study goes on.
fn studies(wanted: usize) -> BTreeMap<String, usize> {
    let written = |folder: &Path| {
        let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/megatron-llama3-8b.log");
        std::fs::copy(log, folder.join("log")).unwrap();
        std::fs::write(folder.join("candidates.csv"), [CANDIDATES, FIFTH].concat()).unwrap();
        let mut rows = CANDIDATES.lines();
        let head = rows.next().unwrap();
        let timed = rows.find(|row| row.starts_with("c,")).unwrap();
        let measured = format!("{head},step_time_s\n{timed},15.5\n");
        std::fs::write(folder.join("measured.csv"), measured).unwrap();
    };
    let steps = STUDY.map(|(args, key)| ([&["tune"], args, &["--dir", "trials"]].concat(), key));
    let whole = tempfile::tempdir().unwrap();
    written(whole.path());
    let undisturbed = steps.each_ref().map(|(args, _)| (well(whole.path(), args), files(whole.path())));
    endured("tune", wanted, |folder, dice, kills| {
        written(folder);
        for ((args, key), (span, after)) in steps.iter().zip(&undisturbed) {
            let done = |folder: &Path| {
                key.is_some_and(|key| std::fs::read(folder.join(key)).ok().as_ref() == after.get(Path::new(key)))
            };
            if killed(folder, args, *span, dice) {
                kills.count(format!("{} {}", args[1], if done(folder) { "done" } else { "begun" }));
                if !done(folder) {
                    well(folder, args);
                }
            }
            same(folder, after);
        }
        // what was killed left drafts, which the next command that writes has removed
        well(folder, &["tune", "next", "--anyway", "--dir", "trials"]);
        let left = std::fs::read_dir(folder.join("trials")).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(left.filter(|path| path.extension().is_some_and(|end| end == "new")).count(), 0);
    })
}

#[test]
fn a_sweep_that_is_killed_at_any_moment_ends_with_the_same_bytes() {
    sweeps(24);
}

#[test]
fn a_study_that_is_killed_at_any_moment_goes_on_with_the_same_bytes() {
    studies(24);
}

/// `KILLS=1000 SEED=1 cargo test --test cli many_times -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn a_sweep_that_is_killed_many_times_ends_with_the_same_bytes() {
    let phases = sweeps(number("KILLS", 1000));
    assert!(phases.len() >= 5, "kills struck only {phases:?}");
}

#[test]
#[ignore = "takes minutes"]
fn a_study_that_is_killed_many_times_goes_on_with_the_same_bytes() {
    let phases = studies(number("KILLS", 1000));
    let ended = |how: &str| phases.keys().filter(|phase| phase.ends_with(how)).count();
    assert!(ended("begun") == 4 && ended("done") >= 2, "kills struck only {phases:?}");
}
