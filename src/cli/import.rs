//! `meshwright import`: reads a framework's file or launch script into model, workload and plan.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::files::{self, ForceArgs};
use super::format::OutputFormat;
use super::{Outcome, output};
use crate::files::Existing;
use crate::question::ImportQuestion;
use crate::report::import as report;
use meshwright_engine::suggest::did_you_mean;
use meshwright_frameworks::import::{Imported, Severity};

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    asked: ImportQuestion,
    /// TOML file to write the model to; the printed command line then names it.
    #[arg(long, value_name = "FILE")]
    model_out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Runs the command; the exit code is 1 if the file has errors.
pub fn run(args: &Args) -> Result<Outcome> {
    let file = &args.asked.file;
    let imported = args.asked.read()?;
    let mut model = file.model.clone();
    if let Some(path) = &args.model_out {
        write_model(&imported, path, args.force.existing())?;
        model = Some(path.display().to_string());
    }
    let command = args.asked.command(&imported, model.as_deref());
    let text = match args.format {
        OutputFormat::Json => report::json(&imported, &file.name(), command)?,
        OutputFormat::Csv => output::sheets(&[report::sheet(&imported, &file.name())], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let mut sheets = vec![report::sheet(&imported, &file.name())];
            if !imported.findings.is_empty() {
                sheets.push(report::findings(&imported.findings));
            }
            format!("{}\n{command}\n", output::sheets(&sheets, args.format)?)
        }
    };
    output::print(&text)?;
    talk(&imported);
    let failed = imported.findings.iter().any(|finding| finding.level == Severity::Error);
    Ok(if failed { Outcome::NoPlan } else { Outcome::Answered })
}

fn talk(imported: &Imported) {
    for unknown in &imported.unknown {
        let near = did_you_mean(unknown.nearest.as_deref());
        output::talk(&format!("{}: unknown: `{} {}`{near}", unknown.place, unknown.name, unknown.values.join(" ")));
    }
    if !imported.without_effect.is_empty() {
        output::talk(&format!("without effect on time and memory here: {}", imported.without_effect.join(" ")));
    }
}

/// Writes the model as TOML.
fn write_model(imported: &Imported, path: &Path, existing: Existing) -> Result<()> {
    let model = imported.model.as_ref().context("--model-out: the file describes no model")?;
    let text = report::model_toml(model).context("--model-out: the model has too many kinds of layer")?;
    files::write(path, &text, existing)
}
