//! Values of sourced files, which no message repeats: `source FILE` may name a file of secrets.

use std::collections::BTreeSet;

/// Fewest characters of a value that is hidden: a shorter one is a setting.
const SHORTEST: usize = 4;

/// Text that replaces a hidden value.
const MASK: &str = "…";

/// Words that are hidden.
#[derive(Clone, Debug, Default)]
pub struct Hidden(BTreeSet<String>);

impl Hidden {
    /// Hides the words of a text and the text itself. Numbers and flags are settings and stay visible.
    pub fn add(&mut self, text: &str) {
        let values = |word: &str| {
            word.split_once('=').filter(|_| word.starts_with('-')).map_or(word, |(_, value)| value).to_owned()
        };
        let words = text.split_whitespace().map(values);
        let secret =
            |word: &String| word.chars().count() >= SHORTEST && word.parse::<f64>().is_err() && !word.starts_with('-');
        self.0.extend(words.chain([text.trim().to_owned()]).filter(secret));
    }

    /// The hidden words without those that may be seen.
    #[must_use]
    pub fn without(&self, seen: &dyn Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|word| !seen(word)).cloned().collect())
    }

    /// A text in which every hidden value is masked where it stands as a word of its own.
    pub fn masked(&self, text: &str) -> String {
        // The longest first: a value may be a part of another.
        let mut values: Vec<&String> = self.0.iter().filter(|value| text.contains(value.as_str())).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| masked(&text, value))
    }
}

fn masked(text: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    for (at, _) in text.match_indices(value) {
        let (before, after) = (text[..at].chars().next_back(), text[at + value.len()..].chars().next());
        let inside = (part(before) && part(value.chars().next())) || (part(after) && part(value.chars().next_back()));
        if !inside {
            out.push_str(&text[from..at]);
            out.push_str(MASK);
            from = at + value.len();
        }
    }
    out + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_and_settings_are_not() {
        let mut hidden = Hidden::default();
        for text in ["hunter2", "--num-layers 32 --token=s3cr3t! --recompute-granularity selective", "a b c", "bird"] {
            hidden.add(text);
        }
        let hidden = hidden.without(&|word| word == "selective");
        for (text, seen) in [
            ("`--wandb-key hunter2` is unknown", "`--wandb-key …` is unknown"),
            ("hunter2/hunter2 and hunter22", "…/… and hunter22"),
            ("s3cr3t! of 32 selective layers", "… of 32 selective layers"),
            ("a bird of 1birds", "a … of 1birds"),
        ] {
            assert_eq!(hidden.masked(text), seen);
        }
    }
}
