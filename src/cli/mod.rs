//! Command line: parsing, dispatch to the commands, exit codes and signals.

mod budget;
mod calibrate;
mod calibration;
mod catalogue;
mod doctor;
mod effort;
mod emit;
mod explain;
mod files;
mod fit;
mod format;
mod glossary;
mod import;
mod intervals;
mod launch_files;
mod lint;
mod measure;
mod output;
mod placed;
mod plan;
mod plan_args;
mod pooled;
mod predict;
mod progress;
mod ranges;
mod refined;
mod runs;
mod serve;
mod shell;
mod sweep;
mod timing;
mod today;
mod tune;
mod validate;
mod verify;
mod why_not;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use meshwright_lab::probe::ProbeError;
use output::talk;

/// Outcome of a command that ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The command answered.
    Answered,
    /// No plan is feasible, the requested plan is not, or a check did not confirm it.
    NoPlan,
    /// A driver, library or device is missing.
    NoDevice,
}

/// Exit code when no plan is feasible, or a check failed.
const NO_PLAN: u8 = 1;
/// Exit code when a driver, library or device is missing.
const NO_DEVICE: u8 = 3;
/// Exit code for invalid input, as clap uses it.
const BAD_INPUT: u8 = 2;
/// Exit code after Ctrl-C: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Finds the fastest parallel layout of a training run on a cluster, and says how sure it is.
#[derive(Debug, Parser)]
#[command(name = "meshwright", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Rank every legal layout of a model on a cluster.
    Plan(Box<plan_args::Args>),
    /// Show one plan in detail: its time term by term, its memory rank by rank, why it does not run.
    Explain(explain::Args),
    /// Workloads × purchase options, each with its best plan: cost, days, energy, what to buy.
    Sweep(sweep::Args),
    /// Read a launch script or a framework's configuration into model, workload and plan.
    Import(import::Args),
    /// Write a plan as the files that a framework's launcher reads.
    Emit(emit::Args),
    /// Time a few plans, learn from them, and stop when it is decided.
    #[command(subcommand)]
    Tune(tune::TuneCommand),
    /// Check a launch file against a cluster: legality, memory, traffic by link, faster plans.
    Lint(lint::Args),
    /// Predict published runs, one for each row of a CSV file.
    Predict(predict::Args),
    /// Convert training logs to rows for `predict` and `validate`.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Score predictions against measured runs: errors by class, memory, regret of choices.
    Validate(validate::Args),
    /// Fit constants of the model to measured runs, cross-validated by configuration.
    Fit(fit::Args),
    /// Derive prediction intervals from the errors on measured runs.
    Intervals(intervals::Args),
    /// Check whether this host can run measurements: driver, libraries, links, clocks.
    Doctor(doctor::Args),
    /// Time the kernels of the top plans on the local GPU.
    Measure(measure::Args),
    /// Check the top plans on the local GPU: predicted against measured times, and a new ranking.
    Verify(verify::Args),
    /// Fit the kernel and link curves of a device to measured samples.
    Calibrate(calibrate::Args),
    /// Estimate weights, gradients, optimizer states, activations and the fewest GPUs that fit.
    Budget(budget::Args),
    /// List the models, or show one.
    Models(catalogue::Args),
    /// List the clusters, or show one.
    Clusters(catalogue::Args),
    /// List the GPUs, or show one.
    Gpus(catalogue::Args),
    /// List the software stacks, or show one.
    Stacks(catalogue::Args),
    /// Explain the keys of a plan and the terms of its prediction, with the settings of each framework.
    Glossary(glossary::Args),
    /// Open the planner as a page in a browser of this machine: the same search, with controls to move.
    Serve(serve::Args),
    /// Print a completion script.
    Completions(shell::Args),
    /// Print the manual page.
    Man,
}

/// Parses the arguments of a process, its name first, runs the command, and returns the exit code: 0 answered, 1 no feasible plan,
/// 2 invalid input, 3 no GPU where one is needed.
pub fn run<T: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = T>) -> u8 {
    // Without a handler Ctrl-C still ends the process, only with the shell's own message.
    let _ = ctrlc::set_handler(|| std::process::exit(INTERRUPTED));
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return parse_error(&error),
    };
    match answer(cli.command) {
        Ok(Outcome::Answered) => 0,
        Ok(Outcome::NoPlan) => NO_PLAN,
        Ok(Outcome::NoDevice) => NO_DEVICE,
        Err(error) => {
            talk(&format!("error: {error:#}"));
            if is_missing(&error) { NO_DEVICE } else { BAD_INPUT }
        }
    }
}

/// Whether the error means a missing driver, library or device rather than invalid input.
fn is_missing(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(ProbeError::Missing { .. })))
}

/// Help and version go to stdout; anything else is invalid input.
fn parse_error(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        talk(error.render().to_string().trim_end());
        return BAD_INPUT;
    }
    match output::print(&error.render().to_string()) {
        Ok(()) => 0,
        Err(error) => {
            talk(&format!("error: {error:#}"));
            BAD_INPUT
        }
    }
}

fn answer(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Emit(args) => emit::run(&args),
        Command::Tune(command) => tune::run(&command),
        Command::Lint(args) => lint::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Runs(command) => runs::run(&command),
        Command::Validate(args) => validate::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Intervals(args) => intervals::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Budget(args) => budget::run(&args),
        Command::Models(args) => catalogue::models(&args),
        Command::Clusters(args) => catalogue::clusters(&args),
        Command::Gpus(args) => catalogue::gpus(&args),
        Command::Stacks(args) => catalogue::stacks(&args),
        Command::Glossary(args) => glossary::run(&args),
        Command::Serve(args) => match serve::run(&args)? {},
        Command::Completions(args) => shell::completions(&args),
        Command::Man => shell::man(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
