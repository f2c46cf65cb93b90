//! Launch files that `import` and `lint` read, and the question of `import`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::emit::release;
use super::error::QuestionError;
use super::run_python;
use crate::report::import as report;
use meshwright_engine::suggest::nearest_hint;
use meshwright_frameworks::MEGATRON;
use meshwright_frameworks::import::{self, Context, FileKind, Finding, Imported, Interpreter};
use meshwright_planner::catalog::{self, EntryKind, Overrides};

/// Flags that name a file to import and complete its missing settings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct LaunchFile {
    /// Launch script, Megatron argument list, or framework configuration.
    pub file: PathBuf,
    /// Kind of file [default: by its name and content].
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND"))]
    #[serde(default)]
    pub kind: Option<String>,
    /// Environment variable of the script: NAME=value.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE"))]
    #[serde(default)]
    pub var: Vec<String>,
    /// Vocabulary size, if only the tokenizer determines it.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..)))]
    #[serde(default)]
    pub vocab: Option<u32>,
    /// Model, if the file describes none: a name, a TOML file, or a Hugging Face config.json.
    #[cfg_attr(feature = "cli", arg(long, value_name = "MODEL"))]
    #[serde(default)]
    pub model: Option<String>,
    /// Release of Megatron core that the flags are held to, such as core_r0.13 [default: any one that has all].
    #[cfg_attr(feature = "cli", arg(long, value_name = "RELEASE"))]
    #[serde(default)]
    pub release: Option<String>,
    /// Run a configuration that is written in Python, by `python3` with stand-ins for the frameworks, instead of
    /// reading it: only for files that you trust.
    // Of the command line alone: a document from elsewhere does not make this machine run a program.
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(skip)]
    pub run_python: bool,
    /// Content of the file, instead of that on disk.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(default)]
    pub text: Option<String>,
}

/// Number of parent folders in which to look for a file that a script names.
const FOLDERS_ABOVE: usize = 8;

impl LaunchFile {
    /// Name of the file as given.
    pub fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// Model, workload and plan of the file, and what it leaves open; `arguments` are those of the script, and `sets` change the model that
    /// the question names.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds nothing that launches training; or `sets` change a model that is the file's.
    pub fn read(&self, arguments: &[String], sets: &Overrides) -> Result<Imported, QuestionError> {
        if let Some(setting) = sets.of_kind(EntryKind::Model).next().filter(|_| self.model.is_none()) {
            return Err(QuestionError::refused(format!(
                "--set {}: the model is the file's; only one that --model names can be changed",
                setting.item
            )));
        }
        let text = self.text.as_ref().map_or_else(|| catalog::read_text(&self.file), |text| Ok(text.clone()))?;
        let folder = self.file.parent().map(Path::to_path_buf).unwrap_or_default();
        let launcher = self.launcher(&folder);
        let (name, text) = launcher.clone().unwrap_or_else(|| (self.name(), text));
        let kind = self.kind.as_deref().map_or_else(|| Ok(import::kind_of(&name, &text)?), kind)?;
        let variables = self.var.iter().map(|item| {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| QuestionError::refused(format!("--var {item}: write NAME=VALUE")))?;
            Ok((name.trim_start_matches('$').to_owned(), value.to_owned()))
        });
        let variables = variables.collect::<Result<Vec<_>, QuestionError>>()?;
        let files = |name: &str| {
            // Next to the script, in the working directory, or in a parent folder of the script, since most scripts are
            // started from the root of their repository.
            let above = folder.ancestors().skip(1).take(FOLDERS_ABOVE).map(|folder| folder.join(name));
            let places = [folder.join(name), PathBuf::from(name)].into_iter().chain(above);
            places.filter(|path| path.is_file()).find_map(|path| catalog::read_text(&path).ok())
        };
        let release = release(&MEGATRON, self.release.as_deref())?;
        let python: Option<Interpreter> = if self.run_python { Some(&run_python::answer) } else { None };
        let context = Context { file: &name, variables: &variables, arguments, files: &files, release, python };
        let mut imported = import::read(&text, kind, &context)?;
        imported.findings.extend(launcher.map(|(script, _)| {
            let message = format!("read as `{script}` launches it");
            Finding::note("assumed", message).expected("--kind reads it alone")
        }));
        if let Some(model) = &self.model {
            imported.model = Some(catalog::model(model, sets)?);
            imported.findings.retain(|finding| !finding.asks_for_model() && finding.rule != "assumed-vocabulary");
        }
        if let (Some(vocab), Some(model)) = (self.vocab, &mut imported.model) {
            model.vocab = vocab;
            imported.findings.retain(|finding| finding.rule != "assumed-vocabulary");
        }
        Ok(imported)
    }

    /// The emitted script that starts this file, and the script's text; only where the user states no kind of file.
    fn launcher(&self, folder: &Path) -> Option<(String, String)> {
        let name = self.file.file_name()?.to_str().filter(|_| self.kind.is_none() && self.text.is_none())?;
        let beside = |name: &str| catalog::read_text(&folder.join(name)).ok();
        let (script, text) = import::launcher_of(name, &beside)?;
        Some((folder.join(script).display().to_string(), text))
    }
}

/// Kind of file by name.
fn kind(name: &str) -> Result<FileKind, QuestionError> {
    FileKind::named(name).ok_or_else(|| {
        let names: Vec<&str> = FileKind::names().collect();
        let nearest = nearest_hint(name, names.iter().copied());
        QuestionError::refused(format!(
            "--kind {name}: unknown kind of file{nearest}\n\nhint: there are: {}",
            names.join(", ")
        ))
    })
}

/// Question of `import`: a launch file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ImportQuestion {
    /// The launch file.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub file: LaunchFile,
    /// Cluster for the command line that is printed.
    #[cfg_attr(feature = "cli", arg(long, value_name = "CLUSTER"))]
    #[serde(default)]
    pub cluster: Option<String>,
    /// Arguments of the script itself.
    #[cfg_attr(feature = "cli", arg(last = true))]
    #[serde(default)]
    pub arguments: Vec<String>,
}

impl ImportQuestion {
    /// Model, workload and plan of the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds nothing that launches training.
    pub fn read(&self) -> Result<Imported, QuestionError> {
        self.file.read(&self.arguments, &Overrides::default())
    }

    /// Command line that evaluates an imported plan; `model` as the user would name it.
    pub fn command(&self, imported: &Imported, model: Option<&str>) -> String {
        let named = report::NamedInputs { model, cluster: self.cluster.as_deref(), ..report::NamedInputs::default() };
        report::command(imported, &named)
    }

    /// JSON document of the answer, the same as `import --format json` prints.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds nothing that launches training.
    pub fn answer(&self) -> Result<String, QuestionError> {
        let imported = self.read()?;
        let command = self.command(&imported, self.file.model.as_deref());
        Ok(report::json(&imported, &self.file.name(), command)?)
    }
}
