//! `meshwright glossary`: the keys of a plan, the terms of its prediction, and the settings of frameworks that they stand for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::format::OutputFormat;
use super::{Outcome, output};
use crate::report::{Sheet, json};
use meshwright_engine::suggest;
use meshwright_frameworks::named;

/// Arguments of `glossary`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One key, value of a key, or term; all of them when left out.
    term: Option<String>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// The one source of the glossary; docs/glossary.md is made of it too.
const TEXT: &str = include_str!("../../docs/glossary.toml");

/// All entries, by table.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Glossary {
    plan: Vec<Key>,
    time: Vec<Term>,
    memory: Vec<Term>,
    word: Vec<Term>,
}

/// One key of a plan's text, and the setting of each framework that it becomes.
#[derive(Debug, Deserialize, Serialize)]
struct Key {
    name: String,
    #[serde(default)]
    also: Vec<String>,
    title: String,
    is: String,
    values: String,
    default: String,
    section: String,
    /// Settings by name of the framework, with `_` for `-`.
    #[serde(flatten)]
    settings: BTreeMap<String, String>,
}

impl Key {
    /// Whether one of the listed values has this name, in the form of [`plain`].
    fn has_value(&self, wanted: &str) -> bool {
        self.values.split([',', ';', ':']).any(|value| plain(value.trim()) == wanted)
    }
}

/// Table of settings, with a column for each framework.
struct SettingsTable {
    title: &'static str,
    /// Names of the frameworks, in the order of the columns.
    frameworks: [&'static str; 5],
}

/// Tables of the frameworks whose settings the glossary has: one of all would be too wide.
const SETTINGS_TABLES: [SettingsTable; 2] = [
    SettingsTable {
        title: "Settings of the frameworks",
        frameworks: ["megatron", "deepspeed", "torchtitan", "nanotron", "accelerate"],
    },
    SettingsTable {
        title: "Settings of the other frameworks",
        frameworks: ["axolotl", "llama-factory", "gpt-neox", "llm-foundry", "olmo-core"],
    },
];

/// One term of a prediction.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Term {
    name: String,
    is: String,
    section: String,
}

/// Prints all entries, or those of one name; of a value, the keys that have it.
pub fn run(args: &Args) -> Result<Outcome> {
    let mut glossary: Glossary = toml::from_str(TEXT).context("docs/glossary.toml")?;
    if let Some(term) = &args.term {
        let names = glossary.names();
        glossary.keep(term);
        if glossary.names().is_empty() {
            let hint = match suggest::nearest(term, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`meshwright glossary` lists all terms".to_owned(),
            };
            bail!("the glossary has no `{term}`\n\nhint: {hint}");
        }
    }
    let text = match args.format {
        OutputFormat::Json => json::text(&serde_json::json!({ "schema": json::SCHEMA, "glossary": glossary }))?,
        format => output::sheets(&glossary.sheets(), format)?,
    };
    output::print(&text)?;
    Ok(Outcome::Answered)
}

/// A name as it is compared: letter case, blanks, `-` and `_` aside.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', ' '], "-")
}

impl Glossary {
    fn names(&self) -> Vec<String> {
        let keys = self.plan.iter().flat_map(|key| key.also.iter().chain([&key.name]));
        let terms = [&self.time, &self.memory, &self.word].into_iter().flatten().map(|term| &term.name);
        keys.chain(terms).cloned().collect()
    }

    /// Leaves the entries of one name, or where there is none, the keys with a value of that name.
    fn keep(&mut self, wanted: &str) {
        let wanted = plain(wanted);
        let matches = |name: &String| plain(name) == wanted;
        let is_name = self.names().iter().any(matches);
        self.plan.retain(|key| {
            if is_name { matches(&key.name) || key.also.iter().any(matches) } else { key.has_value(&wanted) }
        });
        for terms in [&mut self.time, &mut self.memory, &mut self.word] {
            terms.retain(|term| matches(&term.name));
        }
    }

    /// Keys, their settings, terms of time and of memory, other words; those without an entry are left out.
    fn sheets(&self) -> Vec<Sheet> {
        let terms = [
            ("Terms of a step's time", &self.time),
            ("Tenants of a rank's memory", &self.memory),
            ("Other words", &self.word),
        ];
        let terms = terms.into_iter().map(|(title, terms)| terms_sheet(title, terms));
        let settings = SETTINGS_TABLES.iter().map(|table| settings_sheet(table, &self.plan));
        let sheets = std::iter::once(keys_sheet(&self.plan)).chain(settings).chain(terms);
        sheets.filter(|sheet| !sheet.rows.is_empty()).collect()
    }
}

fn section(number: &str) -> String {
    format!("§{number}")
}

fn keys_sheet(keys: &[Key]) -> Sheet {
    let mut sheet = Sheet::new("Keys of a plan", &["key", "name", "what it is", "values", "default", "section"]);
    for Key { name, title, is, values, default, section: number, .. } in keys {
        sheet.push([name.clone(), title.clone(), is.clone(), values.clone(), default.clone(), section(number)]);
    }
    sheet
}

/// Settings of each key in the frameworks of a table.
fn settings_sheet(table: &SettingsTable, keys: &[Key]) -> Sheet {
    let title_of = |name: &&'static str| named(name).map_or(*name, |framework| framework.limits.title);
    let columns: Vec<&str> = std::iter::once("key").chain(table.frameworks.iter().map(title_of)).collect();
    let mut sheet = Sheet::new(table.title, &columns);
    for Key { name, settings, .. } in keys {
        let setting = |framework: &&str| settings.get(&framework.replace('-', "_")).cloned().unwrap_or_default();
        sheet.rows.push(std::iter::once(name.clone()).chain(table.frameworks.iter().map(setting)).collect());
    }
    sheet
}

fn terms_sheet(title: &str, terms: &[Term]) -> Sheet {
    let mut sheet = Sheet::new(title, &["term", "what it is", "section"]);
    for Term { name, is, section: number } in terms {
        sheet.push([name.clone(), is.clone(), section(number)]);
    }
    sheet
}
