//! Judgement of an argument list as the parser of a release of Megatron core gives it: types, values, releases.
//!
//! Source: [megatron-lm] `megatron/training/arguments.py` of every release (`data/megatron.tsv`).

use super::arguments::Arguments;
use crate::import::finding::{Finding, Place, Severity};
use crate::megatron::flags::{APART, Arity, Flag, FlagPair, Releases, flags};

/// One flag that the parser knows, with its words.
struct Judged {
    text: String,
    place: Place,
    releases: Releases,
}

/// Adds the errors that stop the parser: values of another type, words behind a switch, names that are not whole, flags that no one
/// release has together, or that the named release does not have.
pub(super) fn judge(list: &mut Arguments, named: Option<&str>) {
    for finding in list.findings.iter_mut().filter(|finding| matches!(finding.rule, "abbreviation" | "stray-word")) {
        finding.level = Severity::Error; // the parser is made with `allow_abbrev=False`
    }
    let mut found = Vec::new();
    let mut judged = Vec::new();
    for (name, words, place) in list.all() {
        let Some(flag) = flag_of(name) else { continue };
        let text = [name.to_owned()].into_iter().chain(words.clone()).collect::<Vec<_>>().join(" ");
        found.extend(wrong_value(flag, name, &words).map(|finding| finding.at(place)));
        let releases = flag.releases_of(&words.iter().map(String::as_str).collect::<Vec<_>>());
        // A word that no release takes is a finding already.
        if !releases.is_empty() {
            judged.push(Judged { text, place: place.clone(), releases });
        }
    }
    judged.extend(together(list));
    match named {
        Some(name) => found.extend(not_in(&judged, name)),
        None => found.extend(common(&judged)),
    }
    for finding in found {
        let is_repeated = |other: &Finding| other.rule == finding.rule && other.place == finding.place;
        if finding.rule == "release" || !list.findings.iter().any(is_repeated) {
            list.findings.push(finding);
        }
    }
}

/// Given flags that only some releases take together.
fn together(list: &Arguments) -> impl Iterator<Item = Judged> {
    APART.iter().filter_map(|FlagPair { one, other, first }| {
        let places = [one, other].map(|text| {
            let (name, word) = text.split_once(' ').map_or((*text, None), |(name, word)| (name, Some(word)));
            let flag = format!("--{name}");
            list.place(&flag).filter(|_| word.is_none_or(|word| list.says(&flag, word)))
        });
        let [Some(_), Some(place)] = places else { return None };
        Some(Judged { text: format!("--{one} --{other}"), place, releases: Releases::since(first) })
    })
}

/// The flag of a written name, which may be a switch's opposite.
fn flag_of(name: &str) -> Option<&'static Flag> {
    let opposite = || flags().get(format!("--{}", name.strip_prefix("--no-")?).as_str());
    flags().get(name).or_else(|| opposite().filter(|flag| flag.arity == Arity::Switch))
}

/// Error of words that the flag `name` takes in no release.
fn wrong_value(flag: &Flag, name: &str, words: &[String]) -> Option<Finding> {
    let newest = flag.forms.last()?;
    let bare = matches!(newest.arity, Arity::Exactly(0) | Arity::Switch);
    if bare && !words.is_empty() && flag.forms.iter().all(|form| form.arity == newest.arity) {
        let message = format!("`{name}` has the value `{}`", words.join(" "));
        return Some(Finding::error("wrong-value", message).expected("a switch takes no value"));
    }
    let reads = |word: &String| flag.forms.iter().any(|form| form.value.reads(word));
    let wrong = words.iter().any(|word| !word.is_empty() && !word.contains("${") && !reads(word));
    wrong.then(|| Finding::wrong_value(name, &words.join(" "), newest.value.prose()))
}

/// Errors of flags that the named release does not have.
fn not_in(judged: &[Judged], name: &str) -> Vec<Finding> {
    let release = Releases::named(name);
    let missing = judged.iter().filter(|flag| flag.releases.and(release).is_empty());
    let finding = |flag: &Judged| {
        let message = format!("`{}` is of Megatron core {}, not of {name}", flag.text, flag.releases);
        Finding::error("release", message).at(&flag.place).expected("leave it out, or take such a release")
    };
    missing.map(finding).collect()
}

/// The error of flags that no release has together, or a note of those releases that have all.
fn common(judged: &[Judged]) -> Option<Finding> {
    let common = judged.iter().fold(Releases::all(), |all, flag| all.and(flag.releases));
    if common == Releases::all() {
        return None;
    }
    if !common.is_empty() {
        return Some(Finding::note("release", format!("its flags are those of Megatron core {common}")));
    }
    let apart = judged.iter().enumerate().find_map(|(at, last)| {
        judged[..at].iter().find(|first| first.releases.and(last.releases).is_empty()).map(|first| (first, last))
    });
    let (first, last) = apart?;
    let message = format!(
        "no release has both `{}` (Megatron core {}) and `{}` ({})",
        first.text, first.releases, last.text, last.releases
    );
    Some(Finding::error("release", message).at(&last.place).expected("the flags of one release"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::shell::text::Text;

    fn judged(text: &str, release: Option<&str>) -> Vec<(Severity, &'static str, String)> {
        let mut list = Arguments::read(&Text::of(text, 1).words(), "x.sh");
        judge(&mut list, release);
        list.findings.into_iter().map(|finding| (finding.level, finding.rule, finding.message)).collect()
    }

    #[test]
    fn flags_of_no_common_release_are_named() {
        let both = judged("--num-layers 8\n--use-custom-fsdp\n--moe-flex-dispatcher-backend deepep", None);
        assert_eq!((both.len(), both[0].0, both[0].1), (1, Severity::Error, "release"));
        assert!(both[0].2.contains("`--use-custom-fsdp` (Megatron core up to 0.13)"), "{}", both[0].2);
        let some = judged("--num-layers 8 --use-custom-fsdp", None);
        assert_eq!(some, [(Severity::Note, "release", "its flags are those of Megatron core up to 0.13".into())]);
        assert_eq!(judged("--num-layers 8 --bf16", None), []);
    }

    #[test]
    fn flags_are_held_to_the_named_release() {
        let text = "--fp8-recipe blockwise --moe-flex-dispatcher-backend deepep --num-layers 8";
        let old = judged(text, Some("0.12"));
        assert_eq!(old.len(), 2);
        assert!(old[0].2.contains("`--fp8-recipe blockwise` is of Megatron core 0.13 and later, not of 0.12"));
        assert_eq!(judged(text, Some("0.16")), []);
    }

    /// Each of the two is of every release.
    #[test]
    fn grouped_matmuls_in_fp16_are_of_later_releases() {
        let text = "--num-layers 8 --moe-grouped-gemm\n--fp16";
        let old = judged(text, Some("0.13"));
        assert_eq!((old.len(), old[0].0, old[0].1), (1, Severity::Error, "release"));
        assert!(old[0].2.contains("`--moe-grouped-gemm --fp16` is of Megatron core 0.16 and later, not of 0.13"));
        assert_eq!(judged(text, Some("0.16")), []);
        assert_eq!(judged(text, None)[0].2, "its flags are those of Megatron core 0.16 and later");
        assert_eq!(judged("--num-layers 8 --moe-grouped-gemm --bf16", Some("0.13")), []);
    }

    #[test]
    fn values_are_held_to_their_type() {
        let rules = |text| judged(text, None).into_iter().map(|(level, rule, _)| (level, rule)).collect::<Vec<_>>();
        assert_eq!(rules("--lr fast --seed 7 --adam-beta1 .9"), [(Severity::Error, "wrong-value")]);
        assert_eq!(rules("--bf16=true"), [(Severity::Error, "wrong-value")]);
        assert_eq!(rules("--bf16 true"), [(Severity::Error, "stray-word")]);
        assert_eq!(rules("--expert-model 4"), [(Severity::Error, "abbreviation")]);
    }
}
