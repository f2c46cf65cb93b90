//! The command line: what is asked, who answers, and how errors and signals end.

mod budget;
mod calibrate;
mod catalogue;
mod economy;
mod emit;
mod explain;
mod files;
mod fit;
mod import;
mod intervals;
mod output;
mod plan;
mod predict;
mod problem;
mod progress;
mod refined;
mod runs;
mod shell;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use output::talk;

/// How a command ended, when it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Answered.
    Answered,
    /// There is no feasible plan, or the one asked about is not.
    NoPlan,
}

/// Exit code of bad input; clap's own too.
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
    Plan(plan::Args),
    /// Lay one plan open: its time term by term, its memory rank by rank, why it does not run.
    Explain(explain::Args),
    /// Read a launch script or a framework's configuration into model, workload and plan.
    Import(import::Args),
    /// Write a plan as the files that a framework's launcher takes.
    Emit(emit::Args),
    /// Predict published runs, one per row of a CSV file.
    Predict(predict::Args),
    /// Rows for `predict` and `validate` from training logs.
    #[command(subcommand)]
    Runs(runs::Command),
    /// Score predictions against measured runs: errors by class, memory, what a choice costs.
    Validate(validate::Args),
    /// Fit constants of the model to measured runs, cross-validated by configuration.
    Fit(fit::Args),
    /// Learn from the errors on measured runs how sure predictions are.
    Intervals(intervals::Args),
    /// Turn samples of a device into the curves that predictions use.
    Calibrate(calibrate::Args),
    /// Weights, gradients, optimizer, activations and the fewest GPUs, on the back of an envelope.
    Budget(budget::Args),
    /// List the models, or show one.
    Models(catalogue::Args),
    /// List the clusters, or show one.
    Clusters(catalogue::Args),
    /// List the GPUs, or show one.
    Gpus(catalogue::Args),
    /// List the software stacks, or show one.
    Stacks(catalogue::Args),
    /// Print a completion script.
    Completions(shell::Args),
    /// Print the manual page.
    Man,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people, fitted to the terminal.
    #[default]
    Table,
    /// For programs, versioned.
    Json,
    /// For documents.
    Markdown,
    /// For spreadsheets.
    Csv,
}

/// Reads the command line, answers, and says how it went: 0 answered, 1 no feasible plan, 2 bad input.
pub fn run() -> ExitCode {
    // Without a handler Ctrl-C still ends the process, only with the shell's own words.
    let _ = ctrlc::set_handler(|| std::process::exit(INTERRUPTED));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return parse_error(&error),
    };
    match answer(cli.command) {
        Ok(Outcome::Answered) => ExitCode::SUCCESS,
        Ok(Outcome::NoPlan) => ExitCode::FAILURE,
        Err(error) => {
            talk(&format!("error: {error:#}"));
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Help and version are answers, and go to stdout; the rest is bad input.
fn parse_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        talk(error.render().to_string().trim_end());
        return ExitCode::from(BAD_INPUT);
    }
    match output::print(&error.render().to_string()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            talk(&format!("error: {error:#}"));
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn answer(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Emit(args) => emit::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Runs(command) => runs::run(&command),
        Command::Validate(args) => validate::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Intervals(args) => intervals::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Budget(args) => budget::run(&args),
        Command::Models(args) => catalogue::models(&args),
        Command::Clusters(args) => catalogue::clusters(&args),
        Command::Gpus(args) => catalogue::gpus(&args),
        Command::Stacks(args) => catalogue::stacks(&args),
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
