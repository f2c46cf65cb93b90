//! `meshwright import`: reads a framework's file or launch script into model, workload and plan.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::report::import as report;
use meshwright_frameworks::import::{self, Context, FileKind, Imported, Severity};
use meshwright_planner::catalog::{self, Overrides};

/// Flags that name a file to import and complete what it leaves open.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// Launch script, Megatron argument list, or framework configuration.
    pub file: PathBuf,
    /// Kind of file [default: by its name and content].
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Environment variable of the script: NAME=value.
    #[arg(long, value_name = "NAME=VALUE")]
    pub var: Vec<String>,
    /// Vocabulary size, if only the tokenizer determines it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub vocab: Option<u32>,
    /// Model, if the file describes none: a name, a TOML file, or a Hugging Face config.json.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
}

/// Number of parent folders in which to look for a file that a script names.
const FOLDERS_ABOVE: usize = 8;

/// Largest file to read; launch files have kilobytes.
const LARGEST: u64 = 16 * 1024 * 1024;

fn text_of(path: &Path) -> Result<String> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("{shown}: cannot be read"))?.len();
    if size > LARGEST {
        bail!("{shown}: {size} bytes are more than any launch file has");
    }
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot be read"))?;
    String::from_utf8(bytes).with_context(|| format!("{shown}: it is not text"))
}

impl FileArgs {
    /// Name of the file as given.
    pub fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// Reads and parses the file.
    pub fn read(&self, arguments: &[String]) -> Result<Imported> {
        let text = text_of(&self.file)?;
        let name = self.name();
        let kind = self.kind.as_deref().map(kind).transpose()?.unwrap_or_else(|| import::kind_of(&name, &text));
        let variables = self.var.iter().map(|item| {
            let (name, value) = item.split_once('=').with_context(|| format!("--var {item}: write NAME=VALUE"))?;
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        });
        let variables = variables.collect::<Result<Vec<_>>>()?;
        let folder = self.file.parent().map(Path::to_path_buf).unwrap_or_default();
        let files = |name: &str| {
            // next to the script, in the working directory, or in a parent folder of the script, since most scripts are
            // started from the root of their repository
            let above = folder.ancestors().skip(1).take(FOLDERS_ABOVE).map(|folder| folder.join(name));
            let places = [folder.join(name), PathBuf::from(name)].into_iter().chain(above);
            places.filter(|path| path.is_file()).find_map(|path| text_of(&path).ok())
        };
        let context = Context { file: &name, variables: &variables, arguments, files: &files };
        let mut imported = import::read(&text, kind, &context)?;
        if let Some(model) = &self.model {
            imported.model = Some(catalog::model(model, &Overrides::default())?);
            imported.findings.retain(|finding| finding.rule != "missing-flag" || finding.level != Severity::Error);
            imported.findings.retain(|finding| !matches!(finding.rule, "assumed-vocabulary"));
        }
        if let (Some(vocab), Some(model)) = (self.vocab, &mut imported.model) {
            model.vocab = vocab;
            imported.findings.retain(|finding| finding.rule != "assumed-vocabulary");
        }
        Ok(imported)
    }
}

fn kind(name: &str) -> Result<FileKind> {
    FileKind::named(name).with_context(|| {
        let names: Vec<&str> = FileKind::names().collect();
        let nearest = catalog::nearest(name, names.iter().copied());
        let nearest = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        format!("--kind {name}: unknown kind of file{nearest}\n\nhint: there are: {}", names.join(", "))
    })
}

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Cluster for the command line that is printed.
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// TOML file to write the model to; the printed command line then names it.
    #[arg(long, value_name = "FILE")]
    model_out: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Arguments of the script itself.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the command; the exit code is 1 if the file has errors.
pub fn run(args: &Args) -> Result<Outcome> {
    let imported = args.file.read(&args.arguments)?;
    let mut model = args.file.model.clone();
    if let Some(path) = &args.model_out {
        write_model(&imported, path, args.force)?;
        model = Some(path.display().to_string());
    }
    let command = report::command(&imported, model.as_deref(), args.cluster.as_deref());
    let text = match args.format {
        OutputFormat::Json => report::json(&imported, &args.file.name(), command)?,
        OutputFormat::Csv => output::sheets(&[report::sheet(&imported, &args.file.name())], args.format)?,
        OutputFormat::Table | OutputFormat::Markdown => {
            let mut sheets = vec![report::sheet(&imported, &args.file.name())];
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
        let near = unknown.nearest.as_ref().map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        output::talk(&format!("{}: unknown: `{} {}`{near}", unknown.place, unknown.name, unknown.values.join(" ")));
    }
    if !imported.without_effect.is_empty() {
        output::talk(&format!("without effect on time and memory here: {}", imported.without_effect.join(" ")));
    }
}

/// Writes a temporary file and renames it, so that no partial file has the target's name.
fn write_model(imported: &Imported, path: &Path, force: bool) -> Result<()> {
    let shown = path.display();
    let model = imported.model.as_ref().context("--model-out: the file describes no model")?;
    let text = report::model_toml(model).context("--model-out: the model has too many kinds of layer")?;
    if path.exists() && !force {
        bail!("{shown}: the file exists\n\nhint: --force overwrites it");
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text).with_context(|| format!("{shown}: cannot be written"))?;
    std::fs::rename(&beside, path).with_context(|| format!("{shown}: cannot be written"))
}
