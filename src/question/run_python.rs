//! Python as a process of its own: bounded in time and in the length of its answer, with no environment but its path.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest run, of the clock.
const LONGEST: Duration = Duration::from_secs(10);

/// Longest answer, bytes.
const MOST_BYTES: u64 = 32 << 20;

/// Variable that names another interpreter.
const INTERPRETER: &str = "MESHWRIGHT_PYTHON";

/// Standard output of a Python program for a request on its standard input.
///
/// # Errors
/// A sentence: there is no Python, it takes too long, it ends without an answer.
pub(super) fn answer(program: &str, request: &str) -> Result<String, String> {
    let python = std::env::var(INTERPRETER).unwrap_or_else(|_| "python3".to_owned());
    // Isolated: no environment, no packages of the user or of the site, no compiled files left behind.
    let mut child = Command::new(&python)
        .args(["-I", "-S", "-B", "-c", program])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("--run-python: `{python}` cannot be started: {error}; {INTERPRETER} names another"))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let answer = std::thread::scope(|scope| {
        // Each pipe has a thread: a program may read nothing, or write without end.
        let reading = scope.spawn(|| {
            let mut text = String::new();
            output.map(|output| output.take(MOST_BYTES).read_to_string(&mut text));
            text
        });
        scope.spawn(move || input.map(|mut input| input.write_all(request.as_bytes())));
        let ended = wait(&mut child);
        (ended, reading.join())
    });
    match answer {
        (true, Ok(text)) if !text.is_empty() => Ok(text),
        (true, _) => {
            Err("--run-python: no answer: Python ran over its time or its memory, or the file ended it".to_owned())
        }
        (false, _) => {
            Err(format!("--run-python: no answer: the file ran for over {} s and was stopped", LONGEST.as_secs()))
        }
    }
}

/// Whether a process ends in time; one that does not is ended.
fn wait(child: &mut Child) -> bool {
    let since = Instant::now();
    while since.elapsed() < LONGEST {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Ok(Some(_)) | Err(_) => return true,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
