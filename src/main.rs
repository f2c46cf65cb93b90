//! The `meshwright` binary: all of it is in the library's `cli`.

use std::process::ExitCode;

use rayon::ThreadPoolBuilder;

fn main() -> ExitCode {
    // The main thread is one of those that search, rather than one that waits for them. An error is reported on first use.
    let _ = ThreadPoolBuilder::new().use_current_thread().build_global();
    ExitCode::from(meshwright::cli::run(std::env::args_os()))
}
