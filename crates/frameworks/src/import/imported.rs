//! An imported file: model, workload, plan, and findings.

use std::collections::BTreeMap;

use serde::Serialize;

use super::finding::{Finding, Place};
use crate::readers::document::Document;
use crate::rules::FusedExchange;
use meshwright_engine::gpu::{AttentionKernel, Format};
use meshwright_engine::model::Model;
use meshwright_engine::plan::{Layout, Plan, ZeroStage};
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::{Dispatcher, Family};
use meshwright_engine::suggest::is_slip;
use meshwright_engine::workload::{Adaptation, Half, Optimizer, Recipe};
use meshwright_planner::catalog::{self, Overrides};

/// A flag or key that no known release of its framework has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unknown {
    /// Name as written.
    pub name: String,
    /// Values that follow it.
    pub values: Vec<String>,
    /// File and line.
    #[serde(flatten)]
    pub place: Place,
    /// The nearest name that a release has.
    pub nearest: Option<String>,
}

impl Unknown {
    /// Whether it is nearly a flag that a release has.
    pub fn is_slip(&self) -> bool {
        self.nearest.as_ref().is_some_and(|near| is_slip(&self.name, near))
    }
}

/// Low-rank adapters that a file trains on a frozen base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapters {
    /// Rank, where the file or its framework's default says it.
    pub rank: Option<u32>,
    /// Modules that have adapters, by the framework's names; empty where the framework chooses them.
    pub targets: Vec<String>,
}

/// Names of attention's projections in PyTorch's and Megatron's models, and of those of a recurrence in its place.
const ATTENTION: [&str; 23] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "qkv_proj",
    "out_proj",
    "c_attn",
    "query_key_value",
    "Wqkv",
    "q_a_proj",
    "q_b_proj",
    "kv_a_proj_with_mqa",
    "kv_b_proj",
    "in_proj",
    "linear_q",
    "linear_q_proj",
    "linear_q_down_proj",
    "linear_q_up_proj",
    "linear_kv_down_proj",
    "linear_kv_up_proj",
    "linear_kv",
    "linear_qkv",
    "linear_proj",
];

impl Adapters {
    /// Whether a file names the modules, and all of them are projections of attention.
    pub fn are_of_attention(&self) -> bool {
        let of_attention =
            |target: &String| ATTENTION.contains(&target.trim_start_matches('*').trim_start_matches('.'));
        !self.targets.is_empty() && self.targets.iter().all(of_attention)
    }
}

/// Workload of one step, as far as a file sets it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportedWorkload {
    /// Sequences per step.
    pub global_batch: Option<u32>,
    /// Tokens per sequence.
    pub seq_len: Option<u32>,
    /// Tokens of a document that is packed into a sequence.
    pub document_len: Option<u32>,
    /// Format of the GEMMs.
    pub format: Format,
    /// The 16-bit format of everything else.
    pub half: Half,
    /// Bytes per parameter.
    pub recipe: Recipe,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Whether routing drops surplus tokens.
    pub drops_tokens: bool,
    /// Set of trained weights.
    pub adaptation: Adaptation,
}

/// Passes of a cast that scales by rows.
const ROWWISE: f64 = 2.0;

/// Software settings of a file that differ from the nearest stack of the catalogue: keys below `stack`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct StackSettings(Vec<String>);

impl StackSettings {
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

    /// Adds an item as `--set` takes it.
    pub fn put_item(&mut self, item: &str) {
        self.0.push(item.to_owned());
    }

    /// Drops the items of a key.
    pub(crate) fn drop_key(&mut self, key: &str) {
        self.0.retain(|item| item.split_once('=').is_none_or(|(name, _)| name != format!("stack.{key}")));
    }

    /// Sets what differs from torchtitan's stacks where torchao scales FP8 by rows: two passes for the maxima, and
    /// tensor parallelism that gathers 16 bits. Source: `clusters/stacks/torchtitan-2025.toml`; [torchtitan] `parallelize.py`.
    pub fn scale_by_rows(&mut self) {
        self.put("cast_passes", ROWWISE, 1.25);
        self.put_word("tp_gather", "bf16");
    }

    /// Items as `--set` takes them.
    pub fn items(&self) -> &[String] {
        &self.0
    }
}

/// Attention kernel that a file names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedKernel {
    /// The kernel.
    pub kernel: AttentionKernel,
    /// Value as written.
    pub name: String,
    /// Line of the setting.
    pub place: Option<Place>,
    /// Setting that runs on every GPU.
    pub instead: String,
}

impl NamedKernel {
    /// A kernel that a setting of a document names, of which the value `instead` runs on every GPU.
    pub fn of(document: &Document, path: &str, kernel: AttentionKernel, instead: &str) -> Self {
        let key = path.rsplit('.').next().unwrap_or(path);
        let name = document.word(path).unwrap_or_default();
        let (name, instead) = (format!("`{key}: {name}`"), format!("`{key}: {instead}`"));
        Self { kernel, name, place: document.place(path), instead }
    }
}

/// An imported file.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// Kind of file, by its name on the command line.
    pub kind: &'static str,
    /// Family of the software that it configures.
    #[serde(rename = "framework")]
    pub family: Family,
    /// The nearest software stack of the catalogue.
    pub stack: &'static str,
    /// Settings of the file that differ from that stack.
    pub settings: StackSettings,
    /// Those of the settings that the file does not say, and its release has: a stack that is known has its own.
    #[serde(skip)]
    pub(crate) of_release: Vec<&'static str>,
    /// GPUs, where the file or its launcher says how many.
    pub world: Option<u32>,
    /// GPUs per node, if the file says so.
    pub gpus_per_node: Option<u32>,
    /// The model, where the file describes one.
    pub model: Option<Model>,
    /// The workload.
    pub work: ImportedWorkload,
    /// Low-rank adapters, where they are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Adapters>,
    /// Micro-batches that every replica accumulates, where the file counts them and not the sequences of a step.
    #[serde(skip)]
    pub accumulation: u32,
    /// Whether the file leaves the micro-batch to the batch, the replicas and the accumulation.
    #[serde(skip)]
    pub(crate) derives_micro_batch: bool,
    /// Shard groups, where the file counts them and not the ranks of one.
    #[serde(skip)]
    pub shard_groups: Option<u32>,
    /// The plan; `dp` is 1 where `world` is not known.
    pub plan: Plan,
    /// Backend of the fused exchange with experts, where the file names one that its framework brings.
    #[serde(skip)]
    pub(crate) exchange: Option<FusedExchange>,
    /// Attention kernel that the file names, and not its framework or the GPU chooses.
    #[serde(skip)]
    pub(crate) attention: Option<NamedKernel>,
    /// Whether the file names a model that is none of the catalogue's.
    #[serde(skip)]
    pub(crate) names_other_model: bool,
    /// Tokens of the busiest expert rank relative to the mean, which a header may state; 1 otherwise.
    #[serde(skip)]
    pub imbalance: f64,
    /// Flags that no known release has.
    pub unknown: Vec<Unknown>,
    /// Flags that are known, and change neither time nor memory here.
    pub without_effect: Vec<String>,
    /// Everything else that is worth knowing.
    pub findings: Vec<Finding>,
    /// Line of each setting: keys of a plan, `batch`, `seq`, `heads` and the like.
    #[serde(skip)]
    pub places: BTreeMap<String, Place>,
}

impl Imported {
    /// An empty one: one GPU, no parallelism.
    pub(crate) fn new(kind: &'static str, family: Family, stack: &'static str) -> Self {
        let own = catalog::stack(stack, &Overrides::default()).ok();
        Self {
            kind,
            family,
            stack,
            settings: StackSettings::default(),
            of_release: Vec::new(),
            world: None,
            gpus_per_node: None,
            model: None,
            work: ImportedWorkload {
                global_batch: None,
                seq_len: None,
                document_len: None,
                format: Format::Bf16,
                half: Half::Bf16,
                recipe: Recipe { weight: 2.0, gradient: 4.0, master: 4.0, state: 8.0 },
                optimizer: Optimizer::Elementwise,
                drops_tokens: false,
                adaptation: Adaptation::Full,
            },
            adapters: None,
            accumulation: 1,
            derives_micro_batch: false,
            shard_groups: None,
            plan: Plan {
                split: own.as_ref().map_or(LayerSplit::Even, |own| own.split.clone()),
                zero: ZeroStage::Zero,
                dispatcher: own.map_or(Dispatcher::AllToAll, |own| own.dispatcher),
                ..Plan::of_layout(Layout::data_parallel(1))
            },
            exchange: None,
            attention: None,
            names_other_model: false,
            imbalance: 1.0,
            unknown: Vec::new(),
            without_effect: Vec::new(),
            findings: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// The plan on `gpus` GPUs: its other degrees divide them, and replicas take the rest.
    #[must_use]
    pub fn on(&self, gpus: u32) -> Plan {
        let Layout { tp, cp, pp, .. } = self.plan.layout;
        let mut plan = self.plan.clone();
        if self.world != Some(gpus) {
            plan.layout.dp = replicas(gpus, &[tp, cp, pp]);
            plan.micro_batch = self.micro_batch_on(plan.layout.dp).unwrap_or(plan.micro_batch);
            let ranks = plan.layout.dense_replicas();
            if let Some(groups) = self.shard_groups {
                plan.shard_group = (groups > 1 && ranks.is_multiple_of(groups)).then(|| ranks / groups);
            }
            plan.shard_group = plan.shard_group.filter(|group| *group != ranks); // one group of all
        }
        plan
    }

    /// Sequences of a micro-batch on `dp` replicas, 1 at least; none where the file states them.
    pub(crate) fn micro_batch_on(&self, dp: u32) -> Option<u32> {
        let batch = self.work.global_batch.filter(|_| self.derives_micro_batch)?;
        Some((batch / self.accumulation.saturating_mul(dp).max(1)).max(1))
    }

    /// Micro-batches that each replica accumulates, in words.
    pub fn accumulated(&self) -> String {
        if self.accumulation == 1 { "one micro-batch".into() } else { format!("{} micro-batches", self.accumulation) }
    }

    /// Sequences per step on `gpus` GPUs: as given, or the sum of those that the replicas accumulate.
    pub fn batch_on(&self, gpus: u32) -> u32 {
        let plan = self.on(gpus);
        self.work
            .global_batch
            .unwrap_or_else(|| plan.micro_batch.saturating_mul(plan.layout.dp).saturating_mul(self.accumulation))
    }
}

/// GPUs over the product of degrees, 1 at least.
pub(crate) fn replicas(gpus: u32, degrees: &[u32]) -> u32 {
    let others = degrees.iter().fold(1_u32, |product, degree| product.saturating_mul(*degree));
    (gpus / others).max(1)
}

/// Adds a finding where the degrees do not multiply to a divisor of the GPUs.
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
