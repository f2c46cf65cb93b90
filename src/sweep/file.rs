//! Sweep file: workloads, options, and the purchase to plan.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::choice::{AXES, Changes, Choice};
use super::digest::Digest;
use super::error::SweepError;
use super::fleet::request::PurchaseRequest;
use super::product::{AxisProduct, checked, counted, decoded, most_gpus, positive, product, within};
use super::task::Task;
use meshwright_engine::gpu::Format;
use meshwright_engine::money::Market;
use meshwright_engine::range;
use meshwright_engine::suggest::nearest_hint;
use meshwright_engine::units::Tokens;
use meshwright_engine::workload::{self, Adaptation, Half, Optimizer, Workload};
use meshwright_planner::catalog::{self, Overrides};

/// Workload table of a sweep file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WorkloadTable {
    name: Option<String>,
    model: String,
    tokens: Tokens,
    #[serde(default = "once")]
    runs: f64,
    global_batch: Option<u32>,
    seq_len: Option<u32>,
    document_len: Option<u32>,
    #[serde(default = "bf16")]
    precision: Format,
    optimizer: Option<String>,
    stack: Option<String>,
    #[serde(default)]
    lora: bool,
    #[serde(default = "balanced")]
    imbalance: f64,
}

const fn once() -> f64 {
    1.0
}
const fn bf16() -> Format {
    Format::Bf16
}
const fn balanced() -> f64 {
    1.0
}

/// Top-level table of a sweep file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepTable {
    name: String,
    market: Option<String>,
    #[serde(default)]
    set: Vec<String>,
    source: Option<String>,
    workload: Vec<WorkloadTable>,
    options: Value,
    buy: Option<PurchaseRequest>,
}

/// Sweep of workloads × options.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name as printed.
    pub name: String,
    /// Source of its sizes, for the reader.
    pub source: Option<String>,
    /// Prices, power and failure rates.
    pub market: Market,
    /// Workloads to train.
    pub tasks: Vec<Task>,
    /// Purchase to plan, if the file has one.
    pub wanted: Option<PurchaseRequest>,
    /// Fingerprint of the version, options, workloads, prices and overrides, on which results depend.
    pub digest: String,
    /// Catalogue overrides of the user.
    pub sets: Overrides,
    pub(super) products: Vec<AxisProduct>,
}

impl Sweep {
    /// Reads a sweep file.
    ///
    /// # Errors
    ///
    /// Names the line, key or value that is invalid, or an expansion to no options or too many.
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let origin = path.display().to_string();
        Self::parse(&catalog::read_text(path)?, &origin).map_err(|error| match error {
            named @ SweepError::File { .. } => named,
            other => SweepError::File { origin, why: other.to_string() },
        })
    }

    /// Parses the text of a sweep file.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn parse(text: &str, origin: &str) -> Result<Self, SweepError> {
        let in_file = |why: String| SweepError::File { origin: origin.to_owned(), why };
        let table: SweepTable = catalog::parse_toml(text).map_err(|error| {
            let hint = catalog::nearest_expected(error.message())
                .map_or_else(String::new, |near| format!("\n\nhint: did you mean `{near}`?"));
            in_file(format!("{}{hint}", error.to_string().trim_end()))
        })?;
        let SweepTable { name, market, set, source, workload, options, buy } = table;
        let sets = Overrides::parse(&set)?;
        let market = catalog::market(market.as_deref().unwrap_or(catalog::defaults::MARKET), &sets)?;
        let tables = match options {
            Value::Array(items) => items,
            table => vec![table],
        };
        let tables: Vec<Table> = tables
            .into_iter()
            .map(|table| match table {
                Value::Table(table) => Ok(table),
                Value::Array(_)
                | Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_) => Err(in_file("`options` is a table, or a list of tables".into())),
            })
            .collect::<Result<_, _>>()?;
        let products: Vec<AxisProduct> = tables.iter().map(product).collect::<Result<_, _>>()?;
        counted(&products)?;
        let mut clusters = Vec::new();
        for product in &products {
            clusters.extend(checked(product, &market, &sets)?);
        }
        let most = products.iter().filter_map(most_gpus).chain(clusters.iter().map(|cluster| cluster.gpus)).max();
        if workload.is_empty() {
            return Err(SweepError::Empty("there is no [[workload]]".into()));
        }
        let tasks: Vec<Task> =
            workload.into_iter().map(|table| task(table, most.unwrap_or(1), &sets)).collect::<Result<_, _>>()?;
        let mut names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
            return Err(SweepError::value("workload.name", format!("two workloads are named `{twice}`")));
        }
        if let Some(wanted) = &buy {
            wanted.check(&tasks)?;
        }
        let axes: Vec<_> = products.iter().map(|product| &product.axes).collect();
        let digest = Digest::default()
            .text(env!("CARGO_PKG_VERSION"))
            .value(&axes)
            .value(&tasks)
            .value(&market)
            .value(&clusters)
            .value(&set)
            .hex();
        Ok(Self { name, source, market, tasks, wanted: buy, digest, sets, products })
    }

    /// Number of options of the sweep.
    pub fn options(&self) -> u64 {
        self.products.iter().map(|product| product.count(Changes::Machine) * product.count(Changes::Bill)).sum()
    }

    /// Number of machines of the sweep; options that share a search count once.
    pub fn machines(&self) -> u64 {
        self.products.iter().map(|product| product.count(Changes::Machine)).sum()
    }

    /// Options of one machine, with the number of the first. `machine` counts from 0.
    pub fn machine(&self, mut machine: u64) -> (u64, Vec<Choice>) {
        let mut first = 0;
        for product in &self.products {
            let (machines, bills) = (product.count(Changes::Machine), product.count(Changes::Bill));
            if machine < machines {
                let from = machine * bills;
                return (first + from, (from..from + bills).map(|at| decoded(product, at)).collect());
            }
            machine -= machines;
            first += machines * bills;
        }
        (first, Vec::new())
    }

    /// Choice of an option by its number, from 0; `None` beyond the last.
    pub fn option(&self, mut option: u64) -> Option<Choice> {
        for product in &self.products {
            let count = product.count(Changes::Machine) * product.count(Changes::Bill);
            if option < count {
                return Some(decoded(product, option));
            }
            option -= count;
        }
        None
    }

    /// Axes with more than one value, with their values in the order of the file.
    pub fn varied(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut varied: Vec<(&'static str, Vec<String>)> = Vec::new();
        for (name, _) in AXES {
            let mut values: Vec<String> = Vec::new();
            for product in &self.products {
                for value in product.axes.iter().filter(|(key, _)| key == name).flat_map(|(_, values)| values) {
                    if !values.contains(value) {
                        values.push(value.clone());
                    }
                }
            }
            if values.len() > 1 {
                varied.push((name, values));
            }
        }
        varied
    }

    /// Label of a choice: its values on the axes that vary.
    pub fn label(&self, choice: &Choice) -> String {
        let varied = self.varied();
        let differs = |key: &str| varied.iter().any(|(name, _)| *name == key);
        let part = Choice(choice.0.iter().filter(|(key, _)| differs(key)).cloned().collect());
        if part.0.is_empty() { choice.to_string() } else { part.to_string() }
    }
}

/// Task of a workload table. A table without a global batch takes the usual one of `most_gpus` GPUs.
fn task(table: WorkloadTable, most_gpus: u32, sets: &Overrides) -> Result<Task, SweepError> {
    let WorkloadTable {
        name,
        model: model_name,
        tokens,
        runs,
        global_batch,
        seq_len,
        document_len,
        precision,
        optimizer,
        stack,
        lora,
        imbalance,
    } = table;
    let model = catalog::model(&model_name, sets)?;
    let name = name.unwrap_or(model_name);
    let key = |field: &str| format!("workload.{name}.{field}");
    positive(&key("tokens"), tokens.get())?;
    within(&key("tokens"), tokens.get(), range::TOKENS)?;
    within(&key("runs"), runs, range::RUNS)?;
    within(&key("imbalance"), imbalance, range::IMBALANCE)?;
    within(&key("global_batch"), f64::from(global_batch.unwrap_or(1)), range::BATCH)?;
    within(&key("seq_len"), f64::from(seq_len.unwrap_or(1)), range::SEQUENCE)?;
    within(&key("document_len"), f64::from(document_len.unwrap_or(1)), range::SEQUENCE)?;
    let stack = stack.map(|stack| catalog::stack(&stack, sets)).transpose()?;
    if let Some(recipe) = &optimizer
        && workload::recipe(recipe).is_none()
    {
        let near = nearest_hint(recipe, workload::RECIPES.iter().map(|known| known.name));
        return Err(SweepError::value(key("optimizer"), format!("there is no recipe `{recipe}`{near}")));
    }
    let workload = Workload {
        global_batch: global_batch
            .unwrap_or_else(|| workload::usual_batch(most_gpus, seq_len.unwrap_or(model.seq_len))),
        seq_len: seq_len.unwrap_or(model.seq_len),
        document_len,
        format: precision,
        half: Half::default(),
        recipe: workload::RECIPES[0].recipe, // the stack's own is set with the machine
        optimizer: optimizer.as_deref().map_or(Optimizer::Elementwise, Optimizer::of_recipe),
        adaptation: if lora { Adaptation::Lora } else { Adaptation::Full },
        imbalance,
        drops_tokens: false,
    };
    Ok(Task { name, model, tokens, runs, workload, stack, recipe: optimizer })
}
