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
    /// Keep only plans with this value: tp=8, ep=1..64, schedule=1f1b, recompute=full.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(in crate::cli) fix: Vec<String>,
    /// Leave out plans with this value.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(in crate::cli) forbid: Vec<String>,
    /// Keep only plans that this framework's files can express: megatron, deepspeed, torchtitan, …; `any` allows every
    /// setting [default: the framework of the stack].
    #[arg(long = "for", value_name = "FRAMEWORK")]
    pub(in crate::cli) framework: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) economy: EconomyArgs,
    /// Also consider mechanisms that no published run has shown, such as activation offload over PCIe.
    #[arg(long)]
    pub(in crate::cli) exotic: bool,
    /// Also consider plans that leave GPUs idle.
    #[arg(long)]
    pub(in crate::cli) allow_idle: bool,
    /// Show the Pareto front of step time, memory and GPUs.
    #[arg(long, conflicts_with = "objective")]
    pub(in crate::cli) pareto: bool,
    /// Stop after this many seconds; the answer then gives the optimality gap.
    #[arg(long, value_name = "SECONDS")]
    pub(in crate::cli) time_limit: Option<f64>,
    /// Solve again with each degree one step lower and higher, and with 10 % more of each hardware figure.
    #[arg(long, conflicts_with_all = ["pareto", "objective"])]
    pub(in crate::cli) sensitivity: bool,
    /// Number of plans to show.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) top: u32,
    #[command(flatten)]
    pub(in crate::cli) refine: RefineArgs,
    #[command(flatten)]
    pub(in crate::cli) place: PlaceArgs,
    /// Show every figure of each plan: intervals, tokens per second, headroom.
    #[arg(long)]
    pub(in crate::cli) wide: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    pub(in crate::cli) format: OutputFormat,
    /// Framework whose files to write for the fastest plan (with refined stages if those make it fastest): megatron,
    /// megatron-bridge, deepspeed, torchtitan, accelerate, nanotron. Without --for, only plans that this framework can
    /// express are kept.
    #[arg(long, value_name = "FRAMEWORK", requires = "out")]
    pub(in crate::cli) emit: Option<String>,
    /// Folder for the files of --emit, created if missing.
    #[arg(long, value_name = "DIR", requires = "emit")]
    pub(in crate::cli) out: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long, requires = "emit")]
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
