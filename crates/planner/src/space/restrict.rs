//! Restrictions that the user sets with `--fix` and `--forbid`: `tp=8`, `ep=1..64`, `schedule=dualpipe`.

use super::unproven::{LARGEST_EXPERT_GROUP_IN_RACK, Unproven};
use crate::limits::Limits;
use crate::limits::rule::{EXPERT_RANKS, Rule, Value, Values, WORDS};
use meshwright_engine::plan::Recompute;
use meshwright_engine::plan::text::parse_recompute;
use meshwright_engine::problem::Problem;
use meshwright_engine::schedule::Schedule;
use meshwright_engine::split::LayerSplit;
use meshwright_engine::stack::Family;

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
        let rule = Rule::parse(item)?;
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
        self.forbidden.push(Rule::parse(item)?);
        Ok(())
    }

    /// Restricts plans to those that a framework runs; `Internal` allows all.
    pub const fn for_family(&mut self, family: Family) {
        self.family = Some(family);
    }

    /// Keeps only plans of a problem that a framework's files can express.
    ///
    /// Rules on several keys at once are left to [`Limits::plan_obstacles`].
    pub fn for_limits(&mut self, limits: &'static Limits, problem: &Problem) {
        self.for_limits_on_all(limits, std::slice::from_ref(problem));
    }

    /// Keeps only plans that a framework's files can express of each of several problems, such as the pools of one question.
    pub fn for_limits_on_all(&mut self, limits: &'static Limits, problems: &[Problem]) {
        self.family = Some(limits.family);
        self.limits = Some(limits);
        let asked = self.clone();
        for problem in problems {
            let mut on_one = asked.clone();
            on_one.keep_values(limits, problem, |_| true);
            self.add(on_one);
        }
    }

    /// Adds the values of other restrictions.
    fn add(&mut self, other: Self) {
        let new = |known: &[Rule], rules: Vec<Rule>| -> Vec<Rule> {
            rules.into_iter().filter(|rule| !known.contains(rule)).collect()
        };
        let (fixed, forbidden) = (new(&self.fixed, other.fixed), new(&self.forbidden, other.forbidden));
        self.fixed.extend(fixed);
        self.forbidden.extend(forbidden);
    }

    /// Keeps only plans whose settings a framework's files have; degrees of parallelism are free, but for that of one expert.
    pub fn for_settings(&mut self, limits: &Limits, problem: &Problem) {
        self.keep_values(limits, problem, |key| WORDS.contains(&key) || key == "etp");
    }

    /// Keeps only plans that the release of a problem's stack runs, by the stack's
    /// [`ReleaseLimit`](meshwright_engine::stack::ReleaseLimit)s.
    pub fn for_release(&mut self, problem: &Problem) {
        let limits = &problem.stack().limits;
        self.fixed.extend(limits.iter().filter_map(|limit| Rule::parse(&limit.values).ok()));
    }

    /// Fixes each key that is not fixed already and that `is_kept` names to the values that a framework's files have of it.
    fn keep_values(&mut self, limits: &Limits, problem: &Problem, is_kept: fn(&str) -> bool) {
        for item in (limits.values)(problem) {
            let is_lacking = item.contains("!=");
            let Ok(rule) = Rule::parse(&item.replace("!=", "=")) else { continue };
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
        self.leave_out(problem, |_| true);
    }

    /// Leaves out those of these mechanisms that free no memory, so that they are not why a plan fits.
    pub(crate) fn proven_but_for_memory(&mut self, problem: &Problem) {
        self.leave_out(problem, |mechanism| !mechanism.frees_memory());
    }

    fn leave_out(&mut self, problem: &Problem, is_unwanted: fn(&Unproven) -> bool) {
        let is_asked = |mechanism: &Unproven| match mechanism.key {
            EXPERT_RANKS => self.fixes(EXPERT_RANKS) || self.fixed_expert_ranks() > LARGEST_EXPERT_GROUP_IN_RACK,
            key => self.fixes(key),
        };
        let unwanted = Unproven::on(problem).filter(|mechanism| is_unwanted(mechanism) && !is_asked(mechanism));
        let rules = unwanted.filter_map(|mechanism| mechanism.forbidden_on(problem)).map(|item| Rule::parse(&item));
        let rules: Vec<Rule> = rules.filter_map(Result::ok).collect();
        self.forbidden.extend(rules);
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

    /// Whether experts may be spread over `ep` ranks and each of them split over `etp`.
    pub(super) fn allows_experts(&self, ep: u32, etp: u32) -> bool {
        self.allows_number("ep", ep)
            && self.allows_number("etp", etp)
            && self.allows_number(EXPERT_RANKS, ep.saturating_mul(etp))
    }

    /// Ranks of the largest expert group that the fixed degrees name; a degree that is not fixed counts as one.
    fn fixed_expert_ranks(&self) -> u32 {
        let largest = |key: &str| {
            let of_key = self.fixed.iter().filter(|rule| rule.key == key);
            of_key.map(Rule::largest_number).max().unwrap_or(1)
        };
        largest("ep").saturating_mul(largest("etp"))
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
            let mut none = Restrictions::default();
            let (fixed, forbidden) = (none.fix(slip).unwrap_err(), none.forbid(slip).unwrap_err());
            let key = slip.split('=').next().unwrap_or(slip);
            assert!(fixed.contains(key) && fixed == forbidden, "{slip}: {fixed}; {forbidden}");
        }
        assert_eq!(restrictions.fix("ep=2"), Err("`ep` is fixed twice".into()));
    }

    #[test]
    fn ranks_of_an_expert_group_are_a_product() {
        let mut restrictions = Restrictions::default();
        restrictions.forbid("expert-ranks=65..256").unwrap();
        assert!(restrictions.allows_experts(64, 1) && restrictions.allows_experts(32, 2));
        assert!(!restrictions.allows_experts(64, 2) && !restrictions.allows_experts(128, 1));
        assert!(restrictions.allows_experts(256, 2));
        assert_eq!(restrictions.fixed_expert_ranks(), 1);
        restrictions.fix("ep=16..64").unwrap();
        restrictions.fix("etp=1,2").unwrap();
        assert_eq!(restrictions.fixed_expert_ranks(), 128);
    }
}
