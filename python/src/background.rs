//! Work beside the interpreter: its lock released, signals and progress looked at meanwhile.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use meshwright::search::Control;
use pyo3::prelude::*;

/// Interval at which signals are handled and progress is passed on.
const TICK: Duration = Duration::from_millis(50);

/// State that the work and the interpreter's thread share.
#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    done: AtomicU64,
    all: AtomicU64,
}

/// Result of work on a thread of its own. The interpreter's lock is free meanwhile; every tick, the calling thread handles signals
/// and calls `progress(done, all)`. After `limit` seconds the work is asked to stop, and its result so far is the result.
///
/// # Errors
///
/// Error that a signal handler (Ctrl-C) or `progress` raises, once the work has stopped.
pub fn run<T: Send>(
    py: Python,
    progress: Option<&Bound<PyAny>>,
    limit: Option<f64>,
    work: impl FnOnce(&Control) -> T + Send,
) -> PyResult<T> {
    let shared = Shared::default();
    let start = Instant::now();
    let control = |done, all| {
        // Parts of the work that count nothing ask whether to stop, at 0.
        if done > 0 {
            shared.done.store(done, Ordering::Relaxed);
            shared.all.store(all, Ordering::Relaxed);
        }
        let over = limit.is_some_and(|limit| start.elapsed().as_secs_f64() > limit);
        if over || shared.stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    thread::scope(|scope| {
        let (send, receive) = channel();
        let receive = Mutex::new(receive);
        let worker = scope.spawn(|| {
            let send = send;
            // The receiver lives until this thread ends, so that sending cannot fail.
            let _ = send.send(work(&control));
        });
        let wait = || receive.lock().map_err(|_| RecvTimeoutError::Disconnected)?.recv_timeout(TICK);
        let mut raised = None;
        let mut told = 0;
        let result = loop {
            match py.detach(wait) {
                Ok(result) => break Some(result),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let seen = py.check_signals().and_then(|()| tell(progress, &shared, &mut told));
                    if let Err(error) = seen {
                        shared.stopped.store(true, Ordering::Relaxed);
                        raised = Some(error);
                    }
                }
            }
        };
        match (raised, result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            // Only a panic ends the work without a result; it goes on in the caller's thread.
            (None, None) => match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("work that returned has sent its result"),
            },
        }
    })
}

/// Passes the progress on, if there is any.
fn tell(progress: Option<&Bound<PyAny>>, shared: &Shared, told: &mut u64) -> PyResult<()> {
    let (done, all) = (shared.done.load(Ordering::Relaxed), shared.all.load(Ordering::Relaxed));
    if let Some(progress) = progress
        && done != *told
    {
        *told = done;
        progress.call1((done, all))?;
    }
    Ok(())
}
