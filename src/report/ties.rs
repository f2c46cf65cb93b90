//! Plans that a prediction cannot tell apart, and which of them to time.

use meshwright_engine::units::percent;
use meshwright_planner::confidence::table;
use meshwright_planner::search::Ranking;

/// Fewest and most plans that are worth timing.
const TO_TIME: (usize, usize) = (3, 5);

/// How far the ranking may be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ties {
    /// Plans, the first among them, whose step time is too near to that of the first to be told apart from it.
    pub tied: usize,
    /// Plans that are shown.
    shown: usize,
    /// The gap at which they could be.
    gap: f64,
}

impl Ties {
    /// Of a ranking, by the gap at which nine measured pairs of ten were in the predicted order.
    pub fn of(ranking: &Ranking) -> Self {
        let gap = table().apart.gap;
        let times: Vec<f64> = ranking.evaluations.iter().map(|evaluation| evaluation.step.total().get()).collect();
        let first = times.first().copied().unwrap_or_default();
        Self { tied: times.iter().filter(|time| **time < first * (1.0 + gap)).count(), shown: times.len(), gap }
    }

    /// A plan's place in the ranking, from 0; those tied with the first are marked.
    pub fn place(&self, at: usize) -> String {
        if self.tied > 1 && at < self.tied { format!("{} =", at + 1) } else { (at + 1).to_string() }
    }

    /// Places, from 1, of the plans to time before one is chosen: the tied ones, three to five; none where the first stands
    /// alone.
    pub fn to_time(&self) -> Vec<usize> {
        if self.tied < 2 {
            return Vec::new();
        }
        (1..=self.tied.clamp(TO_TIME.0, TO_TIME.1).min(self.shown)).collect()
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        let gap = percent(self.gap);
        let to_time = self.to_time();
        match to_time.as_slice() {
            [] if self.shown > 1 => {
                format!(
                    "The next plan is over {gap} slower: measured plans so far apart were in the predicted order nine times of ten."
                )
            }
            [] => String::new(),
            [.., last] => format!(
                "Plans 1 to {} are within {gap} of each other, which published errors cannot tell apart: time plans 1 to {last} \
                 before choosing.",
                self.tied
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ties(tied: usize, shown: usize) -> Ties {
        Ties { tied, shown, gap: 0.1 }
    }

    #[test]
    fn three_to_five_of_the_tied_are_to_be_timed() {
        assert_eq!(ties(1, 5).to_time(), [] as [usize; 0]);
        assert_eq!(ties(2, 5).to_time(), [1, 2, 3]);
        assert_eq!(ties(2, 2).to_time(), [1, 2]);
        assert_eq!(ties(20, 20).to_time(), [1, 2, 3, 4, 5]);
        assert_eq!(
            (ties(2, 5).place(1), ties(2, 5).place(2), ties(1, 5).place(0)),
            ("2 =".into(), "3".into(), "1".into())
        );
    }
}
