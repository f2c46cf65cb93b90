//! Flags of a launcher in groups, and how they are written.

use std::fmt::Display;

/// Value of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlagValue {
    /// No word: the flag is a switch.
    On,
    /// A single word.
    Word(String),
    /// Several words.
    Words(Vec<String>),
}

/// One flag, without its dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagSetting {
    pub flag: &'static str,
    pub value: FlagValue,
}

/// Flags under one heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlagGroup {
    pub settings: Vec<FlagSetting>,
}

impl FlagGroup {
    /// Adds a switch.
    pub fn on(&mut self, flag: &'static str) {
        self.settings.push(FlagSetting { flag, value: FlagValue::On });
    }

    /// Adds a switch where it holds.
    pub fn on_if(&mut self, holds: bool, flag: &'static str) {
        if holds {
            self.on(flag);
        }
    }

    /// Adds a flag with one word.
    pub fn set(&mut self, flag: &'static str, value: impl Display) {
        self.settings.push(FlagSetting { flag, value: FlagValue::Word(value.to_string()) });
    }

    /// Adds a flag with several words.
    pub fn list<T: Display>(&mut self, flag: &'static str, values: impl IntoIterator<Item = T>) {
        let words = values.into_iter().map(|value| value.to_string()).collect();
        self.settings.push(FlagSetting { flag, value: FlagValue::Words(words) });
    }
}

/// A list whose repetitions are folded, as a Python expression: `[0]*3+[1]*58`.
pub(crate) fn folded<T: PartialEq + Display>(items: &[T]) -> String {
    let mut runs: Vec<(&T, usize)> = Vec::new();
    for item in items {
        match runs.last_mut() {
            Some((last, count)) if *last == item => *count += 1,
            Some(_) | None => runs.push((item, 1)),
        }
    }
    if runs.len() > MOST_RUNS {
        let all: Vec<String> = items.iter().map(ToString::to_string).collect();
        return format!("[{}]", all.join(","));
    }
    let parts: Vec<String> = runs
        .iter()
        .map(|(item, count)| if *count == 1 { format!("[{item}]") } else { format!("[{item}]*{count}") })
        .collect();
    format!("({})", parts.join("+"))
}

/// Runs that are still easier to read than the list itself.
const MOST_RUNS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_folded() {
        assert_eq!(folded(&[0, 0, 0, 1, 1]), "([0]*3+[1]*2)");
        assert_eq!(folded(&[0, 1, 0, 1, 0, 1, 0]), "[0,1,0,1,0,1,0]");
    }
}
