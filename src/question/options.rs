//! Model, cluster, workload and stack of a question, and the defaults of those left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::defaults::default_stack;
use super::error::QuestionError;
use super::graphs;
use super::names::{Precision, Profile, Targets};
#[cfg(feature = "cli")]
use super::numbers;
use meshwright_engine::problem::Problem;
use meshwright_engine::range::{self, OutOfRange};
use meshwright_frameworks::Framework;
use meshwright_planner::catalog::{Overrides, fits};
use meshwright_planner::pools::Pooled;

/// Selection of the constants to predict with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(transparent)]
pub struct FitChoice {
    /// Fitted constants to lay over the specification's: a name, a TOML file (clusters/fits), or `none`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "FIT", default_value = fits::DEFAULT))]
    #[cfg_attr(feature = "cli", arg(help_heading = "Constants", hide_short_help = true))]
    fit: String,
}

impl Default for FitChoice {
    fn default() -> Self {
        Self { fit: fits::DEFAULT.to_owned() }
    }
}

impl FitChoice {
    /// Overrides with this fit.
    ///
    /// # Errors
    ///
    /// No fit has the name, or its file cannot be read.
    pub fn over(&self, sets: Overrides) -> Result<Overrides, QuestionError> {
        Ok(fits::over(sets, &self.fit)?)
    }
}

/// Model, cluster and workload: the part of a question that every command shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Model: a name (`meshwright models`), a TOML file, or a Hugging Face config.json.
    pub model: String,
    /// Cluster: a name (`meshwright clusters`), a number of GPUs (`64xh200-sxm`), or a TOML file.
    pub cluster: String,
    /// Workload, stack and overrides.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(default)]
    pub options: QuestionOptions,
}

/// Workload, stack and overrides of a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Question"))]
#[serde(default, deny_unknown_fields)]
pub struct QuestionOptions {
    /// Number of GPUs, instead of the cluster's own.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = numbers::whole))]
    pub gpus: Option<u32>,
    /// Sequences per step
    ///
    /// By default about one per GPU, at least 128 and near 2048 at most, with the odd factors of the GPU count so that it divides among replicas;
    /// of sequences from 131,072 tokens on, at most 16 Mi tokens.
    #[cfg_attr(feature = "cli", arg(long, value_name = "B", value_parser = numbers::whole))]
    pub global_batch: Option<u32>,
    /// Tokens per sequence [default: the model's training length].
    #[cfg_attr(feature = "cli", arg(long, value_name = "S", value_parser = numbers::whole))]
    pub seq_len: Option<u32>,
    /// Tokens of the documents that are packed into a sequence
    ///
    /// Attention stays within each document, as in packed fine-tuning and under document masks, so that fused kernels compute fewer
    /// scores. Of documents of different lengths, the mean weighted by tokens: Σ len²/Σ len. By default attention spans the sequence.
    #[cfg_attr(feature = "cli", arg(long, value_name = "D", value_parser = numbers::whole, hide_short_help = true))]
    pub document_len: Option<u32>,
    /// Number format of the GEMMs [default: bf16; fp16 where a GPU has no bf16].
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub precision: Option<Precision>,
    /// Optimizer recipe (`meshwright budget MODEL`)
    ///
    /// A name, or bytes per parameter as weights+gradients+master+moments. By default megatron, or megatron-bf16-grads if the
    /// stack reduces gradients in 16 bits; in FP8 and MXFP8 that of the stack's recipes (NeMo's: fp8-primary).
    #[cfg_attr(feature = "cli", arg(long, value_name = "RECIPE"))]
    pub optimizer: Option<String>,
    /// Software stack: a name (`meshwright stacks`) or a TOML file
    ///
    /// By default that of --for, else nemo-25; megatron-rocm-2025 on AMD, megatron-2022 before Ampere, jax-2025 on
    /// TPUs, neuron-2025 on Trainium, gaudi-2024 on Gaudi.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub stack: Option<String>,
    /// Share of the memory that a plan may fill
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value = "normal", help_heading = "Memory"))]
    pub hbm_profile: Profile,
    /// Largest accepted probability of running out of memory
    ///
    /// By the errors on published runs, in addition to the profile. The default of `plan` is 0.05, one launch in twenty.
    #[cfg_attr(feature = "cli", arg(long, value_name = "P", value_parser = numbers::share, help_heading = "Memory"))]
    pub risk: Option<f64>,
    /// Train low-rank adapters on a frozen base.
    #[cfg_attr(feature = "cli", arg(long))]
    pub lora: bool,
    /// Projections that have adapters
    #[cfg_attr(
        feature = "cli",
        arg(long, value_enum, default_value = "all", requires = "lora", hide_short_help = true)
    )]
    pub lora_targets: Targets,
    /// Tokens of the busiest expert rank relative to the mean.
    ///
    /// 1 is balanced routing. Real routing took 1.05 on Mixtral 8x22B and 1.5 to 1.7 on Qwen3-235B, both with 8 ranks
    /// in an expert group.
    #[cfg_attr(feature = "cli", arg(long, value_name = "X", default_value_t = 1.0, hide_short_help = true))]
    pub imbalance: f64,
    /// Constants to predict with.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub fit: FitChoice,
    /// Calibration file of the device, from `meshwright calibrate`; if given more than once, later files override earlier
    /// ones.
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", help_heading = "Constants", hide_short_help = true))]
    pub calibration: Vec<PathBuf>,
    /// Override one value: cluster.nic="800 Gb/s", gpu.hbm="141 GB"
    ///
    /// Any key of the model's, cluster's, GPU's or stack's file: model.…, cluster.…, gpu.…, stack.…
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY=VALUE", help_heading = "Constants"))]
    pub set: Vec<String>,
    /// Texts to read in place of files, by the names that the question uses for them.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, String>,
}

impl Default for QuestionOptions {
    fn default() -> Self {
        Self {
            gpus: None,
            global_batch: None,
            seq_len: None,
            document_len: None,
            precision: None,
            optimizer: None,
            stack: None,
            hbm_profile: Profile::default(),
            risk: None,
            lora: false,
            lora_targets: Targets::default(),
            imbalance: 1.0,
            fit: FitChoice::default(),
            calibration: Vec::new(),
            set: Vec::new(),
            texts: BTreeMap::new(),
        }
    }
}

impl QuestionOptions {
    /// Values that the user lays over the catalogue: the fit, then each `set`.
    ///
    /// # Errors
    ///
    /// The fit does not exist, or a `set` is no `key=value`.
    pub fn overrides(&self) -> Result<Overrides, QuestionError> {
        self.fit.over(Overrides::parse(&self.set)?.with_texts(self.texts.clone()))
    }

    /// Checks every number against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        let given = |count: Option<u32>| f64::from(count.unwrap_or(1));
        range::check([
            ("--gpus", given(self.gpus), range::GPUS),
            ("--global-batch", given(self.global_batch), range::BATCH),
            ("--seq-len", given(self.seq_len), range::SEQUENCE),
            ("--document-len", given(self.document_len), range::SEQUENCE),
            ("--imbalance", self.imbalance, range::IMBALANCE),
        ])
    }

    /// Probability of running out of memory that the user accepts, if one is named.
    ///
    /// # Errors
    ///
    /// The value is no probability above 0.
    pub fn accepted_risk(&self) -> Result<Option<f64>, QuestionError> {
        match self.risk {
            Some(risk) if !(risk > 0.0 && risk <= 1.0) => {
                Err(QuestionError::refused(format!("--risk {risk}: must be a probability above 0, at most 1")))
            }
            risk => Ok(risk),
        }
    }
}

impl Question {
    /// Question with every default filled in, for a document that another run can read.
    #[must_use]
    pub fn resolved(&self, problem: &Problem, framework: Option<&'static Framework>) -> Self {
        let workload = problem.workload();
        let stack = self.options.stack.clone();
        let stack = stack.unwrap_or_else(|| default_stack(problem.model(), problem.cluster(), framework).to_owned());
        let mut set = self.options.set.clone();
        if self.options.overrides().is_ok_and(|sets| graphs::were_open(problem, framework, &sets)) {
            set.push(format!("stack.cuda_graphs={}", problem.stack().cuda_graphs));
        }
        let options = QuestionOptions {
            gpus: Some(problem.cluster().gpus),
            global_batch: Some(workload.global_batch),
            seq_len: Some(workload.seq_len),
            precision: Some(Precision::of(workload)),
            optimizer: Some(self.recipe_name(problem)),
            stack: Some(stack),
            set,
            ..self.options.clone()
        };
        Self { options, ..self.clone() }
    }

    /// Question with every default filled in, for pools, whose file gives the number of GPUs.
    #[must_use]
    pub fn resolved_over_pools(&self, pooled: &Pooled, framework: Option<&'static Framework>) -> Self {
        let mut resolved = self.resolved(&pooled.joined()[0], framework);
        resolved.options.gpus = None;
        resolved.options.set.clone_from(&self.options.set); // of all pools
        resolved
    }

    /// Name of the optimizer recipe.
    pub fn recipe_name(&self, problem: &Problem) -> String {
        let usual = || problem.stack().usual_recipe(problem.workload().format).to_owned();
        self.options.optimizer.clone().unwrap_or_else(usual)
    }
}
