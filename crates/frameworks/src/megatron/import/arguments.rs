//! Megatron's argument list, read as its parser reads it: exact or abbreviated flags, the last of two, values by arity.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py`.

use crate::import::finding::{Finding, Place, Severity};
use crate::import::imported::Unknown;
use crate::megatron::flags::{Arity, flags};
use crate::readers::shell::text::{Text, readable};

/// One flag that was given.
#[derive(Clone, Debug)]
struct Given {
    flag: String,
    values: Vec<Text>,
    place: Place,
    used: bool,
}

/// An argument list.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    given: Vec<Given>,
    /// Whether Megatron's own parser reads them, and its `validate_args` judges them.
    pub by_parser: bool,
    /// Findings on the list.
    pub findings: Vec<Finding>,
    /// Flags that no known release has.
    pub unknown: Vec<Unknown>,
    /// Settings that are no flags, and change nothing here.
    pub without_effect: Vec<String>,
    /// Flags that are said to be off where their absence would mean the same or more.
    denied: Vec<String>,
    /// Errors on flags that lack another flag, as indices of `findings`.
    lacking: Vec<usize>,
}

fn is_flag(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

impl Arguments {
    /// An empty list, which Megatron's own parser reads or does not.
    pub fn empty(by_parser: bool) -> Self {
        Self { by_parser, ..Self::default() }
    }

    /// Reads the words after the program's name.
    pub fn read(words: &[Text], file: &str) -> Self {
        let mut list = Self::empty(true);
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let place = Place { file: file.to_owned(), line: word.line().unwrap_or(1).max(1) };
            let text = word.plain();
            at += 1;
            if !is_flag(&text) {
                if !text.trim().is_empty() {
                    list.stray(word, &place);
                }
                continue;
            }
            let equals = word.0.iter().position(|g| g.char == '=');
            let name: String = text.chars().take(equals.unwrap_or(usize::MAX)).collect();
            let mut values: Vec<Text> = equals.map(|at| Text(word.0[at + 1..].to_vec())).into_iter().collect();
            let follow = words[at..].iter().take_while(|word| !is_flag(&word.plain())).count();
            let Some(flag) = list.resolve(&name, &place) else {
                values.extend_from_slice(&words[at..at + follow]);
                at += follow;
                list.remember_unknown(name, &values, place);
                continue;
            };
            let wanted = match flags().get(flag.as_str()).map(|flag| flag.arity) {
                Some(Arity::Exactly(n)) => n.saturating_sub(values.len()),
                Some(Arity::Rest) => follow,
                Some(Arity::Switch) | None => 0,
            };
            // A value may begin with `-` as numbers do, never with `--`.
            let most = wanted.min(words.len() - at);
            let taken = words[at..at + most].iter().take_while(|word| !is_flag(&word.plain())).count();
            values.extend_from_slice(&words[at..at + taken]);
            at += taken;
            if taken < wanted {
                let finding = Finding::error("missing-value", format!("`{flag}` has no value")).at(&place);
                list.findings.push(finding.expected(format!("{wanted} expected")));
                continue;
            }
            list.add(&flag, values, place);
        }
        list
    }

    /// Adds a flag of a file that is no argument list.
    pub fn add(&mut self, flag: &str, values: Vec<Text>, place: Place) {
        let text = |values: &[Text]| readable(&values.iter().map(Text::plain).collect::<Vec<_>>().join(" "));
        if let Some(choices) = flags().get(flag).map(|flag| &flag.choices).filter(|choices| !choices.is_empty()) {
            let known = |word: &Text| {
                choices.iter().any(|choice| choice.eq_ignore_ascii_case(&word.plain())) || !word.missing().is_empty()
            };
            if let Some(wrong) = values.iter().find(|word| !known(word) && !word.plain().is_empty()) {
                let message = format!("`{flag} {}` is none that any release takes", readable(&wrong.plain()));
                let finding = if self.by_parser {
                    Finding::error("unknown-value", message)
                } else {
                    Finding::warning("unknown-value", message)
                };
                let finding = finding.at(&place);
                self.findings.push(finding.expected(format!("one of: {}", choices.join(", "))));
            }
        }
        if let Some(before) = self.given.iter().find(|given| given.flag == flag) {
            let same = text(&before.values) == text(&values);
            let message = if same {
                format!("`{flag}` stands here and on line {}", before.place.line)
            } else {
                let (first, last) = (text(&before.values), text(&values));
                format!("`{flag} {last}` stands here, and `{flag} {first}` on line {}", before.place.line)
            };
            let finding =
                if same { Finding::note("flag-twice", message) } else { Finding::warning("flag-twice", message) };
            self.findings.push(finding.at(&place).expected("the last one counts; remove the other"));
        }
        self.given.push(Given { flag: flag.to_owned(), values, place, used: false });
    }

    /// Whether anything in it is Megatron's alone: sizes of a model, degrees, batches.
    pub(crate) fn is_megatrons(&self) -> bool {
        let own = |flag: &str| {
            let has = |part: &str| flag.contains(part);
            has("-parallel-size")
                || has("num-layers")
                || has("-batch-size")
                || has("hidden-size")
                || has("attention-heads")
                || has("recompute-")
                || has("use-mcore")
                || has("distributed-optimizer")
        };
        self.given.iter().any(|given| own(&given.flag))
    }

    /// Says that a flag is off.
    pub(crate) fn deny(&mut self, flag: &str) {
        self.denied.push(flag.to_owned());
    }

    /// Whether a flag is said to be off.
    pub(crate) fn denies(&self, flag: &str) -> bool {
        self.denied.iter().any(|denied| denied == flag)
    }

    fn stray(&mut self, word: &Text, place: &Place) {
        let text = readable(&word.plain());
        let finding = if word.missing().is_empty() {
            let before = self.findings.last_mut().filter(|last| last.rule == "stray-word");
            if let Some(last) = before.filter(|last| last.place.as_ref() == Some(place)) {
                let words = last.message.trim_start_matches('`').split('`').next().unwrap_or_default();
                last.message = format!("`{words} {text}` follow no flag that takes them");
                return;
            }
            Finding::warning("stray-word", format!("`{text}` follows no flag that takes it")).at(place)
        } else {
            Finding::warning("unresolved-variable", format!("`{text}` is not resolved, and may hold flags"))
                .at(place)
                .expected("give --var NAME=VALUE")
        };
        self.findings.push(finding);
    }

    /// The option that a written name means: itself, the one that it abbreviates, or a switch's opposite.
    fn resolve(&mut self, name: &str, place: &Place) -> Option<String> {
        let opposite = name.strip_prefix("--no-").map(|rest| format!("--{rest}"));
        let is_switch = |name: &str| flags().get(name).is_some_and(|flag| flag.arity == Arity::Switch);
        if flags().contains_key(name) || opposite.as_deref().is_some_and(is_switch) {
            return Some(name.to_owned());
        }
        let dashed = format!("--{}", name[2..].replace('_', "-"));
        if name.contains('_') && (flags().contains_key(dashed.as_str())) {
            let finding = Finding::note("abbreviation", format!("`{name}` is read as `{dashed}`")).at(place);
            self.findings.push(finding.expected("Megatron-LM has dashes; a fork has underscores"));
            return Some(dashed);
        }
        let mut longer = flags().keys().filter(|option| option.starts_with(name));
        let (first, second) = (longer.next(), longer.next());
        let whole = first.filter(|_| second.is_none())?;
        let finding = Finding::note("abbreviation", format!("`{name}` is read as `{whole}`")).at(place);
        self.findings.push(finding.expected("the whole name: another release may have two that begin so"));
        Some((*whole).to_owned())
    }

    /// Keeps a flag that no release has.
    pub(crate) fn remember_unknown(&mut self, name: String, values: &[Text], place: Place) {
        let nearest = meshwright_engine::suggest::nearest(&name, flags().keys().copied());
        let values = values.iter().map(|value| readable(&value.plain())).collect();
        self.unknown.push(Unknown { name, values, place, nearest });
    }

    fn last(&mut self, flag: &str) -> Option<Given> {
        for given in self.given.iter_mut().filter(|given| given.flag == flag) {
            given.used = true;
        }
        self.given.iter().rfind(|given| given.flag == flag).cloned()
    }

    /// All flags whose words are resolved, with those words.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Vec<String>, &Place)> {
        let resolved = |given: &&Given| given.values.iter().all(|value| value.missing().is_empty());
        let words = |given: &Given| given.values.iter().map(|value| readable(&value.plain())).collect();
        self.given.iter().filter(resolved).map(move |given| (given.flag.as_str(), words(given), &given.place))
    }

    /// File and line of a flag.
    pub fn place(&self, flag: &str) -> Option<Place> {
        self.given.iter().rfind(|given| given.flag == flag).map(|given| given.place.clone())
    }

    /// Whether a flag is given with exactly these words; a switch has `true`.
    pub fn says(&self, flag: &str, words: &str) -> bool {
        let text = |given: &Given| given.values.iter().map(Text::plain).collect::<Vec<_>>().join(" ");
        let same =
            |given: &Given| text(given) == words || given.values.is_empty() && words.eq_ignore_ascii_case("true");
        self.given.iter().any(|given| given.flag == flag && same(given))
    }

    /// Whether a flag is given.
    pub fn has(&mut self, flag: &str) -> bool {
        self.last(flag).is_some()
    }

    /// A switch, or `otherwise` where neither it nor its opposite is given; the last counts.
    pub fn switch(&mut self, flag: &str, otherwise: bool) -> bool {
        let opposite = format!("--no-{}", flag.trim_start_matches("--"));
        let (on, off) = (self.last(flag).is_some(), self.last(&opposite).is_some());
        if on && off {
            let last = self.given.iter().rfind(|given| given.flag == flag || given.flag == opposite);
            return last.is_some_and(|given| given.flag == flag);
        }
        if on || off { on } else { otherwise }
    }

    /// The word of a flag.
    pub fn word(&mut self, flag: &str) -> Option<String> {
        let given = self.last(flag)?;
        let value = given.values.first()?;
        self.resolved(flag, value, &given.place)
    }

    /// The word of a flag, which stays unused.
    pub fn peek(&self, flag: &str) -> Option<String> {
        self.given.iter().rfind(|given| given.flag == flag)?.values.first().map(Text::plain)
    }

    /// The number of a flag, which stays unused; none where its word is no number.
    pub fn peek_number(&self, flag: &str) -> Option<f64> {
        self.peek(flag)?.trim().parse().ok()
    }

    /// The words of a flag.
    pub fn words(&mut self, flag: &str) -> Option<Vec<String>> {
        let given = self.last(flag)?;
        given.values.iter().map(|value| self.resolved(flag, value, &given.place)).collect()
    }

    fn resolved(&mut self, flag: &str, value: &Text, place: &Place) -> Option<String> {
        let missing = value.missing();
        if missing.is_empty() {
            return Some(value.plain());
        }
        let message = format!("`{flag} {}`: {} is not set in the script", readable(&value.plain()), missing.join(", "));
        let finding = Finding::error("unresolved-variable", message).at(place);
        let names: Vec<&str> = missing.iter().map(|name| name.trim_start_matches('$')).collect();
        let finding = finding.expected(format!("give --var {}=VALUE", names.join("=VALUE --var ")));
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
        None
    }

    /// The whole number of a flag.
    pub fn number(&mut self, flag: &str) -> Option<u32> {
        let word = self.word(flag)?;
        let number = word.trim().replace('_', "").parse::<u32>().ok();
        if number.is_none() {
            self.wrong(flag, &word, "a whole number");
        }
        number
    }

    /// The whole number above 0 of a flag.
    pub fn size(&mut self, flag: &str) -> Option<u32> {
        let number = self.number(flag)?;
        if number == 0 {
            self.wrong(flag, "0", "a whole number above 0");
            return None;
        }
        Some(number)
    }

    /// The number of a flag.
    pub fn real(&mut self, flag: &str) -> Option<f64> {
        let word = self.word(flag)?;
        let number = word.trim().parse::<f64>().ok().filter(|x| x.is_finite());
        if number.is_none() {
            self.wrong(flag, &word, "a number");
        }
        number
    }

    /// Records that the value of a flag is malformed, once however often it is read.
    pub fn wrong(&mut self, flag: &str, value: &str, expected: &str) {
        let finding = Finding::wrong_value(flag, value, expected).at_maybe(self.place(flag).as_ref());
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Records a finding at the line of a flag, or without a line where the flag is not given.
    pub fn report(&mut self, flag: &str, finding: Finding) {
        let place = self.place(flag);
        self.findings.push(finding.at_maybe(place.as_ref()));
    }

    /// Records an error on a flag that lacks another one: [`Self::excuse_lacking`] may lower it.
    pub(super) fn report_lacking(&mut self, flag: &str, finding: Finding) {
        self.lacking.push(self.findings.len());
        self.report(flag, finding);
    }

    /// Lowers the errors on flags that lack another one to warnings: what is missing may be set elsewhere.
    pub(super) fn excuse_lacking(&mut self) {
        for at in &self.lacking {
            self.findings[*at].level = Severity::Warning;
        }
    }

    /// Marks a flag as one that has an effect, whatever its value.
    pub(in crate::megatron) fn mark_used(&mut self, flag: &str) {
        let _ = self.last(flag);
    }

    /// Whether the arguments are Megatron-DeepSpeed's.
    pub(super) fn is_deepspeed(&mut self) -> bool {
        self.has("--deepspeed") || self.has("--deepspeed_config")
    }

    /// The flags that nobody asked for.
    pub fn unused(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.given.iter().filter(|given| !given.used).map(|given| given.flag.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Arguments {
        Arguments::read(&Text::of(text, 1).words(), "x.sh")
    }

    #[test]
    fn flags_are_read_as_argparse_reads_them() {
        let mut list =
            read("--bf16 --num-layers=8 --recompute-modules moe layernorm --seq-length 4096 --expert-model 4");
        assert!(list.has("--bf16") && !list.has("--fp16"));
        assert_eq!(list.number("--num-layers"), Some(8));
        assert_eq!(list.words("--recompute-modules").unwrap(), ["moe", "layernorm"]);
        assert_eq!(list.number("--expert-model-parallel-size"), Some(4), "a unique beginning is enough");
        assert_eq!(list.findings.iter().map(|f| f.rule).collect::<Vec<_>>(), ["abbreviation"]);
        assert_eq!(list.unused(), ["--seq-length"]);
    }

    #[test]
    fn slips_are_named() {
        let mut list =
            read("--num-layers 8\n--num-layers 9 --tensor-modl-parallel-size 4\n--micro-batch-size --bf16 stray");
        assert_eq!(list.number("--num-layers"), Some(9), "the last counts");
        let rules: Vec<&str> = list.findings.iter().map(|f| f.rule).collect();
        assert_eq!(rules, ["flag-twice", "missing-value", "stray-word"]);
        assert_eq!(list.unknown[0].nearest.as_deref(), Some("--tensor-model-parallel-size"));
        assert_eq!(list.unknown[0].place.line, 2);
        let mut list = read("--num-layers x --hidden-size 0 --moe-token-dispatcher-type ring");
        assert_eq!((list.number("--num-layers"), list.size("--hidden-size")), (None, None));
        let rules: Vec<&str> = list.findings.iter().map(|f| f.rule).collect();
        assert_eq!(rules, ["unknown-value", "wrong-value", "wrong-value"]);
    }
}
