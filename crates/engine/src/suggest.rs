//! Suggestions ("did you mean"): the known name nearest to the one that was written.

/// Smallest similarity of a suggestion; below it, a wrong guess would only confuse.
const LIKE_ENOUGH: f64 = 0.7;

/// Fewest letters and digits of the beginning of a name.
const BEGINNING: usize = 3;

/// Whether a word is a name in another case or with other separators.
pub fn is_spelling(word: &str, of: &str) -> bool {
    letters(word) == letters(of)
}

/// Candidate most similar to `word` (Jaro-Winkler, ignoring case), if it is similar enough: one with its letters and digits, else of those
/// that begin with `word`, if there are some.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (word, start) = (word.to_lowercase(), letters(word));
    let begins = |candidate: &str| {
        let own = letters(candidate);
        (!start.is_empty() && own == start, start.len() >= BEGINNING && own.starts_with(&start))
    };
    candidates
        .into_iter()
        .map(|candidate| (begins(candidate), strsim::jaro_winkler(&word, &candidate.to_lowercase()), candidate))
        .filter(|((is_same, _), likeness, _)| *is_same || *likeness >= LIKE_ENOUGH)
        .max_by(|(a, near, _), (b, nearer, _)| a.cmp(b).then(near.total_cmp(nearer)))
        .map(|(.., candidate)| candidate.to_owned())
}

/// Letters and digits of a name, in lower case: what is left where spellings differ in case and separators.
pub fn letters(name: &str) -> String {
    name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Question after the nearest name, to follow a sentence on an unknown one; empty where there is none.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// [`did_you_mean`] of the candidate that is nearest to `word`.
pub fn nearest_hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    did_you_mean(nearest(word, candidates).as_deref())
}

/// Most letters added, left out, changed or swapped in a slip of the keyboard.
const SLIPS: usize = 2;

/// Whether a word is another with a slip of the keyboard.
pub fn is_slip(word: &str, of: &str) -> bool {
    strsim::osa_distance(word, of) <= SLIPS
}

/// Hint for an unknown key: the nearest valid key, if one is similar enough, and all valid keys.
pub fn keys_hint<'a>(word: &str, keys: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let all = keys.clone().into_iter().collect::<Vec<_>>().join(", ");
    match nearest(word, keys) {
        Some(near) => format!("\n\nhint: did you mean `{near}`? The keys are: {all}"),
        None => format!("\n\nhint: the keys are: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_none() {
        assert_eq!(nearest("h100sxm", ["h100-pcie", "h100-sxm", "mi300x"]).as_deref(), Some("h100-sxm"));
        assert_eq!(nearest("qwen3-235b", ["qwen3-235b-a22b", "qwen3-32b"]).as_deref(), Some("qwen3-235b-a22b"));
        assert_eq!(nearest("qqqq", ["h100-pcie", "mi300x"]), None);
        assert_eq!(nearest("H100_512", ["h100-5120", "h100-512", "h100-51"]).as_deref(), Some("h100-512"));
        assert!(
            is_slip("--tensor-modl-parallel-size", "--tensor-model-parallel-size") && !is_slip("--moe-x", "--moe-freq")
        );
        assert_eq!(nearest("foo", ["tp", "offload-optimizer"]), None);
        assert!(keys_hint("tpp", ["tp", "pp"]).contains("did you mean `tp`?"));
        assert_eq!(keys_hint("foo", ["tp", "pp"]), "\n\nhint: the keys are: tp, pp");
    }
}
