//! `meshwright models`, `clusters`, `gpus`, `stacks`: lists of the catalogue, and single entries with all values.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::report::{Sheet, json};
use meshwright_engine::cluster::Level;
use meshwright_engine::units::{count, significant};
use meshwright_planner::catalog::{self, CatalogError, Overrides};

/// Arguments of the four catalogue commands.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Entry to show: a name or a file; lists all entries if omitted.
    name: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// Lists the models, or shows one.
pub fn models(args: &Args) -> Result<Outcome> {
    let load = |name: &str| catalog::model(name, &Overrides::default());
    if let Some(name) = &args.name {
        let model = load(name)?;
        return detail(args.format, &json::model(&model)?);
    }
    let mut sheet =
        Sheet::new("", &["name", "parameters", "active", "layers", "hidden", "vocab", "seq len", "experts"]);
    for name in catalog::model_names() {
        let model = load(name)?;
        let parameters = model.parameters();
        sheet.push([
            name.to_owned(),
            count(parameters.total as f64),
            count(parameters.active as f64),
            model.layers().to_string(),
            model.hidden.to_string(),
            model.vocab.to_string(),
            model.seq_len.to_string(),
            model.experts().to_string(),
        ]);
    }
    list(args.format, &sheet)
}

/// Lists the clusters, or shows one.
pub fn clusters(args: &Args) -> Result<Outcome> {
    let load = |name: &str| catalog::cluster(name, &Overrides::default());
    if let Some(name) = &args.name {
        return versioned(args.format, &load(name)?);
    }
    let mut sheet = Sheet::new("", &["name", "GPUs", "GPU", "per node", "scale-up", "levels above"]);
    for name in catalog::cluster_names() {
        let cluster = load(name)?;
        let levels: Vec<String> = cluster.levels.iter().map(level).collect();
        sheet.push([
            name.to_owned(),
            cluster.gpus.to_string(),
            cluster.gpu.name,
            cluster.gpus_per_node.to_string(),
            cluster.scale_up.gpus.to_string(),
            levels.join(", "),
        ]);
    }
    list(args.format, &sheet)
}

/// Lists the devices, or shows one.
pub fn gpus(args: &Args) -> Result<Outcome> {
    if let Some(name) = &args.name {
        return versioned(args.format, &catalog::gpu(name)?);
    }
    let columns = ["name", "maker", "year", "memory", "bandwidth", "bf16 TFLOP/s", "scale-up", "basis"];
    let mut sheet = Sheet::new("", &columns);
    for name in catalog::gpu_names() {
        let gpu = catalog::gpu(name)?;
        sheet.push([
            name.to_owned(),
            gpu.vendor.clone(),
            gpu.year.to_string(),
            gpu.hbm.value.to_string(),
            gpu.hbm_bandwidth.value.to_string(),
            gpu.peak_of(meshwright_engine::gpu::Format::Bf16)
                .map_or_else(String::new, |peak| significant(peak.as_tflops())),
            gpu.scale_up.gpus.to_string(),
            gpu.basis.to_string(),
        ]);
    }
    list(args.format, &sheet)
}

/// Lists the software stacks, or shows one.
pub fn stacks(args: &Args) -> Result<Outcome> {
    let load = |name: &str| -> Result<_, CatalogError> { catalog::stack(name, &Overrides::default()) };
    if let Some(name) = &args.name {
        return versioned(args.format, &load(name)?);
    }
    let mut sheet = Sheet::new("", &["name", "stack", "release", "gradient bytes on the wire"]);
    for name in catalog::stack_names() {
        let stack = load(name)?;
        sheet.push([name.to_owned(), stack.name, stack.release, stack.reduce_bytes.to_string()]);
    }
    list(args.format, &sheet)
}

/// Description of a network level: GPUs that it joins, bandwidth of a GPU into it, oversubscription.
fn level(level: &Level) -> String {
    let Level { name, gpus, bandwidth, oversubscription, .. } = level;
    let over = if *oversubscription > 1.0 { format!(", {oversubscription}:1") } else { String::new() };
    format!("{name} of {gpus} at {}{over}", bandwidth.value)
}

fn list(format: OutputFormat, sheet: &Sheet) -> Result<Outcome> {
    output::print(&output::sheets(std::slice::from_ref(sheet), format)?)?;
    Ok(Outcome::Answered)
}

/// Entry of the catalogue as JSON, after the version of the document. Values are SI: bytes, bytes/s, FLOP/s, seconds.
fn versioned(format: OutputFormat, entry: &impl Serialize) -> Result<Outcome> {
    let mut document = serde_json::Map::from_iter([("schema".to_owned(), Value::from(json::SCHEMA))]);
    if let Value::Object(fields) = serde_json::to_value(entry)? {
        document.extend(fields);
    }
    detail(format, &json::text(&document)?)
}

/// JSON document unchanged, or as a table of two columns.
fn detail(format: OutputFormat, document: &str) -> Result<Outcome> {
    let text = match format {
        OutputFormat::Json => document.to_owned(),
        OutputFormat::Table | OutputFormat::Markdown | OutputFormat::Csv => {
            let mut sheet = Sheet::new("", &["key", "value"]);
            rows(String::new(), &serde_json::from_str(document)?, &mut sheet);
            output::sheets(&[sheet], format)?
        }
    };
    output::print(&text)?;
    Ok(Outcome::Answered)
}

/// Leaves of a document with their dotted keys; a list of plain values is one leaf.
fn rows(key: String, value: &Value, sheet: &mut Sheet) {
    let join = |inner: &str| if key.is_empty() { inner.to_owned() } else { format!("{key}.{inner}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(inner, value)| rows(join(inner), value, sheet)),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, value) in items.iter().enumerate() {
                rows(join(&at.to_string()), value, sheet);
            }
        }
        Value::String(text) => sheet.push([key, text.clone()]),
        Value::Null => {}
        Value::Array(items) => {
            // A line breaks between the values.
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            sheet.push([key, format!("[{}]", items.join(", "))]);
        }
        Value::Bool(_) | Value::Number(_) => sheet.push([key, value.to_string()]),
    }
}
