//! `meshwright budget`: estimate of the memory from parameters and a byte recipe.

use anyhow::Result;

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::question::{BudgetQuestion, RecipeBudget};
use crate::report::{Sheet, csv, json};
use meshwright_engine::units::count;

/// Arguments of `budget`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: BudgetQuestion,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let answer = args.asked.solve()?;
    let budgets = &answer.budgets;
    let text = match args.format {
        OutputFormat::Json => json::text(&answer)?,
        OutputFormat::Csv => {
            csv::render_objects(&budgets.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?)?
        }
        OutputFormat::Table | OutputFormat::Markdown => {
            let title = format!(
                "{}: {} parameters, {} x {} tokens in flight, GPUs of {}; sizes in GiB",
                answer.model,
                count(answer.parameters.total as f64),
                answer.micro_batch,
                answer.seq_len,
                answer.hbm
            );
            output::sheets(&[sheet(title, budgets)], args.format)?
        }
    };
    output::print(&text)?;
    output::talk("fewest GPUs: states and activations shared out perfectly, no reserve; `plan` says what really fits");
    Ok(Outcome::Answered)
}

fn sheet(title: String, budgets: &[RecipeBudget]) -> Sheet {
    let columns = [
        "recipe",
        "B/param",
        "weights",
        "gradients",
        "optimizer",
        "total",
        "total bytes",
        "activations",
        "fewest GPUs",
    ];
    let mut sheet = Sheet::new(title, &columns);
    for budget in budgets {
        sheet.push([
            budget.recipe.to_owned(),
            budget.bytes_per_parameter.to_string(),
            format!("{:.1}", budget.weights_gib),
            format!("{:.1}", budget.gradients_gib),
            format!("{:.1}", budget.optimizer_gib),
            format!("{:.1}", budget.states_gib),
            format!("{:.2e}", budget.states_bytes),
            format!("{:.1}", budget.activations_gib),
            budget.fewest_gpus.to_string(),
        ]);
    }
    sheet
}
