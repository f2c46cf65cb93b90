//! Options of `meshwright plan`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use super::economy::EconomyArgs;
use super::format::OutputFormat;
use super::placed::PlaceArgs;
use super::problem::ProblemArgs;
use super::refined::RefineArgs;
use meshwright_engine::problem::Problem;
use meshwright_engine::stack::Family;
use meshwright_frameworks::Framework;
use meshwright_planner::space::Restrictions;

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(in crate::cli) problem: ProblemArgs,
    /// Keep only plans with this value: tp=8, ep=1..64
    ///
    /// Keys are those of a plan (`meshwright glossary`): schedule=1f1b, recompute=full.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Plans considered")]
    pub(in crate::cli) fix: Vec<String>,
    /// Leave out plans with this value.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Plans considered")]
    pub(in crate::cli) forbid: Vec<String>,
    /// Keep only plans that this framework's files can express
    ///
    /// megatron, megatron-bridge, deepspeed, torchtitan, accelerate, nanotron; `any` allows every setting. By default the
    /// framework of the stack.
    #[arg(long = "for", value_name = "FRAMEWORK", help_heading = "Plans considered")]
    pub(in crate::cli) framework: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) economy: EconomyArgs,
    /// Also consider mechanisms that no published run has shown
    ///
    /// Such as activation offload over PCIe.
    #[arg(long, help_heading = "Plans considered")]
    pub(in crate::cli) exotic: bool,
    /// Also consider plans that leave GPUs idle.
    #[arg(long, help_heading = "Plans considered")]
    pub(in crate::cli) allow_idle: bool,
    /// Show the Pareto front of step time, memory and GPUs.
    #[arg(long, conflicts_with = "objective", help_heading = "Search")]
    pub(in crate::cli) pareto: bool,
    /// Stop after this many seconds, with the optimality gap
    #[arg(long, value_name = "SECONDS", help_heading = "Search")]
    pub(in crate::cli) time_limit: Option<f64>,
    /// Solve again with neighbouring degrees and better hardware
    ///
    /// Each degree one step lower and higher, and 10 % more of each hardware figure.
    #[arg(long, conflicts_with_all = ["pareto", "objective"], help_heading = "Search")]
    pub(in crate::cli) sensitivity: bool,
    /// Number of plans to show.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Output")]
    pub(in crate::cli) top: u32,
    #[command(flatten)]
    pub(in crate::cli) refine: RefineArgs,
    #[command(flatten)]
    pub(in crate::cli) place: PlaceArgs,
    /// Show every figure of each plan
    ///
    /// Intervals, tokens per second, headroom.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) wide: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table", help_heading = "Output")]
    pub(in crate::cli) format: OutputFormat,
    /// Framework whose files to write for the recommended plan
    ///
    /// megatron, megatron-bridge, deepspeed, torchtitan, accelerate, nanotron; with refined stages if those are faster. Without
    /// --for, only plans that this framework can express are kept.
    #[arg(long, value_name = "FRAMEWORK", requires = "out", help_heading = "Launch files")]
    pub(in crate::cli) emit: Option<String>,
    /// Folder for the files of --emit, created if missing.
    #[arg(long, value_name = "DIR", requires = "emit", help_heading = "Launch files")]
    pub(in crate::cli) out: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long, requires = "emit", help_heading = "Launch files")]
    pub(in crate::cli) force: bool,
}

pub(super) fn restrictions(
    args: &Args,
    limited_to: Option<&'static Framework>,
    problem: &Problem,
) -> Result<Restrictions> {
    let mut restrictions = Restrictions::default();
    for item in &args.fix {
        restrictions.fix(item).map_err(|why| anyhow!("--fix {item}: {why}"))?;
    }
    for item in &args.forbid {
        restrictions.forbid(item).map_err(|why| anyhow!("--forbid {item}: {why}"))?;
    }
    if args.allow_idle {
        restrictions.allow_idle();
    }
    match (&args.framework, limited_to) {
        (_, Some(framework)) => restrictions.for_limits(framework.limits, !problem.model().is_moe()),
        (Some(name), None) => restrictions.for_family(family(name)?),
        (None, None) => {}
    }
    Ok(restrictions)
}

/// Framework by name; `any` allows every schedule.
fn family(name: &str) -> Result<Family> {
    if name == "any" {
        return Ok(Family::Internal);
    }
    let from: StrDeserializer<NameError> = name.into_deserializer();
    Family::deserialize(from).map_err(|error| anyhow!("--for {name}: {error}"))
}
