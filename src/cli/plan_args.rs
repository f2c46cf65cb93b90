//! Options of `meshwright plan`.

use std::path::PathBuf;

use super::format::OutputFormat;
use crate::question::{PlanOptions, PlanQuestion, Question};
use meshwright_frameworks::name_list;

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(in crate::cli) problem: Question,
    #[command(flatten)]
    pub(in crate::cli) plans: PlanOptions,
    /// Show every figure of each plan
    ///
    /// Intervals, tokens per second, headroom.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) wide: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table", help_heading = "Output")]
    pub(in crate::cli) format: OutputFormat,
    /// Write the answer as a report in HTML
    ///
    /// One file, readable without a network and without scripts: plans, where time goes, memory, pipeline.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) html: Option<PathBuf>,
    /// Framework whose files to write for the recommended plan.
    #[arg(long, value_name = "FRAMEWORK", requires = "out", help_heading = "Launch files", long_help = emit_help())]
    pub(in crate::cli) emit: Option<String>,
    /// Folder for the files of --emit, created if missing.
    #[arg(long, value_name = "DIR", requires = "emit", help_heading = "Launch files")]
    pub(in crate::cli) out: Option<PathBuf>,
    /// Release of the framework of --emit, such as core_r0.16 for megatron [default: the newest known].
    #[arg(long, value_name = "RELEASE", requires = "emit", help_heading = "Launch files")]
    pub(in crate::cli) release: Option<String>,
    /// Overwrite existing files.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) force: bool,
}

impl Args {
    /// Question that the arguments ask.
    pub(super) fn question(&self) -> PlanQuestion {
        PlanQuestion { problem: self.problem.clone(), plans: self.plans.clone() }
    }
}

/// Long help of `--emit`.
fn emit_help() -> String {
    format!(
        "Framework whose files to write for the recommended plan\n\n{}; with refined stages if those are faster. \
        Without --for, only plans that this framework can express are kept.",
        name_list()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn flags_and_documents_have_the_same_defaults() {
        let line = Line::parse_from(["plan", "llama3-8b", "dgx-h100-8"]);
        let document = r#"{"problem": {"model": "llama3-8b", "cluster": "dgx-h100-8"}}"#;
        assert_eq!(line.args.question(), serde_json::from_str(document).unwrap());
    }

    #[test]
    fn a_document_asks_as_flags_do() {
        let flags = "plan m c --gpus 64 --precision fp8-block --risk 0.1 --fit none --fix tp=8 --for megatron --tokens 15T \
                     --objective cost --checkpoints memory --top 2 --refine 1 --no-place";
        let line = Line::parse_from(flags.split_whitespace());
        let document = r#"{
            "problem": {
                "model": "m",
                "cluster": "c",
                "options": {"gpus": 64, "precision": "fp8-block", "risk": 0.1, "fit": "none"}
            },
            "plans": {
                "fix": ["tp=8"],
                "for": "megatron",
                "economy": {"tokens": "15 T", "objective": "cost", "checkpoints": "memory"},
                "top": 2,
                "refine": {"refine": 1},
                "place": {"no_place": true}
            }
        }"#;
        assert_eq!(line.args.question(), serde_json::from_str(document).unwrap());
        let unknown = r#"{"problem": {"model": "m", "cluster": "c", "options": {"gpu": 64}}}"#;
        assert!(serde_json::from_str::<PlanQuestion>(unknown).unwrap_err().to_string().contains("unknown field `gpu`"));
    }
}
