//! `meshwright completions` and `meshwright man`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Outcome, output};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to complete for.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints a completion script for the shell.
pub fn completions(args: &Args) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "meshwright", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Answered)
}

/// Prints the manual page in roff.
pub fn man() -> Result<Outcome> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(Outcome::Answered)
}
