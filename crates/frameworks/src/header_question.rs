//! Question behind an emitted plan, as one line of the header of its files: what a file cannot say is read from there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::accelerate::import as accelerate;
use crate::deepspeed::import as deepspeed;
use crate::import::finding::{DOCUMENTS, Finding, Severity};
use crate::import::imported::Imported;
use crate::import::known;
use meshwright_engine::model::Model;
use meshwright_engine::problem::Problem;
use meshwright_engine::workload::Adaptation;
use meshwright_planner::catalog;

/// Words before the question in its line.
const LABEL: &str = "question:";

/// Comment in the first lines of a Slurm job, before the name of the script that it runs.
const JOB: &str = "# Slurm job: ";

/// Lines of a file in which its header is looked for.
const HEADER: usize = 24;

/// Kinds of files that leave the model, and which of its weights are trained, to the training program.
const CODE_TRAINS: [&str; 2] = [accelerate::KIND, deepspeed::KIND];

/// End of the finding on a file that an experiment of Primus builds on.
const BASE: &str = "is not read: what it alone sets is taken as not set";

/// Parts of a question that a header states, under the names that the command line has for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeaderQuestion {
    /// Name of the model in the catalogue; none for a model that the catalogue lacks.
    model: Option<&'static str>,
    /// File that a model which the catalogue lacks was read from.
    model_file: Option<String>,
    /// Name of the software stack in the catalogue; none for one that the catalogue lacks.
    stack: Option<&'static str>,
    /// GPUs in all.
    gpus: Option<u32>,
    /// Sequences per step.
    global_batch: Option<u32>,
    /// Tokens per sequence.
    seq_len: Option<u32>,
    /// Tokens of a document that is packed into a sequence.
    document_len: Option<u32>,
    /// Low-rank adapters; none where all weights are trained.
    adaptation: Option<Adaptation>,
    /// Tokens of the busiest expert rank relative to the mean.
    imbalance: Option<f64>,
}

/// The name in the catalogue that a word is.
fn catalogued(files: &[(&'static str, &str)], name: &str) -> Option<&'static str> {
    files.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// Title of a stack in its file.
#[derive(Deserialize)]
struct StackTitle {
    name: String,
}

/// Name in the catalogue of the stack with a title.
fn stack_titled(title: &str) -> Option<&'static str> {
    static TITLES: OnceLock<BTreeMap<String, &'static str>> = OnceLock::new();
    let read = |text| catalog::parse_toml::<StackTitle>(catalog::head(text));
    let title_of = |text| read(text).expect("tests read every built-in stack").name;
    let titles =
        TITLES.get_or_init(|| catalog::files::STACKS.iter().map(|(name, text)| (title_of(text), *name)).collect());
    titles.get(title).copied()
}

/// File that a model of no catalogue was read from; none where its name would be several words, or no text.
fn model_file(model: &Model) -> Option<&str> {
    let is_word = |name: &&str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
    Some(model.source.as_str()).filter(is_word).filter(|_| known::name_of(model).is_none())
}

/// Line of a header that states the question of a problem: `question: llama3-8b --gpus 64 …`.
pub(crate) fn line(problem: &Problem) -> String {
    let workload = problem.workload();
    let mut words = vec![LABEL.to_owned()];
    words.extend(known::name_of(problem.model()).map(str::to_owned));
    words.push(format!(
        "--gpus {} --global-batch {} --seq-len {}",
        problem.cluster().gpus,
        workload.global_batch,
        workload.seq_len
    ));
    words.extend(stack_titled(&problem.stack().name).map(|stack| format!("--stack {stack}")));
    words.extend(model_file(problem.model()).map(|file| format!("--model {file}")));
    words.extend(match workload.adaptation {
        Adaptation::Full => None,
        Adaptation::Lora => Some("--lora".to_owned()),
        Adaptation::LoraAttention => Some("--lora --lora-targets attention".to_owned()),
    });
    words.extend(workload.document_len.map(|tokens| format!("--document-len {tokens}")));
    if workload.imbalance > 1.0 {
        words.push(format!("--imbalance {}", workload.imbalance));
    }
    words.join(" ")
}

/// Script that a Slurm job of ours runs, by its header.
pub(crate) fn script_of_job(text: &str) -> Option<&str> {
    let line = text.lines().take(HEADER).find_map(|line| line.strip_prefix(JOB))?;
    line.split_whitespace().next()
}

impl HeaderQuestion {
    /// The question in the header of a file; none where its first lines have none.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut lines = text.lines().take(HEADER).filter_map(|line| line.strip_prefix("# "));
        let first = lines.find_map(|line| line.strip_prefix(LABEL))?;
        let more = lines.take_while(|line| line.starts_with(' '));
        let words: Vec<&str> = std::iter::once(first).chain(more).flat_map(str::split_whitespace).collect();
        let value = |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
        let number = |flag: &str| value(flag)?.parse::<u32>().ok().filter(|number| *number > 0);
        Some(Self {
            model: words.first().and_then(|name| catalogued(catalog::files::MODELS, name)),
            model_file: value("--model").filter(|name| !name.contains(char::is_control)).map(str::to_owned),
            stack: value("--stack").and_then(|name| catalogued(catalog::files::STACKS, name)),
            gpus: number("--gpus"),
            global_batch: number("--global-batch"),
            seq_len: number("--seq-len"),
            document_len: number("--document-len"),
            adaptation: words.contains(&"--lora").then(|| match value("--lora-targets") {
                Some("attention") => Adaptation::LoraAttention,
                Some(_) | None => Adaptation::Lora,
            }),
            imbalance: value("--imbalance").and_then(|text| text.parse().ok()).filter(|times| *times >= 1.0),
        })
    }

    /// Completes an imported file with what its settings leave open; nothing that they say is changed.
    pub(crate) fn complete(&self, imported: &mut Imported) {
        for finding in imported.findings.iter_mut().filter(|finding| finding.message.ends_with(BASE)) {
            finding.level = Severity::Note; // an emitted file sets all of its plan
        }
        let mut taken = self.complete_model(imported);
        if let Some(gpus) = self.gpus.filter(|_| imported.world.is_none()) {
            imported.plan = imported.on(gpus);
            imported.world = Some(gpus);
            taken.push(format!("{gpus} GPUs"));
        }
        if let Some(batch) = self.global_batch.filter(|_| imported.work.global_batch.is_none()) {
            imported.work.global_batch = Some(batch);
            taken.push(format!("{batch} sequences a step"));
        }
        if let Some(tokens) = self.seq_len.filter(|_| imported.work.seq_len.is_none()) {
            imported.work.seq_len = Some(tokens);
            taken.push(format!("sequences of {tokens} tokens"));
        }
        for key in imported.of_release.drain(..).filter(|_| self.stack.is_some()) {
            imported.settings.drop_key(key);
        }
        if let Some(stack) = self.stack.filter(|name| *name != imported.stack) {
            imported.stack = stack;
            taken.push(format!("the stack {stack}"));
        }
        imported.findings.retain(|finding| finding.rule != DOCUMENTS); // what is emitted states it, or has none
        let work = &imported.work;
        if imported.model.is_some() && work.global_batch.is_some() && work.seq_len.is_some() {
            imported.findings.retain(|finding| finding.message != accelerate::CODE_SETS);
        }
        imported.work.document_len = self.document_len.or(imported.work.document_len);
        imported.imbalance = self.imbalance.unwrap_or(imported.imbalance);
        if !taken.is_empty() {
            let message = format!("from the header of the file: {}", taken.join(", "));
            imported
                .findings
                .push(Finding::note("assumed", message).expected("options of the command line replace these"));
        }
    }

    /// Completes the model of an imported file, and which of its weights are trained where the training program decides that; returns what
    /// it took, in words.
    fn complete_model(&self, imported: &mut Imported) -> Vec<String> {
        let mut taken = Vec::new();
        if let Some(name) = self.model.filter(|_| !imported.names_other_model)
            && let Some(model) = known::catalogued(name)
        {
            if imported.model.is_none() {
                imported.findings.retain(|finding| !finding.asks_for_model());
                taken.push(format!("the model {name}"));
                imported.model = Some(model);
                if let Some(adaptation) = self.adaptation.filter(|_| CODE_TRAINS.contains(&imported.kind)) {
                    imported.work.adaptation = adaptation;
                    taken.push("adapters".into());
                }
            } else if let Some(own) = imported.model.as_mut()
                && imported.findings.iter().any(|finding| finding.rule == "assumed-vocabulary")
                && known::vocabularies_of(own).iter().any(|(known, _)| *known == name)
            {
                imported.findings.retain(|finding| finding.rule != "assumed-vocabulary");
                taken.push(format!("the vocabulary of {name}"));
                *own = model;
            }
        }
        if let Some(file) = self.model_file.as_ref().filter(|_| imported.model.is_none() && !imported.names_other_model)
        {
            let message = format!("by its header, the model is that of `{file}`");
            imported.findings.push(Finding::note("assumed", message).expected(format!("--model {file}")));
        }
        taken
    }
}
