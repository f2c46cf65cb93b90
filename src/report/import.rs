//! Imported problem as a table, as versioned JSON, and as a command line.

use serde::Serialize;

use super::Sheet;
use meshwright_engine::model::Model;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;
use meshwright_engine::units::count;
use meshwright_engine::workload::{Adaptation, RECIPES, Recipe, precision};
use meshwright_frameworks::import::{Finding, Imported, known};
use meshwright_planner::catalog::{self, Overrides};

/// Name of a recipe, or its byte counts: `2+4+4+8`.
pub fn recipe_text(recipe: Recipe) -> String {
    let known = RECIPES.iter().find(|known| known.recipe == recipe).map(|known| known.name.to_owned());
    let Recipe { weight, gradient, master, state } = recipe;
    known.unwrap_or_else(|| format!("{weight}+{gradient}+{master}+{state}"))
}

/// Word of a command line, quoted if the shell would split it.
fn quoted(word: &str) -> String {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,/+:".contains(c));
    if plain && !word.is_empty() {
        word.to_owned()
    } else if word.contains(['"', '$', '`', '\\', '!']) {
        format!("'{}'", word.replace('\'', "'\\''")) // nothing is expanded inside of single quotes
    } else {
        format!("\"{word}\"")
    }
}

/// Inputs that a user names beside an imported file, or in place of what it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamedInputs<'a> {
    /// Model, as the user names it.
    pub model: Option<&'a str>,
    /// Cluster, as the user names it.
    pub cluster: Option<&'a str>,
    /// Stack, in place of the file's stack and of the settings that the file makes in it.
    pub stack: Option<&'a str>,
    /// Overrides of the catalogue (`--set`).
    pub sets: &'a [String],
}

/// Command line that evaluates an imported plan.
pub fn command(imported: &Imported, named: &NamedInputs) -> String {
    let own = imported.model.as_ref().and_then(known::name_of);
    let mut words = vec!["meshwright".to_owned(), "explain".to_owned()];
    words.push(quoted(named.model.or(own).unwrap_or("MODEL")));
    words.push(quoted(named.cluster.unwrap_or("CLUSTER")));
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), quoted(&value)]);
    if let Some(world) = imported.world {
        flag("--gpus", world.to_string());
    }
    if let Some(batch) = imported.work.global_batch {
        flag("--global-batch", batch.to_string());
    }
    if let Some(seq_len) = imported.work.seq_len {
        flag("--seq-len", seq_len.to_string());
    }
    if let Some(tokens) = imported.work.document_len {
        flag("--document-len", tokens.to_string());
    }
    flag("--precision", precision(imported.work.format, imported.work.half));
    flag("--optimizer", recipe_text(imported.work.recipe));
    if imported.work.adaptation.is_lora() {
        words.push("--lora".to_owned());
        if imported.work.adaptation == Adaptation::LoraAttention {
            words.push("--lora-targets attention".to_owned());
        }
    }
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), quoted(&value)]);
    flag("--stack", named.stack.unwrap_or(imported.stack).to_owned());
    let settings = imported.settings.items().iter().filter(|_| named.stack.is_none());
    for item in settings.chain(named.sets) {
        flag("--set", item.clone());
    }
    flag("--plan", plan_text(imported));
    words.join(" ")
}

/// Plan as text, without `dp` if the number of GPUs is unknown.
pub fn plan_text(imported: &Imported) -> String {
    let mut text = imported.plan.to_string();
    // A plan without a split means even stages, but these stacks split differently by default.
    let plan = &imported.plan;
    let own = catalog::stack(imported.stack, &Overrides::default()).map_or(LayerSplit::Even, |stack| stack.split);
    let otherwise = own != LayerSplit::Even || imported.family == Family::Nanotron;
    if plan.layout.pp > 1 && plan.split == LayerSplit::Even && otherwise {
        text = text.replacen(" zero=", " split=even zero=", 1);
    }
    if imported.world.is_some() {
        return text;
    }
    text.split(' ').filter(|word| !word.starts_with("dp=")).collect::<Vec<_>>().join(" ")
}

/// Table of the imported model, workload and plan.
pub fn sheet(imported: &Imported, file: &str) -> Sheet {
    let mut sheet = Sheet::new(format!("{file}: {}", imported.kind), &["what", "value"]);
    let unknown = || "not in the file".to_owned();
    let number = |n: Option<u32>| n.map_or_else(unknown, |n| n.to_string());
    let work = &imported.work;
    let rows = [
        ("model", imported.model.as_ref().map_or_else(unknown, model_text)),
        ("GPUs", number(imported.world)),
        ("GPUs per node", number(imported.gpus_per_node)),
        ("global batch", number(work.global_batch)),
        ("sequence length", number(work.seq_len)),
        ("GEMMs", precision(work.format, work.half)),
        ("bytes per parameter", format!("{} ({})", work.recipe.total(), recipe_text(work.recipe))),
        ("trained", trained(imported)),
        (
            "stack",
            [imported.stack.to_owned()].iter().chain(imported.settings.items()).cloned().collect::<Vec<_>>().join(", "),
        ),
        ("plan", plan_text(imported)),
    ];
    for (what, value) in rows {
        sheet.push([what.to_owned(), value]);
    }
    sheet
}

/// Set of trained weights.
fn trained(imported: &Imported) -> String {
    let Some(adapters) = &imported.adapters else { return "all weights".to_owned() };
    let rank = adapters.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"));
    let targets =
        if adapters.targets.is_empty() { String::new() } else { format!(" on {}", adapters.targets.join(", ")) };
    format!("adapters{rank}{targets}")
}

fn model_text(model: &Model) -> String {
    let name = known::name_of(model).map_or_else(|| model.name.clone(), |name| format!("{} (`{name}`)", model.name));
    let parameters = count(model.parameters().total as f64);
    format!(
        "{name}: {parameters} parameters, {} layers, hidden {}, vocabulary {}",
        model.layers(),
        model.hidden,
        model.vocab
    )
}

/// Table of findings.
pub fn findings(findings: &[Finding]) -> Sheet {
    let mut sheet = Sheet::new("", &["level", "where", "what", "expected, or to do", "rule"]);
    for finding in findings {
        sheet.push([
            finding.level.to_string(),
            finding.place.as_ref().map_or_else(String::new, ToString::to_string),
            finding.message.clone(),
            finding.expected.clone(),
            finding.rule.to_owned(),
        ]);
    }
    sheet
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    file: &'a str,
    command: String,
    plan_text: String,
    catalogue_model: Option<&'static str>,
    parameters: Option<u64>,
    #[serde(flatten)]
    imported: &'a Imported,
}

/// JSON answer of `import`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn json(imported: &Imported, file: &str, command: String) -> serde_json::Result<String> {
    super::json::text(&Document {
        schema: super::json::SCHEMA,
        file,
        command,
        plan_text: plan_text(imported),
        catalogue_model: imported.model.as_ref().and_then(known::name_of),
        parameters: imported.model.as_ref().map(|model| model.parameters().total),
        imported,
    })
}

/// Model as TOML text that the catalogue reads; `None` if it has more kinds of layers than there are letters.
pub fn model_toml(model: &Model) -> Option<String> {
    #[derive(Serialize)]
    struct File<'a> {
        name: &'a str,
        source: &'a str,
        hidden: u32,
        vocab: u32,
        seq_len: u32,
        tied_embeddings: bool,
        learned_positions: u32,
        embedding_norm: bool,
        head_bias: bool,
        norm: meshwright_engine::model::Norm,
        dropout: bool,
        mtp_depth: u32,
        layers: String,
        layer: std::collections::BTreeMap<char, &'a meshwright_engine::model::Layer>,
    }
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
    let mut runs: Vec<(char, u32)> = Vec::new();
    for kind in &model.order {
        let letter = *letters.get(*kind)?;
        match runs.last_mut() {
            Some((last, times)) if *last == letter => *times += 1,
            Some(_) | None => runs.push((letter, 1)),
        }
    }
    let layers: Vec<String> = runs.iter().map(|(letter, times)| format!("{letter}*{times}")).collect();
    toml::to_string(&File {
        name: &model.name,
        source: &model.source,
        hidden: model.hidden,
        vocab: model.vocab,
        seq_len: model.seq_len,
        tied_embeddings: model.tied_embeddings,
        learned_positions: model.learned_positions,
        embedding_norm: model.embedding_norm,
        head_bias: model.head_bias,
        norm: model.norm,
        dropout: model.dropout,
        mtp_depth: model.mtp_depth,
        layers: layers.join(" "),
        layer: letters.into_iter().zip(&model.kinds).collect(),
    })
    .ok()
}
