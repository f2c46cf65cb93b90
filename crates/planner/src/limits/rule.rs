//! Values of one key of a plan, as `--fix` and `--forbid` write them: `tp=8`, `ep=1..64`, `schedule=dualpipe,zb-v`.

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
    /// Numbers from the first to the second, inclusive.
    Range(u32, u32),
    /// Words, one of which must match.
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
        let bad = || format!("{key}={text}: write a whole number above 0, or a range such as 1..64");
        if NUMBERS.contains(&key) {
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(bad);
            let values = if let Some((from, to)) = text.split_once("..") {
                let (from, to) = (number(from)?, number(to.trim_start_matches('='))?);
                if from > to {
                    return Err(format!("{key}={text}: the range is empty"));
                }
                Values::Range(from, to)
            } else if text.contains(',') {
                Values::Words(text.split(',').map(|n| number(n).map(|n| n.to_string())).collect::<Result<_, _>>()?)
            } else {
                let n = number(text)?;
                Values::Range(n, n)
            };
            return Ok(Self { key: key.to_owned(), values });
        }
        if WORDS.contains(&key) {
            let mut words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
            for word in &mut words {
                known_word(key, word)?;
                if key == "split" {
                    // Normalised to the text of a plan.
                    *word = word.parse::<LayerSplit>().map_err(|why| format!("{key}={word}: {why}"))?.to_string();
                }
            }
            return Ok(Self { key: key.to_owned(), values: Values::Words(words) });
        }
        let keys = NUMBERS.into_iter().chain(WORDS);
        Err(format!("there is no `{key}` to fix or forbid{}", suggest::keys_hint(key, keys)))
    }

    /// Whether a value is one of the rule's.
    pub(crate) fn matches(&self, value: Value) -> bool {
        match (&self.values, value) {
            (Values::Range(from, to), Value::Number(n)) => (*from..=*to).contains(&n),
            (Values::Words(words), Value::Number(n)) => words.iter().any(|word| *word == n.to_string()),
            (Values::Words(words), Value::Word(text)) => words.iter().any(|word| word == text),
            (Values::Range(from, to), Value::Word(text)) => from == to && text == from.to_string(),
        }
    }
}

/// Value of a key in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'v> {
    Number(u32),
    Word(&'v str),
}

/// Keys whose values are numbers.
pub(crate) const NUMBERS: [&str; 9] = ["tp", "cp", "pp", "dp", "ep", "etp", "mbs", "vpp", "shard"];
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
