//! Subject of a question: a validated problem from names and numbers.

use super::calibration;
use super::defaults::default_stack;
use super::error::QuestionError;
use super::graphs::{self, Posed};
use super::names::{Precision, Targets};
use super::noted::{Noted, without};
use super::options::{Question, QuestionOptions};
use super::recipe::recipe;
use meshwright_engine::cluster::Cluster;
use meshwright_engine::model::Model;
use meshwright_engine::problem::Problem;
use meshwright_engine::workload::{self, Adaptation, Optimizer, Workload};
use meshwright_frameworks::Framework;
use meshwright_planner::advice;
use meshwright_planner::catalog::{self, ClusterOrPools, Overrides};
use meshwright_planner::confidence;
use meshwright_planner::pools::Pooled;

/// Machine that a question asks about, with the model and the workload on it.
#[derive(Debug)]
pub enum Subject {
    /// One kind of GPU.
    Cluster(Box<Posed>),
    /// Pools of heterogeneous GPUs.
    Pools(Box<Pooled>),
}

impl Question {
    /// Validated problem, or problems over pools, for a framework whose stack is the default; notes list what was assumed.
    ///
    /// # Errors
    ///
    /// A name is unknown, a file is invalid, or a number is outside its range.
    pub fn subject(&self, framework: Option<&'static Framework>) -> Result<Noted<Subject>, QuestionError> {
        self.options.check_ranges()?;
        let sets = self.options.overrides()?;
        let model = catalog::model(&self.model, &sets)?;
        let mut notes = Notes::default();
        let subject = match catalog::machine(&self.cluster, &sets)? {
            ClusterOrPools::Cluster(cluster) => {
                notes.assumed.extend(self.assumed_network(&cluster));
                Subject::Cluster(Box::new(self.options.on(model, *cluster, framework, &sets, &mut notes)?))
            }
            ClusterOrPools::Pools(pools) => {
                self.options.refuse_pools(&self.cluster)?;
                let gpus = pools.gpus();
                let usual = Precision::usual(pools.pools.iter().map(|pool| &pool.cluster.gpu));
                let mut pooled_with = |sets: &Overrides| {
                    Pooled::new(pools.clone(), |cluster| {
                        notes = Notes::default();
                        let part = ClusterPart { cluster, gpus, usual };
                        let posed = self.options.on_part(model.clone(), part, framework, sets, &mut notes)?;
                        Ok::<_, QuestionError>(posed.into_recipe())
                    })
                };
                let mut pooled = pooled_with(&sets)?;
                let replaying = pooled.separate().iter().filter(|pool| pool.stack().cuda_graphs).count();
                // All ranks of a mixture read the same files.
                if (1..pooled.separate().len()).contains(&replaying) {
                    let alone = pooled.separate().iter().cloned().map(graphs::of_fastest).collect();
                    pooled = pooled_with(&sets.after(["stack.cuda_graphs=false"])?)?.with_separate(alone);
                    notes.assumed.push(NOT_ON_ALL.to_owned());
                }
                Subject::Pools(Box::new(pooled))
            }
        };
        Ok(Noted { value: subject, notes: notes.lines() })
    }

    /// Validated problem on a cluster of one kind of GPU, for a framework whose stack is the default; of the fastest plan where the
    /// question leaves CUDA graphs open.
    ///
    /// # Errors
    ///
    /// A name is unknown, a file is invalid, a number is outside its range, or the cluster has pools.
    pub fn problem(&self, framework: Option<&'static Framework>) -> Result<Noted<Problem>, QuestionError> {
        self.options.check_ranges()?;
        let sets = self.options.overrides()?;
        let (model, cluster) = (catalog::model(&self.model, &sets)?, catalog::cluster(&self.cluster, &sets)?);
        let mut notes = Notes::default();
        notes.assumed.extend(self.assumed_network(&cluster));
        let posed = self.options.on(model, cluster, framework, &sets, &mut notes)?;
        let Noted { value, notes: of_graphs } = posed.of_fastest();
        Ok(Noted { value, notes: notes.lines().into_iter().chain(of_graphs).collect() })
    }

    /// The network of a cluster of which the user gave only the number and the kind of GPUs, and the board where the catalogue has two.
    fn assumed_network(&self, cluster: &Cluster) -> Option<String> {
        let level = cluster.levels.first().filter(|_| catalog::is_counted(&self.cluster))?;
        let over = cluster.levels.iter().fold(1.0, |over, level| level.oversubscription.max(over));
        let shape = if over > 1.0 { format!("oversubscribed {over}:1") } else { "of full bisection".to_owned() };
        let rate = if level.bandwidth.source == catalog::SET_SOURCE { "as set," } else { "at" };
        let network = format!("a network {shape} {rate} {} a GPU", level.bandwidth.value);
        Some(match catalog::on_boards_of_four(&self.cluster) {
            Some(boards) => format!("{network}, one GPU a board ({boards}: four)"),
            None => network,
        })
    }

    /// The question without its risk, which a search applies itself, and that risk.
    ///
    /// # Errors
    ///
    /// The risk is no probability above 0.
    pub fn split_risk(&self) -> Result<(Self, f64), QuestionError> {
        let risk = self.options.accepted_risk()?.unwrap_or(advice::USUAL_RISK);
        let options = QuestionOptions { risk: None, ..self.options.clone() };
        Ok((Self { options, ..self.clone() }, risk))
    }
}

/// Cluster that may be part of a larger machine, such as a pool.
struct ClusterPart {
    cluster: Cluster,
    /// GPUs of the whole machine, which the usual batch is for.
    gpus: u32,
    /// Number format where the user names none: all GPUs of the machine have it.
    usual: Precision,
}

/// Setting of a stack whose recipes have CUDA graphs on the hosts of some pools alone.
const NOT_ON_ALL: &str =
    "--set stack.cuda_graphs=false for all pools together (its recipes have graphs on the hosts of some alone)";

/// Sentences on how a problem came about.
#[derive(Default)]
struct Notes {
    /// Defaults of the settings that the user left out.
    assumed: Vec<String>,
    /// Calibrations that replaced figures.
    calibrated: Vec<String>,
}

impl Notes {
    fn lines(self) -> Vec<String> {
        let assumed = (!self.assumed.is_empty()).then(|| format!("assumed: {}", self.assumed.join(", ")));
        self.calibrated.into_iter().chain(assumed).collect()
    }
}

impl QuestionOptions {
    /// Problem of a model on a whole cluster, resized to the number of GPUs that the user names.
    fn on(
        &self,
        model: Model,
        mut cluster: Cluster,
        framework: Option<&'static Framework>,
        sets: &Overrides,
        notes: &mut Notes,
    ) -> Result<Posed, QuestionError> {
        if let Some(gpus) = self.gpus {
            if gpus > cluster.gpus {
                let beyond = cluster.levels.last().map_or("the NICs of its GPUs", |level| level.name.as_str());
                let (known, name) = (cluster.gpus, &cluster.name);
                notes.assumed.push(format!("beyond the {known} GPUs of {name}, its network `{beyond}`"));
            }
            cluster = cluster.resized(gpus);
        }
        let usual = Precision::usual([&cluster.gpu].into_iter());
        let whole = ClusterPart { gpus: cluster.gpus, cluster, usual };
        self.on_part(model, whole, framework, sets, notes)
    }

    /// Refuses options that need a single kind of GPU.
    fn refuse_pools(&self, name: &str) -> Result<(), QuestionError> {
        if self.gpus.is_some() {
            return Err(QuestionError::refused(format!(
                "--gpus: {name} has pools, each with its own number of GPUs\n\nhint: write `gpus` into its [[pool]] tables"
            )));
        }
        if !self.calibration.is_empty() {
            return Err(QuestionError::refused(format!(
                "--calibration: {name} has pools of several devices\n\nhint: a [[pool]] may name a device file of its own \
                 as `gpu`"
            )));
        }
        Ok(())
    }

    /// Problem of a model on a cluster or a part of one.
    fn on_part(
        &self,
        model: Model,
        part: ClusterPart,
        framework: Option<&'static Framework>,
        sets: &Overrides,
        notes: &mut Notes,
    ) -> Result<Posed, QuestionError> {
        let ClusterPart { mut cluster, gpus, usual } = part;
        let name = self.stack.as_deref().unwrap_or_else(|| default_stack(&model, &cluster, framework));
        let assumed = &mut notes.assumed;
        if self.stack.is_none() {
            assumed.push(format!("--stack {name}"));
        }
        let chosen = framework.filter(|framework| self.stack.is_none() && framework.stack == name);
        let chosen = chosen.map_or(&[][..], |framework| framework.stack_settings);
        assumed.extend(chosen.iter().map(|item| format!("--set {item}")));
        let mut stack = catalog::stack(name, &sets.after(chosen)?)?;
        for path in &self.calibration {
            notes.calibrated.push(calibration::lay_over(path, &mut cluster, &mut stack)?);
        }
        let adaptation = match (self.lora, self.lora_targets) {
            (false, _) => Adaptation::Full,
            (true, Targets::All) => Adaptation::Lora,
            (true, Targets::Attention) => Adaptation::LoraAttention,
        };
        let replays =
            graphs::are_written(framework) && catalog::defaults::replays(&model, &cluster, &stack, adaptation, sets);
        // A part of a machine has no plans of its own to compare.
        let has_open_graphs = replays && gpus == cluster.gpus;
        if replays && !has_open_graphs {
            assumed.push(format!("--set {}", graphs::REPLAYED));
        }
        stack.cuda_graphs |= replays;
        let precision = self.precision.unwrap_or(usual);
        if precision == Precision::Bf16 && !cluster.gpu.multiplies_bf16() {
            return Err(QuestionError::refused(format!(
                "{} has no bf16 GEMMs: its tensor cores multiply fp16 alone\n\nhint: --precision fp16",
                cluster.gpu.name
            )));
        }
        if self.precision.is_none() && precision != Precision::Bf16 {
            assumed.push("--precision fp16 (the tensor cores multiply no bf16)".into());
        }
        assumed.extend(without(&model.details.left_out));
        let seq_len = self.seq_len.unwrap_or_else(|| {
            assumed.push(format!("--seq-len {} (the model's default)", model.seq_len));
            model.seq_len
        });
        let global_batch = self.global_batch.unwrap_or_else(|| {
            let batch = workload::usual_batch(gpus, seq_len);
            assumed.push(format!("--global-batch {batch}"));
            batch
        });
        let optimizer = self.optimizer.as_deref().unwrap_or_else(|| stack.usual_recipe(precision.into()));
        if self.optimizer.is_none() {
            assumed.push(format!("--optimizer {optimizer}"));
        }
        // Pairs of runs of specification §2.8.
        if model.is_moe() && self.imbalance <= 1.0 {
            assumed.push("--imbalance 1 (balanced routing; real routing has taken 4 to 24 % longer)".into());
        }
        if !model.is_moe() && self.imbalance > 1.0 {
            assumed.push("--imbalance without effect (a dense model)".into());
        }
        if self.document_len.is_some_and(|tokens| tokens >= seq_len) {
            assumed.push("--document-len without effect (documents as long as the sequence)".into());
        }
        let workload = Workload {
            global_batch,
            seq_len,
            document_len: self.document_len,
            format: precision.into(),
            half: precision.into(),
            recipe: recipe(optimizer)?,
            optimizer: Optimizer::of_recipe(optimizer),
            adaptation,
            imbalance: self.imbalance,
            drops_tokens: false,
        };
        let usual = stack.attention;
        let problem = Problem::new(model, cluster, workload, stack, self.hbm_profile.into())?;
        let attention = problem.stack().attention;
        if attention != usual {
            let gpu = &problem.cluster().gpu.name;
            assumed.push(format!(
                "--set stack.attention={} ({} does not run on {gpu})",
                attention.name(),
                usual.name()
            ));
        }
        let risk = self.accepted_risk()?;
        let problem = match risk {
            Some(risk) => {
                let ceiling = confidence::ceiling(&problem, risk);
                problem.under_ceiling(ceiling)
            }
            None => problem,
        };
        Ok(Posed::new(problem, has_open_graphs, risk))
    }
}
