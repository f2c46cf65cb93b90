//! Flags that define a problem, and the defaults of those left out.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::calibration;
use super::output::talk;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::gpu::Format;
use meshwright_engine::model::Model;
use meshwright_engine::problem::{HbmProfile, Problem};
use meshwright_engine::workload::{self, Adaptation, Half, Optimizer, RECIPES, Recipe, Workload};
use meshwright_frameworks::Framework;
use meshwright_planner::advice;
use meshwright_planner::catalog::{self, ClusterOrPools, Overrides, fits};
use meshwright_planner::confidence;
use meshwright_planner::pools::Pooled;

impl From<Precision> for Half {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Fp16 => Self::Fp16,
            Precision::Bf16 | Precision::Fp8 | Precision::Fp8Block | Precision::Mxfp8 | Precision::Nvfp4 => Self::Bf16,
        }
    }
}

/// Number format on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bfloat16.
    Bf16,
    /// float16, with the throughput of bfloat16.
    Fp16,
    /// 8-bit with one scale per tensor.
    Fp8,
    /// 8-bit with one scale per block.
    Fp8Block,
    /// 8-bit with a shared exponent per 32 elements.
    Mxfp8,
    /// 4-bit with a scale per block of 16 elements.
    Nvfp4,
}

impl From<Precision> for Format {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Bf16 | Precision::Fp16 => Self::Bf16,
            Precision::Fp8 => Self::Fp8,
            Precision::Fp8Block => Self::Fp8Block,
            Precision::Mxfp8 => Self::Mxfp8,
            Precision::Nvfp4 => Self::Nvfp4,
        }
    }
}

/// Share of the memory that a plan may fill, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// At most 97 % of the memory.
    Tight,
    /// At most 92 % of the memory.
    Normal,
    /// At most 75 % of the memory.
    Conservative,
}

impl From<Profile> for HbmProfile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Tight => Self::Tight,
            Profile::Normal => Self::Normal,
            Profile::Conservative => Self::Conservative,
        }
    }
}

/// Selection of the constants to predict with.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct FitArgs {
    /// Fitted constants to lay over the specification's: a name, a TOML file (clusters/fits), or `none`.
    #[arg(long, value_name = "FIT", default_value = fits::DEFAULT, help_heading = "Constants", hide_short_help = true)]
    fit: String,
}

impl FitArgs {
    /// Overrides with this fit.
    pub fn over(&self, sets: Overrides) -> Result<Overrides> {
        Ok(sets.with_fit(fits::fit(&self.fit)?))
    }
}

/// Model, cluster and options of a problem.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemArgs {
    /// Model: a name (`meshwright models`), a TOML file, or a Hugging Face config.json.
    pub model: String,
    /// Cluster: a name (`meshwright clusters`) or a TOML file.
    pub cluster: String,
    #[command(flatten)]
    pub options: ProblemOptions,
}

/// Workload, stack and overrides of a problem.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Question")]
pub struct ProblemOptions {
    /// Number of GPUs, instead of the cluster's own.
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Sequences per step
    ///
    /// By default about one per GPU, between 128 and 2048, with the odd factors of the GPU count so that it divides among
    /// replicas.
    #[arg(long, value_name = "B")]
    pub global_batch: Option<u32>,
    /// Tokens per sequence [default: the model's training length].
    #[arg(long, value_name = "S")]
    pub seq_len: Option<u32>,
    /// Number format of the GEMMs.
    #[arg(long, value_enum, default_value = "bf16")]
    pub precision: Precision,
    /// Optimizer recipe (`meshwright budget MODEL`)
    ///
    /// A name, or bytes per parameter as weights+gradients+master+moments. By default megatron, or megatron-bf16-grads if the
    /// stack reduces gradients in 16 bits.
    #[arg(long, value_name = "RECIPE")]
    pub optimizer: Option<String>,
    /// Software stack: a name (`meshwright stacks`) or a TOML file
    ///
    /// By default that of --for, else nemo-25; megatron-rocm-2025 on AMD, jax-2025 on TPUs.
    #[arg(long, value_name = "NAME")]
    pub stack: Option<String>,
    /// Share of the memory that a plan may fill
    #[arg(long, value_enum, default_value = "normal", help_heading = "Memory")]
    pub hbm_profile: Profile,
    /// Largest accepted probability of running out of memory
    ///
    /// By the errors on published runs, in addition to the profile. The default of `plan` is 0.05, one launch in twenty.
    #[arg(long, value_name = "P", help_heading = "Memory")]
    pub risk: Option<f64>,
    /// Train low-rank adapters on a frozen base.
    #[arg(long)]
    pub lora: bool,
    /// Tokens of the busiest expert rank relative to the mean.
    #[arg(long, value_name = "X", default_value_t = 1.0, hide_short_help = true)]
    pub imbalance: f64,
    #[command(flatten)]
    pub fit: FitArgs,
    /// Calibration file of the device, from `meshwright calibrate`; if given more than once, later files override earlier
    /// ones.
    #[arg(long, value_name = "FILE", help_heading = "Constants", hide_short_help = true)]
    pub calibration: Vec<PathBuf>,
    /// Override one value: cluster.nic="800 Gb/s", gpu.hbm="141 GB"
    ///
    /// Any key of the model's, cluster's, GPU's or stack's file: model.…, cluster.…, gpu.…, stack.…
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Constants")]
    pub set: Vec<String>,
}

impl ProblemArgs {
    /// Validated problem; reports assumptions on stderr.
    pub fn problem(&self) -> Result<Problem> {
        self.problem_for(None)
    }

    /// Validated problem for one framework, and the risk of running out of memory that a launch accepts, which the problem
    /// leaves to the search.
    pub fn problem_and_risk(&self, framework: Option<&'static Framework>) -> Result<(Problem, f64)> {
        let risk = self.options.accepted_risk()?.unwrap_or(advice::USUAL_RISK);
        let options = ProblemOptions { risk: None, ..self.options.clone() };
        Ok((options.problem_for(&self.model, &self.cluster, framework)?, risk))
    }

    /// Validated problem for one framework, whose stack is the default.
    pub fn problem_for(&self, framework: Option<&'static Framework>) -> Result<Problem> {
        self.options.problem_for(&self.model, &self.cluster, framework)
    }
}

impl ProblemOptions {
    /// Validated problem of this model on this cluster; reports assumptions on stderr.
    pub fn problem(&self, model: &str, cluster: &str) -> Result<Problem> {
        self.problem_for(model, cluster, None)
    }

    /// Validated problem of this model on this cluster for one framework; reports assumptions on stderr.
    pub fn problem_for(&self, model: &str, cluster: &str, framework: Option<&'static Framework>) -> Result<Problem> {
        let sets = self.fit.over(Overrides::parse(&self.set)?)?;
        let model = catalog::model(model, &sets)?;
        let mut cluster = catalog::cluster(cluster, &sets)?;
        let mut assumed = Vec::new();
        if let Some(gpus) = self.gpus {
            if gpus > cluster.gpus {
                let beyond = cluster.levels.last().map_or("the NICs of its GPUs", |level| level.name.as_str());
                assumed.push(format!("beyond the {} GPUs of {}, its network `{beyond}`", cluster.gpus, cluster.name));
            }
            cluster = cluster.resized(gpus);
        }
        let gpus = cluster.gpus;
        let problem = self.problem_on((model, cluster), gpus, framework, &sets, &mut assumed)?;
        if !assumed.is_empty() {
            talk(&format!("assumed: {}", assumed.join(", ")));
        }
        Ok(problem)
    }

    /// Problem over pools of heterogeneous GPUs, if the cluster has pools; reports assumptions on stderr.
    pub fn pooled_for(
        &self,
        model: &str,
        cluster: &str,
        framework: Option<&'static Framework>,
    ) -> Result<Option<Pooled>> {
        let sets = self.fit.over(Overrides::parse(&self.set)?)?;
        let name = cluster;
        let ClusterOrPools::Pools(pools) = catalog::machine(cluster, &sets)? else { return Ok(None) };
        let model = catalog::model(model, &sets)?;
        if self.gpus.is_some() {
            bail!(
                "--gpus: {name} has pools, each with its own number of GPUs\n\nhint: write `gpus` into its [[pool]] tables"
            );
        }
        if !self.calibration.is_empty() {
            bail!(
                "--calibration: {name} has pools of several devices\n\nhint: a [[pool]] may name a device file of its own as `gpu`"
            );
        }
        let gpus = pools.gpus();
        let mut assumed = Vec::new();
        let pooled = Pooled::new(pools, |cluster| {
            assumed.clear();
            self.problem_on((model.clone(), cluster), gpus, framework, &sets, &mut assumed)
        })?;
        if !assumed.is_empty() {
            talk(&format!("assumed: {}", assumed.join(", ")));
        }
        Ok(Some(pooled))
    }

    /// Problem of a model on a cluster, which may be part of `gpus` GPUs; adds to the list of assumptions.
    fn problem_on(
        &self,
        (model, mut cluster): (Model, Cluster),
        gpus: u32,
        framework: Option<&'static Framework>,
        sets: &Overrides,
        assumed: &mut Vec<String>,
    ) -> Result<Problem> {
        let name = self.stack.as_deref().unwrap_or_else(|| default_stack(&cluster, framework));
        if self.stack.is_none() {
            assumed.push(format!("--stack {name}"));
        }
        let mut stack = catalog::stack(name, sets)?;
        for path in &self.calibration {
            calibration::lay_over(path, &mut cluster, &mut stack)?;
        }
        let seq_len = self.seq_len.unwrap_or_else(|| {
            assumed.push(format!("--seq-len {} (the model's own)", model.seq_len));
            model.seq_len
        });
        let global_batch = self.global_batch.unwrap_or_else(|| {
            let batch = workload::usual_batch(gpus);
            assumed.push(format!("--global-batch {batch}"));
            batch
        });
        let optimizer = self.optimizer.as_deref().unwrap_or_else(|| stack.usual_recipe());
        if self.optimizer.is_none() {
            assumed.push(format!("--optimizer {optimizer}"));
        }
        let workload = Workload {
            global_batch,
            seq_len,
            format: self.precision.into(),
            half: self.precision.into(),
            recipe: recipe(optimizer)?,
            optimizer: if optimizer == "muon" { Optimizer::Muon } else { Optimizer::Elementwise },
            adaptation: if self.lora { Adaptation::Lora } else { Adaptation::Full },
            imbalance: self.imbalance,
            drops_tokens: false,
        };
        let problem = Problem::new(model, cluster, workload, stack, self.hbm_profile.into())?;
        Ok(match self.accepted_risk()? {
            Some(risk) => {
                let ceiling = confidence::ceiling(&problem, risk);
                problem.under_ceiling(ceiling)
            }
            None => problem,
        })
    }

    /// The risk of running out of memory that the user accepts, if one is named.
    fn accepted_risk(&self) -> Result<Option<f64>> {
        match self.risk {
            Some(risk) if !(risk > 0.0 && risk <= 1.0) => {
                bail!("--risk {risk}: must be a probability above 0, at most 1")
            }
            risk => Ok(risk),
        }
    }
}

impl ProblemArgs {
    /// Flags with every default filled in, for a document that another run can read.
    pub fn resolved(&self, problem: &Problem, framework: Option<&'static Framework>) -> Self {
        let workload = problem.workload();
        let stack = self.options.stack.clone();
        let stack = stack.unwrap_or_else(|| default_stack(problem.cluster(), framework).to_owned());
        let options = ProblemOptions {
            gpus: Some(problem.cluster().gpus),
            global_batch: Some(workload.global_batch),
            seq_len: Some(workload.seq_len),
            optimizer: Some(self.recipe_name(problem)),
            stack: Some(stack),
            ..self.options.clone()
        };
        Self { options, ..self.clone() }
    }

    /// Flags with every default filled in, for pools, whose file gives the number of GPUs.
    pub fn resolved_over_pools(&self, pooled: &Pooled, framework: Option<&'static Framework>) -> Self {
        let mut resolved = self.resolved(&pooled.joined()[0], framework);
        resolved.options.gpus = None;
        resolved
    }

    /// Name of the optimizer recipe.
    pub fn recipe_name(&self, problem: &Problem) -> String {
        self.options.optimizer.clone().unwrap_or_else(|| problem.stack().usual_recipe().to_owned())
    }
}

fn default_stack(cluster: &Cluster, framework: Option<&'static Framework>) -> &'static str {
    let vendor = &cluster.gpu.vendor;
    match framework {
        Some(framework) => catalog::defaults::stack_of(framework.stack, framework.family(), vendor),
        None => catalog::defaults::stack(vendor),
    }
}

/// Recipe from four byte counts, as `2+4+4+8`: weights, gradients, master weights, moments.
fn bytes(text: &str) -> Option<Recipe> {
    let parts: Vec<f64> = text.split('+').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
    let [weight, gradient, master, state] = parts.try_into().ok()?;
    let recipe = Recipe { weight, gradient, master, state };
    let fine = |x: f64| x.is_finite() && (0.0..=64.0).contains(&x);
    (fine(weight) && fine(gradient) && fine(master) && fine(state) && weight > 0.0).then_some(recipe)
}

/// Recipe by name or by its byte counts; an error lists the names.
pub fn recipe(name: &str) -> Result<Recipe> {
    workload::recipe(name).or_else(|| bytes(name)).ok_or_else(|| {
        let names: Vec<&str> = RECIPES.iter().map(|(name, ..)| *name).collect();
        let nearest = catalog::nearest(name, names.iter().copied());
        let nearest = nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        anyhow!(
            "there is no optimizer recipe `{name}`{nearest}\n\nhint: there are: {}; or bytes of weights, gradients, master \
             weights and moments: 2+4+4+8",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_suggests_its_neighbour() {
        assert!(recipe("muon").is_ok());
        assert!((recipe("1+2+4+6").unwrap().total() - 13.0).abs() < 1e-9);
        assert!(recipe("1+2+4").is_err() && recipe("0+2+4+6").is_err() && recipe("inf+2+4+6").is_err());
        assert!(recipe("megatorn").unwrap_err().to_string().contains("did you mean `megatron`?"));
    }
}
