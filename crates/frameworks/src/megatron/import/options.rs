//! Megatron's options: names, values, choices, and the releases that have them.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`; the options of releases 0.12.1 to 0.20.0 (main of 2026-08-22).

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Number of values that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(usize),
    /// All up to the next flag.
    Rest,
    /// None, and `--no-…` is its opposite.
    Switch,
}

/// An option of the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Values.
    pub arity: Arity,
    /// Words that it takes; empty for any.
    pub choices: Vec<&'static str>,
}

/// Columns of the table that say which releases have a flag.
const RELEASES: usize = 2;

pub(super) static OPTIONS: LazyLock<BTreeMap<&'static str, Flag>> = LazyLock::new(|| {
    let dash = |text: &'static str| if text == "-" { "" } else { text };
    let table = include_str!("options.tsv").lines().chain(include_str!("deepspeed.tsv").lines());
    let rows = table.filter(|row| !row.starts_with('#')).filter_map(|row| {
        let mut cells = row.split('\t');
        let (name, arity) = (cells.next()?, cells.next()?);
        let arity = match arity {
            "b" => Arity::Switch,
            "+" | "*" => Arity::Rest,
            n => Arity::Exactly(n.parse().ok()?),
        };
        let choices = dash(cells.nth(RELEASES)?).split('|').filter(|word| !word.is_empty()).collect();
        Some((name, Flag { arity, choices }))
    });
    rows.collect()
});

/// All options by name.
pub fn options() -> &'static BTreeMap<&'static str, Flag> {
    &OPTIONS
}
