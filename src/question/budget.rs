//! Question of `budget`: memory of a model from its parameters and a byte recipe.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::QuestionError;
use super::recipe::recipe;
use crate::report::json;
use meshwright_engine::model::Model;
use meshwright_engine::model::parameters::ModelParameters;
use meshwright_engine::range;
use meshwright_engine::units::Bytes;
use meshwright_engine::workload::{NamedRecipe, RECIPES};
use meshwright_planner::catalog::{self, Overrides};

/// Activation values kept per token and hidden unit in a layer (k). Source: specification §6.2.
const KEPT_PER_UNIT: f64 = 12.0;
/// Bytes per activation value (`b_a`): 16-bit.
const KEPT_BYTES: f64 = 2.0;
/// Device memory assumed by default.
const USUAL_HBM: Bytes = Bytes::new(80e9);
/// Name that stands for every recipe.
const ALL: &str = "all";

/// Question of `budget`: a model, an optimizer recipe, and the tokens in flight.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct BudgetQuestion {
    /// Model: a name (`meshwright models`), a TOML file, or a Hugging Face config.json.
    pub model: String,
    /// Optimizer recipe (bytes per parameter); all recipes if omitted.
    #[cfg_attr(feature = "cli", arg(long, value_name = "RECIPE", default_value = ALL))]
    #[serde(default = "all")]
    pub optimizer: String,
    /// Tokens per sequence [default: the model's training length].
    #[cfg_attr(feature = "cli", arg(long, value_name = "S"))]
    #[serde(default)]
    pub seq_len: Option<u32>,
    /// Sequences of a micro-batch.
    #[cfg_attr(feature = "cli", arg(long, value_name = "B", default_value_t = 1))]
    #[serde(default = "one")]
    pub micro_batch: u32,
    /// Device whose memory is counted in GPUs [default: 80 GB of memory].
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    #[serde(default)]
    pub gpu: Option<String>,
    /// Texts to read in place of files, by the names that the question uses for them.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(default)]
    pub texts: BTreeMap<String, String>,
}

fn all() -> String {
    ALL.to_owned()
}

const fn one() -> u32 {
    1
}

/// Memory of a model under one recipe.
#[derive(Debug, Serialize)]
pub struct RecipeBudget {
    /// Name of the recipe.
    pub recipe: &'static str,
    /// Formats and optimizer of the recipe, in words.
    pub note: &'static str,
    /// Bytes of weights, gradients, master weights and moments per parameter.
    pub bytes_per_parameter: f64,
    /// Weights in GiB.
    pub weights_gib: f64,
    /// Gradients in GiB.
    pub gradients_gib: f64,
    /// Master weights and moments in GiB.
    pub optimizer_gib: f64,
    /// All states in bytes.
    pub states_bytes: f64,
    /// All states in GiB.
    pub states_gib: f64,
    /// Activations of one micro-batch in GiB.
    pub activations_gib: f64,
    /// Fewest GPUs that hold states and activations, if these are divided evenly and nothing else takes memory.
    pub fewest_gpus: u64,
}

/// Answer of `budget`.
#[derive(Debug, Serialize)]
pub struct BudgetAnswer {
    /// Version of the document.
    pub schema: u32,
    /// Name of the model.
    pub model: String,
    /// Parameters by kind.
    pub parameters: ModelParameters,
    /// Tokens per sequence.
    pub seq_len: u32,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Memory of the device in GiB.
    pub hbm_gib: f64,
    /// Memory of the device.
    #[serde(skip)]
    pub hbm: Bytes,
    /// Memory by recipe.
    pub budgets: Vec<RecipeBudget>,
}

/// Activations of one micro-batch.
///
/// ```text
/// k·L·B·S·d·b_a          specification §6.2
/// ```
fn activations(model: &Model, micro_batch: u32, seq_len: u32) -> Bytes {
    let tokens = f64::from(micro_batch) * f64::from(seq_len);
    Bytes::new(KEPT_PER_UNIT * f64::from(model.layers()) * tokens * f64::from(model.hidden) * KEPT_BYTES)
}

impl RecipeBudget {
    fn new(named: &NamedRecipe, parameters: f64, kept: Bytes, hbm: Bytes) -> Self {
        let NamedRecipe { name, recipe, note } = *named;
        let gib = |bytes: f64| Bytes::new(parameters * bytes).as_gib();
        let states = Bytes::new(parameters * recipe.total());
        Self {
            recipe: name,
            note,
            bytes_per_parameter: recipe.total(),
            weights_gib: gib(recipe.weight),
            gradients_gib: gib(recipe.gradient),
            optimizer_gib: gib(recipe.master + recipe.state),
            states_bytes: states.get(),
            states_gib: states.as_gib(),
            activations_gib: kept.as_gib(),
            fewest_gpus: ((states + kept) / hbm).ceil() as u64,
        }
    }
}

impl BudgetQuestion {
    /// Memory by recipe.
    ///
    /// # Errors
    ///
    /// The model, the recipe or the device is unknown, or the sequence is over the model's learned positions.
    pub fn solve(&self) -> Result<BudgetAnswer, QuestionError> {
        range::check([
            ("--seq-len", f64::from(self.seq_len.unwrap_or(1)), range::SEQUENCE),
            ("--micro-batch", f64::from(self.micro_batch), range::BATCH),
        ])?;
        let model = catalog::model(&self.model, &Overrides::default().with_texts(self.texts.clone()))?;
        let hbm = match &self.gpu {
            Some(name) => catalog::gpu(name)?.hbm.value,
            None => USUAL_HBM,
        };
        if self.optimizer != ALL {
            recipe(&self.optimizer)?;
        }
        let seq_len = self.seq_len.unwrap_or(model.seq_len);
        if model.learned_positions > 0 && seq_len > model.learned_positions {
            return Err(QuestionError::refused(format!(
                "a sequence of {seq_len} tokens is over the {} learned positions",
                model.learned_positions
            )));
        }
        let kept = activations(&model, self.micro_batch, seq_len);
        let parameters = model.parameters();
        let budgets = RECIPES
            .iter()
            .filter(|known| self.optimizer == ALL || self.optimizer == known.name)
            .map(|known| RecipeBudget::new(known, parameters.total as f64, kept, hbm))
            .collect();
        Ok(BudgetAnswer {
            schema: json::SCHEMA,
            model: model.name,
            parameters,
            seq_len,
            micro_batch: self.micro_batch,
            hbm_gib: hbm.as_gib(),
            hbm,
            budgets,
        })
    }

    /// JSON document of the answer, the same as `budget --format json` prints.
    ///
    /// # Errors
    ///
    /// As for `solve`.
    pub fn answer(&self) -> Result<String, QuestionError> {
        Ok(json::text(&self.solve()?)?)
    }
}
