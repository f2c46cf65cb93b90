//! Files that frameworks read, and the scripts that launch them → model, workload, plan.
//!
//! Nothing is guessed in silence: what a file leaves open is a [`Finding`], what no release knows is [`Unknown`], what has
//! no effect on time or memory here is named in [`Imported::without_effect`].

mod accelerate;
mod bridge;
mod deepspeed;
pub mod document;
pub mod finding;
pub mod known;
mod launch;
pub mod megatron;
mod nanotron;
mod python;
mod scripts;
pub mod shell;
mod swift;
mod torchtitan;
mod trainer;

use std::collections::BTreeMap;

use serde::Serialize;

use meshwright_engine::gpu::Format;
use meshwright_engine::model::Model;
use meshwright_engine::plan::{CpKind, Layout, Offload, Plan, RankOrder, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::{Dispatcher, Framework};
use meshwright_engine::workload::{Half, Optimizer, Recipe};
use meshwright_planner::catalog::{self, Overrides};
use meshwright_planner::express::Target;

use document::Form;

pub use finding::{Finding, Level, Place};
pub use megatron::Unknown;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A shell script that launches something; what was read is then one of the others.
    Script,
    /// Megatron's argument list.
    Megatron,
    /// NeMo's and Megatron-Bridge's YAML, overrides or configuration in Python, and Megatron's YAML of arguments.
    Bridge,
    /// DeepSpeed's JSON.
    Deepspeed,
    /// torchtitan's TOML, or its configuration in Python.
    Torchtitan,
    /// Accelerate's YAML.
    Accelerate,
    /// nanotron's YAML.
    Nanotron,
}

impl Kind {
    /// All, with the names of the command line.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("script", Self::Script),
        ("megatron", Self::Megatron),
        ("bridge", Self::Bridge),
        ("deepspeed", Self::Deepspeed),
        ("torchtitan", Self::Torchtitan),
        ("accelerate", Self::Accelerate),
        ("nanotron", Self::Nanotron),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| *name)
    }
}

/// What one step must do, as far as a file says it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Sequences per step.
    pub global_batch: Option<u32>,
    /// Tokens per sequence.
    pub seq_len: Option<u32>,
    /// Format of the bulk products.
    pub format: Format,
    /// The 16-bit format of everything else.
    pub half: Half,
    /// Bytes per parameter.
    pub recipe: Recipe,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Whether routing drops surplus tokens.
    pub drops_tokens: bool,
}

/// What a file says of the software, where the nearest stack of the catalogue says otherwise: keys below `stack`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Settings(Vec<String>);

impl Settings {
    /// Sets a key where its value is not the stack's own.
    pub fn put<T: Copy + PartialEq + std::fmt::Display>(&mut self, key: &str, value: T, own: T) {
        if value != own {
            self.0.push(format!("stack.{key}={value}"));
        }
    }

    /// Sets a key to a word.
    pub fn put_word(&mut self, key: &str, value: &str) {
        self.0.push(format!("stack.{key}={value}"));
    }

    /// As they stand after `--set`.
    pub fn items(&self) -> &[String] {
        &self.0
    }
}

/// A file, read.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// What it is.
    pub kind: Kind,
    /// Whose.
    pub framework: Framework,
    /// The nearest software stack of the catalogue.
    pub stack: &'static str,
    /// What the file says of the software where that stack says otherwise.
    pub settings: Settings,
    /// GPUs, where the file or its launcher says how many.
    pub world: Option<u32>,
    /// GPUs per node, likewise.
    pub gpus_per_node: Option<u32>,
    /// The model, where the file describes one.
    pub model: Option<Model>,
    /// The workload.
    pub work: Work,
    /// Shard groups, where the file counts them and not the ranks of one.
    #[serde(skip)]
    pub shard_groups: Option<u32>,
    /// The plan; `dp` is 1 where `world` is not known.
    pub plan: Plan,
    /// Flags that no known release has.
    pub unknown: Vec<Unknown>,
    /// Flags that are known, and change neither time nor memory here.
    pub without_effect: Vec<String>,
    /// Everything else that is worth knowing.
    pub findings: Vec<Finding>,
    /// Where the file says what: keys of a plan, `batch`, `seq`, `heads` and the like.
    #[serde(skip)]
    pub places: BTreeMap<String, Place>,
}

impl Imported {
    /// An empty one: one GPU, no parallelism.
    pub(crate) fn new(kind: Kind, framework: Framework, stack: &'static str) -> Self {
        let own = catalog::stack(stack, &Overrides::default()).ok();
        Self {
            kind,
            framework,
            stack,
            settings: Settings::default(),
            world: None,
            gpus_per_node: None,
            model: None,
            work: Work {
                global_batch: None,
                seq_len: None,
                format: Format::Bf16,
                half: Half::Bf16,
                recipe: Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 8.0 },
                optimizer: Optimizer::Elementwise,
                drops_tokens: false,
            },
            shard_groups: None,
            plan: Plan {
                layout: Layout::data_parallel(1),
                sequence_parallel: false,
                cp_kind: CpKind::Ring,
                schedule: Schedule::OneFOneB,
                split: own.as_ref().map_or(LayerSplit::Even, |own| own.split),
                zero: ZeroStage::Zero,
                shard_group: None,
                reshard_after_forward: true,
                micro_batch: 1,
                recompute: Recompute::None,
                offload: Offload::NONE,
                dispatcher: own.map_or(Dispatcher::AllToAll, |own| own.dispatcher),
                order: RankOrder::default(),
            },
            unknown: Vec::new(),
            without_effect: Vec::new(),
            findings: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// The plan on so many GPUs: replicas are what is left of them.
    #[must_use]
    pub fn on(&self, gpus: u32) -> Plan {
        let Layout { tp, cp, pp, .. } = self.plan.layout;
        let mut plan = self.plan;
        if self.world != Some(gpus) {
            plan.layout.dp = replicas(gpus, &[tp, cp, pp]);
            let ranks = plan.layout.dense_replicas();
            if let Some(groups) = self.shard_groups {
                plan.shard_group = (groups > 1 && ranks.is_multiple_of(groups)).then(|| ranks / groups);
            }
        }
        plan
    }

    /// What its framework's own files can express; none of frameworks that no file is written for.
    pub const fn target(&self) -> Option<Target> {
        match (self.kind, self.framework) {
            (Kind::Bridge, Framework::Megatron) => Some(Target::MegatronBridge),
            (_, Framework::Megatron) => Some(Target::Megatron),
            (_, Framework::Deepspeed) => Some(Target::Deepspeed),
            (_, Framework::Torchtitan) => Some(Target::Torchtitan),
            (_, Framework::Fsdp) => Some(Target::Accelerate),
            (_, Framework::Nanotron) => Some(Target::Nanotron),
            (_, Framework::MegatronDeepspeed | Framework::Internevo | Framework::Jax | Framework::Internal) => None,
        }
    }

    /// Sequences per step on so many GPUs: as given, or one micro-batch per replica.
    pub fn batch_on(&self, gpus: u32) -> u32 {
        let plan = self.on(gpus);
        self.work.global_batch.unwrap_or_else(|| plan.micro_batch.saturating_mul(plan.layout.dp))
    }
}

/// GPUs over the product of degrees, 1 at least.
pub(crate) fn replicas(gpus: u32, degrees: &[u32]) -> u32 {
    let others = degrees.iter().fold(1_u32, |product, degree| product.saturating_mul(*degree));
    (gpus / others).max(1)
}

/// Says where degrees do not multiply to a divisor of the GPUs.
pub(crate) fn divides(findings: &mut Vec<Finding>, world: Option<u32>, plan: &Plan, place: Option<&Place>) {
    let Layout { tp, cp, pp, .. } = plan.layout;
    let others = u64::from(tp) * u64::from(cp) * u64::from(pp);
    if let Some(world) = world.filter(|world| !u64::from(*world).is_multiple_of(others)) {
        let message =
            format!("tp·cp·pp = {tp}·{cp}·{pp} = {others} does not divide the {world} GPUs that are launched");
        let finding = Finding::error("world-size", message).at_maybe(place);
        findings.push(finding.expected(format!("a multiple of {others} GPUs, or smaller degrees")));
    }
}

/// What a file is read with.
pub struct Context<'a> {
    /// Its name, for places.
    pub file: &'a str,
    /// Variables of a script's environment.
    pub variables: &'a [(String, String)],
    /// A script's own arguments.
    pub arguments: &'a [String],
    /// Text of another file that it names, where there is one.
    pub files: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Context<'a> {
    /// A file alone.
    pub const fn alone(file: &'a str) -> Self {
        Self { file, variables: &[], arguments: &[], files: &|_| None }
    }
}

/// What a launcher says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launched {
    /// GPUs in all.
    pub world: Option<u32>,
    /// GPUs per node.
    pub gpus_per_node: Option<u32>,
    /// `CUDA_DEVICE_MAX_CONNECTIONS`.
    pub connections: Option<String>,
    /// Whether a script was read: what it does not set is not set.
    pub in_script: bool,
    /// The model, where a recipe's name says it.
    pub model: Option<Model>,
    /// Whether more is set elsewhere: in a file that this one builds on, or by the program.
    pub open: bool,
}

/// A file that nothing could be read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}{}", if expected.is_empty() { String::new() } else { format!("\n\nhint: {expected}") })]
pub struct ImportError {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u32,
    /// What was read, and what is wrong.
    pub why: String,
    /// What was expected.
    pub expected: String,
}

/// What a file is, by its name and its text.
pub fn kind_of(file: &str, text: &str) -> Kind {
    let extension = std::path::Path::new(file).extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let has = |key: &str| text.lines().any(|line| line.trim_start().trim_matches('"').starts_with(key));
    let on_top = |key: &str| text.lines().any(|line| line.trim_start_matches('\u{feff}').starts_with(key));
    match extension.to_ascii_lowercase().as_str() {
        "json" if has("distributed_type") => Kind::Accelerate,
        "json" => Kind::Deepspeed,
        "py" if text.contains("megatron.bridge") => Kind::Bridge,
        "toml" | "py" => Kind::Torchtitan,
        "yaml" | "yml" if on_top("distributed_type:") || on_top("fsdp_config:") => Kind::Accelerate,
        "yaml" | "yml" if on_top("parallelism:") && on_top("tokens:") => Kind::Nanotron,
        "yaml" | "yml" => Kind::Bridge,
        _ if text.trim_start().starts_with("--") => Kind::Megatron,
        _ if text.trim_start().starts_with('{') && text.contains("\"zero_optimization\"") => Kind::Deepspeed,
        _ => Kind::Script,
    }
}

/// Reads a file.
///
/// # Errors
/// A file that does not parse, or holds nothing that launches training; everything less is a [`Finding`].
pub fn read(text: &str, kind: Kind, context: &Context) -> Result<Imported, ImportError> {
    let tree = |form| document::parse(text, form, context);
    let alone = Launched::default();
    Ok(match kind {
        Kind::Script => return scripts::read(text, context),
        Kind::Megatron => return arguments(text, context),
        Kind::Torchtitan if is_python(context.file) => {
            let document = torchtitan::of_python(text, asked_configuration(context), context)?;
            torchtitan::settle(&document, &alone)
        }
        Kind::Bridge if is_python(context.file) => {
            let wanted = asked_configuration(context);
            let document = python::parse(text, wanted, context)?;
            let named = wanted.filter(|_| !document.has("model.num_layers"));
            let model = named.and_then(known::of_recipe);
            if let (Some(name), Some(model)) = (named, &model) {
                let message = format!("`{name}` is read as the model {}", model.name);
                document.note(Finding::note("assumed", message).expected("another: --model"));
            }
            scripts::settle_bridge(&document, &mut Launched { model, ..Launched::default() })
        }
        Kind::Bridge => {
            let document = tree(Form::Yaml)?;
            if !bridge::has_settings(&document) {
                let why = "none of `model`, `MODEL_ARGS`, `language_model` and `modules` holds settings".to_owned();
                let expected = "NeMo's, Bridge's, Megatron's or Primus' YAML; another file: --kind".to_owned();
                return Err(ImportError { file: context.file.into(), line: 1, why, expected });
            }
            scripts::settle_bridge(&document, &mut Launched::default())
        }
        Kind::Deepspeed => deepspeed::settle(&tree(Form::Json)?, &alone),
        Kind::Torchtitan => torchtitan::settle(&tree(Form::Toml)?, &alone),
        Kind::Accelerate => accelerate::settle(&tree(Form::Yaml)?, &alone),
        Kind::Nanotron => nanotron::settle(&tree(Form::Yaml)?, &alone),
    })
}

fn is_python(file: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|extension| extension == "py")
}

/// The function that the arguments behind `--` name: `--config llama3_8b`, or the name alone.
fn asked_configuration<'c>(context: &'c Context) -> Option<&'c str> {
    context.arguments.iter().map(String::as_str).find(|word| !word.starts_with('-'))
}

/// An argument list without a launcher: comments and line ends mean nothing.
fn arguments(text: &str, context: &Context) -> Result<Imported, ImportError> {
    let bad =
        |line, why: &str| ImportError { file: context.file.into(), line, why: why.into(), expected: String::new() };
    let words = shell::words(text, context).map_err(|error| bad(error.line, &error.why))?;
    if words.is_empty() {
        return Err(bad(1, "no argument in it"));
    }
    Ok(megatron::settle(megatron::Arguments::read(&words, context.file), &Launched::default()))
}
