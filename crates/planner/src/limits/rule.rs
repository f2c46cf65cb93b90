//! Values of one key of a plan, as `--fix` and `--forbid` write them: `tp=8`, `ep=1..64`, `schedule=dualpipe,zb-v`.

use std::ops::RangeInclusive;

use meshwright_engine::plan::text::{self, parse_recompute};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::suggest;

/// Values of one key: those of one `--fix` or `--forbid`, or those that a framework has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// The key, such as `tp`.
    pub(crate) key: String,
    /// The values.
    pub(crate) values: Values,
}

/// Allowed or forbidden values of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Numbers in a range.
    Range(RangeInclusive<u32>),
    /// Words or listed numbers, one of which must match.
    Words(Vec<String>),
}

impl Rule {
    /// Reads `key=value`, `key=a..b` or `key=a,b`.
    ///
    /// # Errors
    ///
    /// Names the unknown key, or the value that the key cannot have.
    pub(crate) fn parse(item: &str) -> Result<Self, String> {
        let (key, text) = item.split_once('=').ok_or_else(|| format!("`{item}` is not key=value, such as tp=8"))?;
        let (key, text) = (key.trim(), text.trim());
        let values = if NUMBERS.contains(&key) {
            numbers(key, text)?
        } else if WORDS.contains(&key) {
            words(key, text)?
        } else {
            let keys = NUMBERS.into_iter().chain(WORDS);
            return Err(format!("there is no `{key}` to fix or forbid{}", suggest::keys_hint(key, keys)));
        };
        Ok(Self { key: key.to_owned(), values })
    }

    /// Largest number among the values; zero of words.
    pub(crate) fn largest_number(&self) -> u32 {
        match &self.values {
            Values::Range(range) => *range.end(),
            Values::Words(words) => words.iter().filter_map(|word| word.parse().ok()).max().unwrap_or(0),
        }
    }

    /// Whether a value is one of the rule's.
    pub(crate) fn matches(&self, value: Value) -> bool {
        match (&self.values, value) {
            (Values::Range(range), Value::Number(n)) => range.contains(&n),
            (Values::Words(words), Value::Number(n)) => words.iter().any(|word| *word == n.to_string()),
            (Values::Words(words), Value::Word(text)) => words.iter().any(|word| word == text),
            (Values::Range(range), Value::Word(text)) => {
                range.start() == range.end() && text == range.start().to_string()
            }
        }
    }
}

/// Numbers as `8`, `8..64` or `8,16` write them.
fn numbers(key: &str, text: &str) -> Result<Values, String> {
    let bad = || format!("{key}={text}: write a whole number above 0, or a range such as 1..64");
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(bad);
    if let Some((from, to)) = text.split_once("..") {
        let range = number(from)?..=number(to.trim_start_matches('='))?;
        return if range.is_empty() {
            Err(format!("{key}={text}: the range is empty"))
        } else {
            Ok(Values::Range(range))
        };
    }
    if text.contains(',') {
        let listed: Result<_, String> = text.split(',').map(|n| number(n).map(|n| n.to_string())).collect();
        return Ok(Values::Words(listed?));
    }
    let n = number(text)?;
    Ok(Values::Range(n..=n))
}

/// Words that commas separate, as a plan's text writes them.
fn words(key: &str, text: &str) -> Result<Values, String> {
    let word = |word: &str| {
        known_word(key, word)?;
        if let Some((_, dispatcher)) = text::DISPATCHERS.iter().find(|(name, _)| key == "dispatcher" && *name == word) {
            return Ok(dispatcher.to_string());
        }
        if key != "split" {
            return Ok(word.to_owned());
        }
        let split: LayerSplit = word.parse().map_err(|why| format!("{key}={word}: {why}"))?;
        Ok(split.to_string())
    };
    text.split(',').map(|text| word(text.trim())).collect::<Result<_, String>>().map(Values::Words)
}

/// Value of a key in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'v> {
    Number(u32),
    Word(&'v str),
}

/// Keys whose values are numbers.
pub(crate) const NUMBERS: [&str; 10] = ["tp", "cp", "pp", "dp", "ep", "etp", EXPERT_RANKS, "mbs", "vpp", "shard"];
/// Key of the ranks that hold one layer's experts between them: ep × etp.
pub(crate) const EXPERT_RANKS: &str = "expert-ranks";
/// Keys whose values are words.
pub(crate) const WORDS: [&str; 11] = [
    "sp",
    "cp-kind",
    "schedule",
    "split",
    "zero",
    "reshard",
    "recompute",
    "offload-optimizer",
    "offload-activations",
    "dispatcher",
    "order",
];

/// Checks that a key can have a word.
fn known_word(key: &str, word: &str) -> Result<(), String> {
    let known: Vec<&str> = match key {
        "sp" | "reshard" => vec!["on", "off"],
        "split" => return Ok(()), // `parse` reads it
        "offload-optimizer" | "offload-activations" => {
            return match word.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(()),
                Ok(_) | Err(_) => Err(format!("{key}={word}: write a share between 0 and 1")),
            };
        }
        "cp-kind" => text::CP_KINDS.iter().map(|(name, _)| *name).collect(),
        "schedule" => Schedule::names(),
        "zero" => text::ZERO.iter().map(|(name, _)| *name).collect(),
        "dispatcher" => text::DISPATCHERS.iter().map(|(name, _)| *name).collect(),
        "order" => text::ORDERS.iter().map(|(name, _)| *name).collect(),
        _ => return parse_recompute(word).map(|_| ()),
    };
    if known.contains(&word) {
        Ok(())
    } else {
        Err(format!("{key}={word}: `{word}` is not one of: {}", known.join(", ")))
    }
}
