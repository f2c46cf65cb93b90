//! Class of a run: what is known of its stack, GPU and model.

use meshwright_engine::model::MixerKind;
use serde::{Deserialize, Serialize};

/// Published runs of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StackRuns {
    /// Runs of the framework that the stack stands for.
    Own,
    /// Runs of several code bases that have no stack of their own.
    Generic,
    /// No run.
    None,
}

impl StackRuns {
    /// All of them, from the most that is known to the least.
    pub const ALL: [Self; 3] = [Self::Own, Self::Generic, Self::None];
}

/// Class of a run: the properties on which the size of the prediction error depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunClass {
    /// Whether the model routes tokens to experts.
    pub experts: bool,
    /// Runs of this stack in the calibration, with models of this kind; none without runs of each mixer of the model.
    pub stack: StackRuns,
    /// Whether the calibration includes runs of this GPU.
    pub known_gpu: bool,
    /// Whether the predicted memory exceeds nine tenths of the device's.
    pub near_limit: bool,
}

impl RunClass {
    /// All 24 classes.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |stack| {
            (0..8_u8).map(move |bits| Self {
                experts: bits & 1 > 0,
                stack,
                known_gpu: bits & 2 > 0,
                near_limit: bits & 4 > 0,
            })
        };
        StackRuns::ALL.into_iter().flat_map(of)
    }

    /// Whether at least as much is known of stack and GPU as of those of another class.
    pub fn knows_as_much_as(self, other: Self) -> bool {
        self.stack <= other.stack && self.known_gpu >= other.known_gpu
    }

    /// Class in words; where no run has some mixers, with those in place of the stack.
    pub(super) fn in_words(self, unknown: &[MixerKind]) -> String {
        let Self { experts, stack, known_gpu, near_limit } = self;
        let kind = if experts { "MoE" } else { "dense" };
        let stack = match (unknown, stack) {
            ([], StackRuns::Own) => "known stack".to_owned(),
            ([], StackRuns::Generic) => "stack of various scripts".to_owned(),
            ([], StackRuns::None) => format!("stack without {kind} data"),
            (mixers, _) => format!("{} without data", joined(mixers, "and")),
        };
        format!(
            "{kind}, {stack}, GPU {} data{}",
            if known_gpu { "with" } else { "without" },
            if near_limit { ", near the memory limit" } else { "" }
        )
    }
}

impl std::fmt::Display for RunClass {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.in_words(&[]))
    }
}

/// Mixers in words, with a conjunction between them.
pub(super) fn joined(mixers: &[MixerKind], conjunction: &str) -> String {
    mixers.iter().map(|mixer| mixer.in_words()).collect::<Vec<_>>().join(&format!(" {conjunction} "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_the_mixers_without_runs_in_place_of_the_stack() {
        let class = RunClass { experts: true, stack: StackRuns::None, known_gpu: true, near_limit: false };
        assert_eq!(class.to_string(), "MoE, stack without MoE data, GPU with data");
        let words = class.in_words(&[MixerKind::Mamba, MixerKind::DeltaNet]);
        assert_eq!(words, "MoE, Mamba-2 blocks and gated delta rules without data, GPU with data");
    }
}
