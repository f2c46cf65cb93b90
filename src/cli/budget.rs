//! `meshwright budget`: estimate of the memory from parameters and a byte recipe.

use anyhow::{Result, bail};

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::question::recipe;
use crate::report::{Sheet, csv, json};
use meshwright_engine::model::Model;
use meshwright_engine::units::{Bytes, count};
use meshwright_engine::workload::{RECIPES, Recipe};
use meshwright_planner::catalog::{self, Overrides};

/// Arguments of `budget`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model: a name (`meshwright models`), a TOML file, or a Hugging Face config.json.
    model: String,
    /// Optimizer recipe (bytes per parameter); all recipes if omitted.
    #[arg(long, value_name = "RECIPE", default_value = "all")]
    optimizer: String,
    /// Tokens per sequence [default: the model's training length].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    seq_len: Option<u32>,
    /// Sequences of a micro-batch.
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    micro_batch: u32,
    /// Device that must fit the model [default: 80 GB of memory].
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Activation values kept per token and hidden unit in a layer (k). Source: specification §6.2.
const KEPT_PER_UNIT: f64 = 12.0;
/// Bytes per activation value (`b_a`): 16-bit.
const KEPT_BYTES: f64 = 2.0;
/// Device memory assumed by default.
const USUAL_HBM: Bytes = Bytes::new(80e9);

/// Memory of a model under one recipe.
#[derive(serde::Serialize)]
struct Budget {
    recipe: &'static str,
    note: &'static str,
    bytes_per_parameter: f64,
    weights_gib: f64,
    gradients_gib: f64,
    optimizer_gib: f64,
    states_bytes: f64,
    states_gib: f64,
    activations_gib: f64,
    fewest_gpus: u64,
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

impl Budget {
    fn new(name: &'static str, recipe: &Recipe, note: &'static str, parameters: f64, kept: Bytes, hbm: Bytes) -> Self {
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

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let model = catalog::model(&args.model, &Overrides::default())?;
    let hbm = match &args.gpu {
        Some(name) => catalog::gpu(name)?.hbm.value,
        None => USUAL_HBM,
    };
    if args.optimizer != "all" {
        recipe(&args.optimizer)?;
    }
    let seq_len = args.seq_len.unwrap_or(model.seq_len);
    if model.learned_positions > 0 && seq_len > model.learned_positions {
        bail!("a sequence of {seq_len} tokens is over the {} learned positions", model.learned_positions);
    }
    let kept = activations(&model, args.micro_batch, seq_len);
    let parameters = model.parameters().total as f64;
    let budgets: Vec<Budget> = RECIPES
        .iter()
        .filter(|(name, ..)| args.optimizer == "all" || args.optimizer == *name)
        .map(|(name, recipe, note)| Budget::new(name, recipe, note, parameters, kept, hbm))
        .collect();
    let text = match args.format {
        OutputFormat::Json => json::text(&serde_json::json!({
            "schema": json::SCHEMA,
            "model": model.name,
            "parameters": model.parameters(),
            "seq_len": seq_len,
            "micro_batch": args.micro_batch,
            "hbm_gib": hbm.as_gib(),
            "budgets": budgets,
        }))?,
        OutputFormat::Csv => {
            csv::render_objects(&budgets.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?)?
        }
        OutputFormat::Table | OutputFormat::Markdown => {
            let title = format!(
                "{}: {} parameters, {} x {seq_len} tokens in flight, GPUs of {hbm}; sizes in GiB",
                model.name,
                count(parameters),
                args.micro_batch
            );
            output::sheets(&[sheet(title, &budgets)], args.format)?
        }
    };
    output::print(&text)?;
    output::talk("fewest GPUs: states and activations shared out perfectly, no reserve; `plan` says what really fits");
    Ok(Outcome::Answered)
}

fn sheet(title: String, budgets: &[Budget]) -> Sheet {
    let columns = [
        "recipe",
        "B/param",
        "weights",
        "gradients",
        "optimizer",
        "total",
        "total bytes",
        "activations",
        "fewest GPUs",
    ];
    let mut sheet = Sheet::new(title, &columns);
    for budget in budgets {
        sheet.push([
            budget.recipe.to_owned(),
            budget.bytes_per_parameter.to_string(),
            format!("{:.1}", budget.weights_gib),
            format!("{:.1}", budget.gradients_gib),
            format!("{:.1}", budget.optimizer_gib),
            format!("{:.1}", budget.states_gib),
            format!("{:.2e}", budget.states_bytes),
            format!("{:.1}", budget.activations_gib),
            budget.fewest_gpus.to_string(),
        ]);
    }
    sheet
}
