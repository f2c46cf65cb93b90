//! Verdict of lower bounds of time and memory on several plans.

use super::certificate::Counts;
use crate::space::Rejection;

/// Verdict on plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Some may enter the answer.
    Open,
    /// All exceed the memory.
    TooLarge,
    /// All that fit are too slow.
    Slow,
}

impl Verdict {
    /// Counts `plans` if they are excluded, and returns whether they are. The first that exceed the memory stay, so that one of
    /// them is the example of the rule.
    pub fn excludes(self, plans: u64, counts: &mut Counts) -> bool {
        match self {
            Self::Open => false,
            Self::TooLarge => counts.reject_more(Rejection::OUT_OF_MEMORY, plans),
            Self::Slow => {
                counts.flow += plans;
                true
            }
        }
    }
}
