//! Plans that a prediction cannot tell apart, and which of them to time.

use meshwright_engine::units::percent;
use meshwright_planner::confidence::table;
use meshwright_planner::search::Ranking;

/// Fewest plans to recommend for timing, where as many are near the first.
const LEAST_TO_TIME: usize = 3;
/// Difference up to which a plan is near the first, in units of that which tells two plans apart.
const NEAR: f64 = 2.0;
/// Most plans to recommend for timing.
const MOST_TO_TIME: usize = 5;

/// Resolution of a ranking: the plans that tie with the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ties {
    /// Number of plans, including the first, whose step time is too close to the first to be distinguished.
    pub tied: usize,
    /// Number of plans shown.
    shown: usize,
    /// Number of plans near the first, including it: beyond them none is worth a measurement.
    near: usize,
    /// Difference in step time needed to tell two plans apart.
    gap: f64,
}

impl Ties {
    /// Ties of a ranking, by the difference at which nine of ten measured pairs were in the predicted order.
    pub fn of(ranking: &Ranking) -> Self {
        let gap = table().apart.gap;
        let times: Vec<f64> = ranking.evaluations.iter().map(|evaluation| evaluation.step.total().get()).collect();
        let first = times.first().copied().unwrap_or_default();
        let within = |gap: f64| times.iter().filter(|time| **time < first * (1.0 + gap)).count();
        Self { tied: within(gap), shown: times.len(), near: within(NEAR * gap), gap }
    }

    /// Rank of a plan as text, from the index `at`; those that tie with the first are marked.
    pub fn place(&self, at: usize) -> String {
        if self.tied > 1 && at < self.tied { format!("{} =", at + 1) } else { (at + 1).to_string() }
    }

    /// Ranks, from 1, of the plans to time before choosing one: the tied ones, up to five, and a third that is near; empty if the first
    /// does not tie.
    pub fn to_time(&self) -> Vec<usize> {
        if self.tied < 2 {
            return Vec::new();
        }
        (1..=self.tied.min(MOST_TO_TIME).max(self.near.min(LEAST_TO_TIME))).collect()
    }

    /// Sentence that recommends which plans to time.
    pub fn advice(&self) -> String {
        let gap = percent(self.gap);
        let to_time = self.to_time();
        match to_time.as_slice() {
            [] if self.shown > 1 => {
                format!(
                    "The next plan is over {gap} slower: measured plans that differ this much were in the predicted \
                    order nine times out of ten."
                )
            }
            [] => String::new(),
            [.., last] => {
                let (tied, to_time) = match (self.tied, *last) {
                    (2, 2) => ("1 and 2".to_owned(), "both".to_owned()),
                    (2, last) => ("1 and 2".to_owned(), format!("them and plan {last}")),
                    (tied, last) => (format!("1 to {tied}"), format!("plans 1 to {last}")),
                };
                format!(
                    "Plans {tied} are within {gap} of each other, which published errors cannot tell apart: time {to_time} \
                     before choosing."
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ties(tied: usize, shown: usize) -> Ties {
        Ties { tied, shown, near: shown, gap: 0.1 }
    }

    #[test]
    fn three_to_five_of_the_tied_are_to_be_timed() {
        assert_eq!(ties(1, 5).to_time(), [] as [usize; 0]);
        assert_eq!(ties(2, 5).to_time(), [1, 2, 3]);
        assert_eq!(ties(2, 2).to_time(), [1, 2]);
        assert_eq!(Ties { near: 2, ..ties(2, 5) }.to_time(), [1, 2], "the third is far behind");
        assert_eq!(ties(20, 20).to_time(), [1, 2, 3, 4, 5]);
        assert_eq!(
            (ties(2, 5).place(1), ties(2, 5).place(2), ties(1, 5).place(0)),
            ("2 =".into(), "3".into(), "1".into())
        );
    }

    #[test]
    fn the_sentence_names_as_tied_what_is_tied() {
        assert!(ties(2, 2).advice().starts_with("Plans 1 and 2 are within 10.0 % of each other,"));
        assert!(ties(2, 2).advice().ends_with(": time both before choosing."));
        assert!(ties(2, 5).advice().ends_with(": time them and plan 3 before choosing."));
        assert!(ties(4, 5).advice().ends_with(": time plans 1 to 4 before choosing."));
    }
}
