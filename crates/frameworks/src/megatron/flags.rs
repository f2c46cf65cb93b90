//! Megatron's flags: values, types, choices, and the releases of Megatron core whose parser takes them.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py` of every release, as `checks/megatron_flags.py` writes it into
//! `data/megatron.tsv`; `data/megatron_deepspeed.tsv` has what the fork for DeepSpeed and releases before 0.12 add.

use std::collections::BTreeMap;
use std::fmt;
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

/// Type of a flag's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// One of several words, or a value that a function of the parser reads.
    Text,
}

impl ValueType {
    /// Whether Python's `int` or `float` reads a word.
    pub fn reads(self, word: &str) -> bool {
        let word = word.trim().replace('_', "");
        match self {
            Self::Int => word.parse::<i128>().is_ok(),
            Self::Float => word.parse::<f64>().is_ok(),
            Self::Text => true,
        }
    }

    /// Values of this type, in prose.
    pub const fn prose(self) -> &'static str {
        match self {
            Self::Int => "a whole number",
            Self::Float => "a number",
            Self::Text => "a word",
        }
    }
}

/// Releases of Megatron core, a bit each, the oldest lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases(u32);

impl Releases {
    /// Every release of the table.
    pub fn all() -> Self {
        Self((1 << names().len()) - 1)
    }

    /// The empty set, of flags that no release has.
    pub const fn none() -> Self {
        Self(0)
    }

    /// The release of a name; empty for a name that is none of [`names`].
    pub fn named(name: &str) -> Self {
        Self(names().iter().position(|known| *known == name).map_or(0, |at| 1 << at))
    }

    /// The release of a name and all later ones.
    pub(crate) fn since(name: &str) -> Self {
        let first = names().iter().position(|known| *known == name).unwrap_or(names().len());
        Self((first..names().len()).fold(0, |bits, at| bits | 1 << at))
    }

    /// Releases in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Releases in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has no release.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn has(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }
}

/// `0.14 to 0.16`, `0.19 and later`, `up to 0.13`; runs apart are joined by `and`.
impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names = names();
        let mut runs = Vec::new();
        let mut at = 0;
        while at < names.len() {
            let end = (at..names.len()).take_while(|at| self.has(*at)).last();
            if let Some(end) = end {
                runs.push(match (at, end + 1 == names.len()) {
                    (_, true) => format!("{} and later", names[at]),
                    (0, false) => format!("up to {}", names[end]),
                    _ if at == end => names[at].to_owned(),
                    _ => format!("{} to {}", names[at], names[end]),
                });
                at = end;
            }
            at += 1;
        }
        if runs.is_empty() { f.write_str("none") } else { f.write_str(&runs.join(" and ")) }
    }
}

/// A flag as some releases have it.
#[derive(Clone, Debug)]
pub struct FlagForm {
    /// Values.
    pub arity: Arity,
    /// Type of each value.
    pub value: ValueType,
    /// Words that it takes; empty for any.
    pub choices: Vec<&'static str>,
    /// Releases that have it so.
    pub releases: Releases,
}

/// A flag of the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Values in the newest release that has it.
    pub arity: Arity,
    /// Words that any release takes; empty for any.
    pub choices: Vec<&'static str>,
    /// Its forms, the oldest first.
    pub forms: Vec<FlagForm>,
}

impl Flag {
    /// Releases that take it with these words.
    pub(crate) fn releases_of(&self, words: &[&str]) -> Releases {
        let takes = |form: &&FlagForm| {
            form.choices.is_empty()
                || words.iter().all(|word| form.choices.iter().any(|choice| choice.eq_ignore_ascii_case(word)))
        };
        self.forms.iter().filter(takes).fold(Releases(0), |all, form| all.or(form.releases))
    }
}

const TABLE: &str = include_str!("../../data/megatron.tsv");
const OLDER: &str = include_str!("../../data/megatron_deepspeed.tsv");

static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let line = TABLE.lines().find_map(|line| line.strip_prefix("# releases: "));
    line.unwrap_or_default().split(' ').collect()
});

/// Names of the releases, oldest first; the last is the development branch at the commit that the table names.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

static FLAGS: LazyLock<BTreeMap<&'static str, Flag>> = LazyLock::new(|| {
    let mut flags: BTreeMap<&str, Flag> = BTreeMap::new();
    for row in TABLE.lines().chain(OLDER.lines()).filter(|row| !row.starts_with('#')) {
        let cells: Vec<&'static str> = row.split('\t').collect();
        let Some((name, form)) = form(&cells) else { continue };
        match flags.get_mut(name) {
            Some(flag) => {
                flag.arity = form.arity;
                let fresh: Vec<&str> =
                    form.choices.iter().copied().filter(|word| !flag.choices.contains(word)).collect();
                flag.choices.extend(fresh);
                if form.choices.is_empty() || flag.forms.iter().any(|earlier| earlier.choices.is_empty()) {
                    flag.choices.clear();
                }
                flag.forms.push(form);
            }
            None => {
                flags.insert(name, Flag { arity: form.arity, choices: form.choices.clone(), forms: vec![form] });
            }
        }
    }
    flags
});

/// A row of the table: flag, values, type, choices, default, first and last release.
fn form(cells: &[&'static str]) -> Option<(&'static str, FlagForm)> {
    let &[name, arity, value, choices, _, first, last] = cells else { return None };
    let arity = match arity {
        "b" => Arity::Switch,
        "+" | "*" | "?" => Arity::Rest,
        n => Arity::Exactly(n.parse().ok()?),
    };
    let value = match value {
        "int" => ValueType::Int,
        "float" => ValueType::Float,
        _ => ValueType::Text,
    };
    let place = |name: &str| names().iter().position(|known| *known == name);
    let (first, last) = (place(first).unwrap_or(0), place(last).unwrap_or(names().len() - 1));
    let releases = Releases((first..=last).fold(0, |bits, at| bits | 1 << at));
    let choices = choices.split('|').filter(|word| !matches!(*word, "" | "-")).collect();
    Some((name, FlagForm { arity, value, choices, releases }))
}

/// All flags by name.
pub fn flags() -> &'static BTreeMap<&'static str, Flag> {
    &FLAGS
}

/// Two flags, without their dashes, that older releases refuse together; a flag may have one word.
pub(crate) struct FlagPair {
    pub one: &'static str,
    pub other: &'static str,
    /// First release that takes both.
    pub first: &'static str,
}

/// Flags that older releases refuse together.
///
/// Source: [megatron-lm] `megatron/training/arguments.py` of 0.12 to 0.16 ("GroupedGEMM for MoE only supports bf16"), of 0.16 and 0.17
/// ("Muon optimizer does not support distributed optimizer for now", and so for both overlaps).
pub(crate) const APART: &[FlagPair] = &[
    FlagPair { one: "moe-grouped-gemm", other: "fp16", first: "0.16" },
    FlagPair { one: MUON, other: "use-distributed-optimizer", first: "0.18" },
    FlagPair { one: MUON, other: "overlap-grad-reduce", first: "0.18" },
    FlagPair { one: MUON, other: "overlap-param-gather", first: "0.18" },
];

/// Flag and word of the Muon optimizer.
const MUON: &str = "optimizer muon";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tables_is_read() {
        let rows = TABLE.lines().chain(OLDER.lines()).filter(|row| !row.starts_with('#')).count();
        assert_eq!(flags().values().map(|flag| flag.forms.len()).sum::<usize>(), rows);
        assert!(flags().len() > 900 && names().len() >= 9);
        assert_eq!(flags()["--rampup-batch-size"].arity, Arity::Exactly(3));
        assert_eq!(flags()["--cp-comm-type"].arity, Arity::Rest);
        assert_eq!(flags()["--external-cuda-graph"].arity, Arity::Exactly(0));
    }

    #[test]
    fn forms_are_of_their_releases() {
        let text = |flag: &str, words: &[&str]| flags()[flag].releases_of(words).to_string();
        assert_eq!(text("--num-layers", &["8"]), "0.12 and later");
        assert_eq!(text("--pipeline-model-parallel-layout", &["Et|tL"]), "0.13 and later");
        assert_eq!(text("--use-custom-fsdp", &[]), "up to 0.13");
        assert_eq!(text("--fp8-recipe", &["blockwise"]), "0.13 and later");
        assert_eq!(text("--fp8-recipe", &["ring"]), "none");
        assert_eq!(text("--moe-token-dispatcher-type", &["alltoall_seq"]), "up to 0.12");
        let bare = |flag: &str| flags()[flag].releases_of(&[]);
        let apart = bare("--use-custom-fsdp").and(bare("--use-megatron-fsdp"));
        assert!(apart.is_empty());
        assert_eq!(Releases::named("0.14").to_string(), "0.14");
        assert!(Releases::named("0.99").is_empty());
    }

    #[test]
    fn words_have_types() {
        assert!(ValueType::Int.reads("1_000") && !ValueType::Int.reads("1e3") && ValueType::Float.reads("3e-4"));
        assert!(!ValueType::Float.reads("small") && ValueType::Text.reads("small"));
    }
}
