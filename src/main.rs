//! The `meshwright` binary: all of it is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(meshwright::cli::run(std::env::args_os()))
}
