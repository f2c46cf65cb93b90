//! Interpreter of a script, which records the commands that it would call.

use std::collections::BTreeMap;
use std::mem;

use super::grammar::{Command, CommandPipeline, HereDocument, Join, List, Script, SyntaxError};
use super::hidden::Hidden;
use super::slurm::{SlurmVariable, slurm_variables};
use super::syntax;
use super::text::{Text, readable};
use crate::import::finding::{Finding, Place};

/// Environment of a script.
pub struct Inputs<'a> {
    /// Its name, for places.
    pub file: &'a str,
    /// Variables of its environment.
    pub variables: &'a [(String, String)],
    /// Its arguments, `$1` and on.
    pub arguments: &'a [String],
    /// Text of another file, where there is one.
    pub files: &'a dyn Fn(&str) -> Option<String>,
}

/// A command that a script would call.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    /// Its name and arguments.
    pub words: Vec<Text>,
    /// The words of the commands around it, such as `srun -N 4` around `bash -c`.
    pub around: Vec<Text>,
    /// Variables that are set for it alone, before its name.
    pub own: Vec<(String, Text)>,
    /// Its first line.
    pub line: u32,
}

/// Record of a run: commands, files, variables.
#[derive(Debug, Default)]
pub struct Ran {
    /// The commands, in order.
    pub called: Vec<Called>,
    /// Files that it wrote by here-documents and `echo`.
    pub written: BTreeMap<String, Text>,
    /// Variables with one value at its end.
    pub variables: BTreeMap<String, Text>,
    /// Arrays at its end.
    pub arrays: BTreeMap<String, Vec<Text>>,
    /// Findings on the script.
    pub findings: Vec<Finding>,
    /// Values of sourced files.
    pub hidden: Hidden,
}

/// Value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Variable {
    /// One text.
    One(Text),
    /// An array.
    List(Vec<Text>),
    /// An associative array.
    Map(BTreeMap<String, Text>),
}

/// Exit status of a command, as far as it is known without the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Yes,
    /// Failure.
    No,
    /// A status that depends on the machine.
    Unknown,
}

impl Status {
    /// Success or failure.
    pub const fn of(success: bool) -> Self {
        if success { Self::Yes } else { Self::No }
    }

    /// Status of the negated command, `! command`.
    #[must_use]
    pub const fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// Whether to go on with the next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On(Status),
    Break,
    Continue,
    Return,
}

/// Most commands that are followed: a loop without end must not be one here.
const MOST_STEPS: u32 = 100_000;
/// Deepest nesting of functions, sourced files and inner shells.
pub(super) const DEEPEST: u32 = 50;
/// Longest text of a variable, in characters, so that `A=$A$A` in a loop does not exhaust memory.
const LONGEST: usize = 1_000_000;

/// State of a script that is followed: its variables, functions and arguments, and the record so far.
pub struct Shell<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) variables: BTreeMap<String, Variable>,
    pub(super) functions: BTreeMap<String, List>,
    pub(super) heredocs: Vec<HereDocument>,
    pub(super) arguments: Vec<Text>,
    pub(super) around: Vec<Text>,
    pub(super) own: Vec<(String, Text)>,
    pub(super) ran: Ran,
    pub(super) assumed: BTreeMap<String, u32>,
    pub(super) steps: u32,
    pub(super) depth: u32,
    /// Sourced files that are being followed.
    pub(super) sourced: u32,
}

/// Follows a script.
///
/// # Errors
/// Names the line of a quote, bracket or block that is not closed.
pub fn run(text: &str, inputs: &Inputs) -> Result<Ran, SyntaxError> {
    let mut shell = Shell::new(inputs);
    for SlurmVariable { name, value, line } in slurm_variables(text) {
        if !shell.is_set(name) {
            shell.set(name, Variable::One(Text::on(&value, line)));
        }
    }
    if let Some(line) = text.split('\n').zip(1_u32..).find_map(|(text, line)| text.ends_with('\r').then_some(line)) {
        let finding =
            Finding::error("line-ends", "lines end in CR LF, and bash takes the CR for a part of the last word")
                .at(&shell.place(line))
                .expected("line ends of Unix: `dos2unix`, or `* text eol=lf` in .gitattributes");
        shell.find(finding);
    }
    let list = shell.read(&Text::of(text, 1))?;
    let _ = shell.list(&list);
    shell.note_assumptions();
    let Shell { mut ran, variables, .. } = shell;
    for (name, value) in variables {
        match value {
            Variable::One(text) => drop(ran.variables.insert(name, text)),
            Variable::List(items) => drop(ran.arrays.insert(name, items)),
            Variable::Map(_) => {}
        }
    }
    Ok(ran)
}

/// The words of a text without commands, such as an argument list; line ends separate them.
///
/// # Errors
/// Names the line of a quote or bracket that is not closed.
pub fn words(text: &str, context: &crate::import::context::Context) -> Result<Vec<Text>, SyntaxError> {
    let (file, variables, arguments) = (context.file, context.variables, context.arguments);
    let inputs = Inputs { file, variables, arguments, files: context.files };
    let mut shell = Shell::new(&inputs);
    let written = syntax::words(&Text::of(text, 1))?;
    Ok(written.iter().filter(|word| word.plain() != "\\").flat_map(|word| shell.fields(word)).collect())
}

impl<'a> Shell<'a> {
    fn new(inputs: &'a Inputs<'a>) -> Self {
        let mut shell = Self {
            inputs,
            variables: BTreeMap::new(),
            functions: BTreeMap::new(),
            heredocs: Vec::new(),
            arguments: inputs.arguments.iter().map(|text| Text::on(text, 0)).collect(),
            around: Vec::new(),
            own: Vec::new(),
            ran: Ran::default(),
            assumed: BTreeMap::new(),
            steps: 0,
            depth: 0,
            sourced: 0,
        };
        // Files are looked for beside the script: its folder is where it is started.
        shell.set("PWD", Variable::One(Text::on(".", 0)));
        shell.set("BASH_SOURCE", Variable::List(vec![shell.name()]));
        for (name, value) in inputs.variables {
            shell.set(name, Variable::One(Text::on(value, 0)));
        }
        shell
    }

    /// The script's name, `$0`, without its folder.
    pub(super) fn name(&self) -> Text {
        Text::on(self.inputs.file.rsplit('/').next().unwrap_or_default(), 0)
    }

    /// File and line of a line of this script.
    pub fn place(&self, line: u32) -> Place {
        Place { file: self.inputs.file.to_owned(), line: line.max(1) }
    }

    /// Adds a finding, once.
    pub fn find(&mut self, finding: Finding) {
        if !self.ran.findings.contains(&finding) {
            self.ran.findings.push(finding);
        }
    }

    /// Records that a variable is taken as not set.
    pub fn assume_unset(&mut self, name: &str, line: u32) {
        self.assumed.entry(name.trim_start_matches('$').to_owned()).or_insert(line);
    }

    /// Records that the default of a variable was taken.
    pub fn took_default(&mut self, name: &str, default: &Text, line: u32) {
        if !default.0.is_empty() {
            self.assume_unset(name, line);
        }
    }

    fn note_assumptions(&mut self) {
        let decide: Vec<(&String, &u32)> = self.assumed.iter().filter(|(name, _)| !is_of_launcher(name)).collect();
        let Some(first) = decide.iter().map(|(_, line)| **line).min() else { return };
        let names: Vec<String> = decide.iter().map(|(name, _)| format!("${name}")).collect();
        let finding = Finding::note("assumed-unset", format!("taken as not set: {}", names.join(", ")))
            .at(&self.place(first))
            .expected("give --var NAME=VALUE, or the script's own arguments after --, where that is wrong");
        self.find(finding);
    }

    /// Parses a part of the script.
    pub(super) fn read(&mut self, text: &Text) -> Result<List, SyntaxError> {
        let base = self.heredocs.len();
        let Script { list, heredocs } = syntax::parse(text, base)?;
        self.heredocs.extend(heredocs);
        Ok(list)
    }

    /// The arguments, `$1` and on.
    pub fn arguments(&self) -> &[Text] {
        &self.arguments
    }

    /// Sets a variable. In a sourced file its value is hidden, and so is every word that it becomes a part of.
    pub fn set(&mut self, name: &str, mut value: Variable) {
        if self.sourced > 0 {
            let texts: Vec<&mut Text> = match &mut value {
                Variable::One(text) => vec![text],
                Variable::List(items) => items.iter_mut().collect(),
                Variable::Map(items) => items.values_mut().collect(),
            };
            for text in texts {
                *text = mem::take(text).sourced(true);
                self.hide(text);
            }
        }
        let length = match &value {
            Variable::One(text) => text.0.len(),
            Variable::List(items) => items.iter().map(|item| item.0.len() + 1).sum(),
            Variable::Map(items) => items.values().map(|item| item.0.len() + 1).sum(),
        };
        if length <= LONGEST {
            self.variables.insert(name.to_owned(), value);
        }
    }

    /// Keeps a text of a sourced file out of every message.
    pub(super) fn hide(&mut self, text: &Text) {
        self.ran.hidden.add(&readable(&text.plain()));
    }

    /// Whether a variable is set.
    pub fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// The one text of a variable: an array's first element.
    pub fn scalar(&self, name: &str) -> Option<Text> {
        if let Ok(at) = name.parse::<usize>() {
            return if at == 0 { Some(self.name()) } else { self.arguments.get(at - 1).cloned() };
        }
        match self.variables.get(name)? {
            Variable::One(text) => Some(text.clone()),
            Variable::List(items) => items.first().cloned(),
            Variable::Map(items) => items.get("0").cloned(),
        }
    }

    /// All elements of an array.
    pub fn items(&self, name: &str) -> Option<Vec<Text>> {
        Some(match self.variables.get(name)? {
            Variable::One(text) => vec![text.clone()],
            Variable::List(items) => items.clone(),
            Variable::Map(items) => items.values().cloned().collect(),
        })
    }

    /// One element of an array.
    pub fn element(&mut self, name: &str, key: &Text) -> Option<Text> {
        let line = key.line().unwrap_or(1);
        let word = self.expand_unsplit(key).plain();
        if let Some(Variable::Map(items)) = self.variables.get(name) {
            return items.get(&word).cloned();
        }
        let index: usize = self.arithmetic(key, line).plain().parse().ok()?;
        self.items(name)?.get(index).cloned()
    }

    /// Follows commands in order.
    pub(super) fn list(&mut self, list: &List) -> Flow {
        let mut status = Status::Yes;
        for (join, pipeline) in list {
            match (join, status) {
                (Join::And, Status::No) | (Join::Or, Status::Yes | Status::Unknown) => continue,
                (Join::Then | Join::And | Join::Or, _) => {}
            }
            match self.pipeline(pipeline) {
                Flow::On(ended) => status = ended,
                other => return other,
            }
        }
        Flow::On(status)
    }

    fn pipeline(&mut self, pipeline: &CommandPipeline) -> Flow {
        let mut status = Status::Yes;
        for command in &pipeline.commands {
            match self.command(command) {
                Flow::On(ended) => status = ended,
                other => return other,
            }
        }
        if pipeline.commands.len() > 1 && status == Status::Yes {
            status = Status::Unknown; // what `grep` at the end of a pipe finds depends on the machine
        }
        Flow::On(if pipeline.negated { status.not() } else { status })
    }

    fn command(&mut self, command: &Command) -> Flow {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Flow::Return;
        }
        match command {
            Command::Simple { words, redirects, heredoc, line } => self.simple(words, redirects, *heredoc, *line),
            Command::If { arms, otherwise, line } => self.conditional(arms, otherwise, *line),
            Command::Case { word, arms } => self.case(word, arms),
            Command::For { name, words, body } => self.for_loop(name, words, body),
            Command::While { kind, condition, body, line } => self.while_loop(*kind, condition, body, *line),
            Command::Function { name, body } => {
                self.functions.insert(name.clone(), body.clone());
                Flow::On(Status::Yes)
            }
            Command::Group(body) => self.list(body),
            Command::Test(words) => Flow::On(self.test(words)),
            Command::Arithmetic(text) => {
                let value = self.counted(text);
                let is_known = value.missing().is_empty();
                Flow::On(if is_known { Status::of(value.plain() != "0") } else { Status::Unknown })
            }
        }
    }

    pub(super) fn condition(&mut self, condition: &List) -> Status {
        match self.list(condition) {
            Flow::On(status) => status,
            Flow::Break | Flow::Continue | Flow::Return => Status::Unknown,
        }
    }
}

/// Whether a variable is of the launcher or of a library below the framework: where ranks meet, in which container they run, and
/// how NCCL, HybridEP and the allocator work, and no plan.
fn is_of_launcher(name: &str) -> bool {
    const FAMILIES: [&str; 7] = ["NCCL_", "TORCH_NCCL_", "PYTORCH_", "CUDA_", "NVTE_", "SLURM_NODEID", "SLURM_PROCID"];
    const RENDEZVOUS: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "OMP_NUM_THREADS"];
    const CONTAINER: [&str; 2] = ["CONTAINER", "MOUNTS"];
    const HYBRID_EP: [&str; 3] = ["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", "NVLINK_DOMAIN_SIZE", "USE_MNNVL"];
    let named = RENDEZVOUS.into_iter().chain(CONTAINER).chain(HYBRID_EP).any(|known| known == name);
    named || FAMILIES.iter().any(|family| name.starts_with(family))
}
