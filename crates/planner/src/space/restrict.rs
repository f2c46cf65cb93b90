//! Restrictions that the user sets with `--fix` and `--forbid`: `tp=8`, `ep=1..64`, `schedule=dualpipe`.

use super::unproven::Unproven;
use crate::limits::Limits;
use meshwright_engine::plan::Recompute;
use meshwright_engine::plan::text::{self, parse_recompute};
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;
use meshwright_engine::suggest;

/// Values of one key, from one `--fix` or `--forbid`.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    key: String,
    values: Values,
}

/// Allowed or forbidden values of a key.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    /// Numbers from the first to the second, inclusive.
    Range(u32, u32),
    /// Words, one of which must match.
    Words(Vec<String>),
}

impl Rule {
    fn matches(&self, value: Value) -> bool {
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
enum Value<'v> {
    Number(u32),
    Word(&'v str),
}

/// Keys whose values are numbers.
const NUMBERS: [&str; 9] = ["tp", "cp", "pp", "dp", "ep", "etp", "mbs", "vpp", "shard"];
/// Keys whose values are words.
const WORDS: [&str; 11] = [
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

/// Values that plans must have, values that they must not have, and the framework that must run them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restrictions {
    fixed: Vec<Rule>,
    forbidden: Vec<Rule>,
    family: Option<Family>,
    limits: Option<&'static Limits>,
    idle: bool,
}

impl Restrictions {
    /// Adds `key=value`, `key=a..b` or `key=a,b` to the values that plans must have.
    ///
    /// # Errors
    ///
    /// Names the unknown key, or the value that the key cannot have.
    pub fn fix(&mut self, item: &str) -> Result<(), String> {
        let rule = parse(item)?;
        if self.fixed.iter().any(|known| known.key == rule.key) {
            return Err(format!("`{}` is fixed twice", rule.key));
        }
        self.fixed.push(rule);
        Ok(())
    }

    /// Adds `key=value`, `key=a..b` or `key=a,b` to the values that plans must not have.
    ///
    /// # Errors
    ///
    /// Names the unknown key, or the value that the key cannot have.
    pub fn forbid(&mut self, item: &str) -> Result<(), String> {
        self.forbidden.push(parse(item)?);
        Ok(())
    }

    /// Restricts plans to what a framework runs; `Internal` allows everything.
    pub const fn for_family(&mut self, family: Family) {
        self.family = Some(family);
    }

    /// Keeps only plans of a problem that a framework's files can express.
    ///
    /// Rules on several keys at once are left to [`Limits::plan_obstacles`].
    pub fn for_limits(&mut self, limits: &'static Limits, problem: &Problem) {
        self.family = Some(limits.family);
        self.limits = Some(limits);
        self.keep_values(limits, problem, |_| true);
    }

    /// Keeps only plans whose settings a framework's files have; degrees of parallelism are free, but for that of one expert.
    pub fn for_settings(&mut self, limits: &Limits, problem: &Problem) {
        self.keep_values(limits, problem, |key| WORDS.contains(&key) || key == "etp");
    }

    /// Fixes each key that is not fixed already and that `is_kept` names to the values that a framework's files have of it.
    fn keep_values(&mut self, limits: &Limits, problem: &Problem, is_kept: fn(&str) -> bool) {
        for item in (limits.values)(problem) {
            let is_lacking = item.contains("!=");
            let Ok(rule) = parse(&item.replace("!=", "=")) else { continue };
            if self.fixes(&rule.key) || !is_kept(&rule.key) {
                continue;
            }
            if is_lacking {
                self.forbidden.push(rule);
            } else {
                self.fixed.push(rule);
            }
        }
    }

    /// Leaves out the mechanisms that no published run has shown on this problem, but for keys that are fixed.
    pub fn proven_only(&mut self, problem: &Problem) {
        for mechanism in Unproven::on(problem).filter(|mechanism| !self.fixes(mechanism.key)).collect::<Vec<_>>() {
            let rule = mechanism.forbidden_on(problem).and_then(|item| parse(&item).ok());
            self.forbidden.extend(rule);
        }
    }

    /// Framework whose files must express every plan, if one was requested.
    pub const fn limits(&self) -> Option<&'static Limits> {
        self.limits
    }

    /// Allows plans that leave GPUs idle.
    pub const fn allow_idle(&mut self) {
        self.idle = true;
    }

    /// Whether plans may leave GPUs idle.
    pub const fn allows_idle(&self) -> bool {
        self.idle
    }

    /// Framework that must run every plan; `of_stack` unless another was requested.
    pub fn family(&self, of_stack: Family) -> Family {
        self.family.unwrap_or(of_stack)
    }

    /// Whether a key was fixed.
    pub(crate) fn fixes(&self, key: &str) -> bool {
        self.fixed.iter().any(|rule| rule.key == key)
    }

    /// Restrictions on these keys alone, with the framework.
    #[must_use]
    pub fn only(&self, keys: &[&str]) -> Self {
        let of_keys = |rules: &[Rule]| -> Vec<Rule> {
            rules.iter().filter(|rule| keys.contains(&rule.key.as_str())).cloned().collect()
        };
        Self { fixed: of_keys(&self.fixed), forbidden: of_keys(&self.forbidden), idle: false, ..self.clone() }
    }

    /// Whether a key was fixed or forbidden.
    pub fn mentions(&self, key: &str) -> bool {
        self.fixed.iter().chain(&self.forbidden).any(|rule| rule.key == key)
    }

    fn allows_value(&self, key: &str, value: Value) -> bool {
        let of_key = |rule: &&Rule| rule.key == key;
        self.fixed.iter().filter(of_key).all(|rule| rule.matches(value))
            && !self.forbidden.iter().filter(of_key).any(|rule| rule.matches(value))
    }

    pub(super) fn allows_number(&self, key: &str, value: u32) -> bool {
        (self.fixed.is_empty() && self.forbidden.is_empty()) || self.allows_value(key, Value::Number(value))
    }

    pub(super) fn allows_word(&self, key: &str, value: &str) -> bool {
        (self.fixed.is_empty() && self.forbidden.is_empty()) || self.allows_value(key, Value::Word(value))
    }

    pub(super) fn names_schedule(&self, schedule: Schedule) -> bool {
        let word = Value::Word(schedule.name());
        self.fixed.iter().any(|rule| rule.key == "schedule" && rule.matches(word))
    }

    /// Recomputations that are fixed by name.
    pub(super) fn fixed_recompute(&self) -> impl Iterator<Item = Recompute> + '_ {
        self.fixed
            .iter()
            .filter(|rule| rule.key == "recompute")
            .flat_map(|rule| match &rule.values {
                Values::Words(words) => words.clone(),
                Values::Range(..) => Vec::new(),
            })
            .filter_map(|word| parse_recompute(&word).ok())
    }

    /// Splits that are fixed by name.
    pub(super) fn fixed_splits(&self) -> impl Iterator<Item = LayerSplit> + '_ {
        let words = self.fixed.iter().filter(|rule| rule.key == "split").flat_map(|rule| match &rule.values {
            Values::Words(words) => words.as_slice(),
            Values::Range(..) => &[],
        });
        words.filter_map(|word| word.parse().ok())
    }

    /// Offloaded shares that are fixed by value.
    pub(super) fn fixed_shares(&self, key: &str) -> Vec<f64> {
        let words = |rule: &Rule| match &rule.values {
            Values::Words(words) => words.iter().filter_map(|word| word.parse().ok()).collect(),
            Values::Range(..) => Vec::new(),
        };
        self.fixed.iter().filter(|rule| rule.key == key).flat_map(words).collect()
    }
}

fn parse(item: &str) -> Result<Rule, String> {
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
        return Ok(Rule { key: key.to_owned(), values });
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
        return Ok(Rule { key: key.to_owned(), values: Values::Words(words) });
    }
    let keys = NUMBERS.into_iter().chain(WORDS);
    Err(format!("there is no `{key}` to fix or forbid{}", suggest::keys_hint(key, keys)))
}

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
        "schedule" => Schedule::NAMES.to_vec(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_words_and_slips() {
        let mut restrictions = Restrictions::default();
        restrictions.fix("ep=1..64").unwrap();
        restrictions.forbid("schedule=dualpipe,zb-v").unwrap();
        assert!(restrictions.allows_number("ep", 64) && !restrictions.allows_number("ep", 65));
        assert!(restrictions.allows_word("schedule", "1f1b") && !restrictions.allows_word("schedule", "zb-v"));
        for slip in ["tp", "tp=0", "tp=x", "tpp=8", "ep=8..4", "schedule=dualpip", "zero=4", "recompute=some"] {
            assert!(Restrictions::default().fix(slip).is_err(), "{slip}");
        }
        assert!(restrictions.fix("ep=2").is_err(), "fixed twice");
    }
}
