//! `meshwright explain`: one plan laid open.

use anyhow::{Result, anyhow};

use super::problem::ProblemArgs;
use super::{Outcome, OutputFormat, output};
use crate::cost::Costs;
use crate::report::{explain, json};
use crate::space::text::parse_plan;
use crate::space::{Rejection, can_be_sized, check};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    problem: ProblemArgs,
    /// The plan: "tp=8 cp=1 pp=16 vpp=8"; dp follows from the cluster.
    #[arg(long, value_name = "PLAN")]
    plan: String,
    /// Form of the answer.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Answers.
pub fn run(args: &Args) -> Result<Outcome> {
    let problem = args.problem.problem()?;
    let plan = parse_plan(&args.plan, &problem).map_err(|why| anyhow!("--plan: {why}"))?;
    let costs = Costs::new(&problem);
    let rejections = check(&costs, &plan);
    let evaluation = rejections.iter().all(has_price).then(|| costs.evaluate(&plan));
    let footprints =
        if evaluation.is_some() || can_be_sized(&plan, &problem) { costs.footprints(&plan) } else { Vec::new() };
    let text = if args.format == OutputFormat::Json {
        json::with_arguments(
            &json::explanation(&costs, evaluation.as_ref(), &footprints, &rejections)?,
            &args.problem.resolved(&problem, None),
        )?
    } else {
        let mut sheets = Vec::new();
        if let Some(evaluation) = &evaluation {
            sheets.push(explain::figures(&problem, evaluation));
            sheets.push(explain::waterfall(&problem, evaluation));
        }
        if !footprints.is_empty() {
            sheets.push(explain::memory(&problem, &footprints));
        }
        if !rejections.is_empty() {
            sheets.push(explain::reasons(&rejections));
        }
        output::sheets(&sheets, args.format)?
    };
    output::print(&text)?;
    for rejection in &rejections {
        output::talk(&format!("does not run: {rejection}"));
    }
    Ok(if rejections.is_empty() { Outcome::Answered } else { Outcome::NoPlan })
}

/// Whether a plan with this flaw still has a price: too large is priced, a degree that divides nothing is not.
fn has_price(rejection: &Rejection) -> bool {
    rejection.rule() == "out-of-memory"
}
