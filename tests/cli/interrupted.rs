//! Sweeps that are killed at any moment, and go on.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::sweep::{SMALL, command, folder, text, well, written};

/// Names of the files of a finished sweep.
const FILES: [&str; 3] = ["results.jsonl", "results.csv", "page.html"];

/// Moments that a generator of equal steps over a golden ratio picks from a span, for they cover it evenly.
fn moments(span: Duration) -> impl Iterator<Item = Duration> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    (1_u32..).map(move |at| span.mul_f64((f64::from(at) * GOLDEN).fract()))
}

/// Kills sweeps so many times; each goes on where it was, and all end with the bytes of an undisturbed one.
fn killed(name: &str, times: usize) {
    let folder = folder(name);
    let file = written(&folder, SMALL);
    let whole = folder.join("whole");
    let start = Instant::now();
    well(&[&file, "--out", whole.to_str().unwrap()]);
    let mut moments = moments(start.elapsed());
    let read = |folder: &Path| FILES.map(|name| std::fs::read(folder.join(name)).unwrap());
    let undisturbed = read(&whole);
    let (mut kills, mut sweeps) = (0, 0);
    while kills < times {
        let out = folder.join("cut");
        let _ = std::fs::remove_dir_all(&out);
        loop {
            let args = [file.as_str(), "--out", out.to_str().unwrap(), "--resume"];
            let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(moments.next().unwrap());
            child.kill().unwrap(); // SIGKILL: nothing of its own can run any more
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.code(), None, "{}", text(&output.stderr));
            kills += 1;
        }
        sweeps += 1;
        assert_eq!(read(&out), undisturbed, "after {kills} kills");
    }
    println!("{kills} kills of {sweeps} sweeps");
}

#[test]
fn a_sweep_that_is_killed_at_any_moment_ends_with_the_same_bytes() {
    killed("sweep-kills", 24);
}

/// `cargo test --test cli thousand -- --ignored`: ten minutes.
#[test]
#[ignore = "takes ten minutes"]
fn a_sweep_that_is_killed_a_thousand_times_ends_with_the_same_bytes() {
    killed("sweep-thousand-kills", 1000);
}
