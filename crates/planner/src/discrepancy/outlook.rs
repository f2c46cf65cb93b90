//! Value of timing a plan, and of stopping: chances, expected improvement and expected loss from draws of the posterior.

use super::belief::Belief;
use crate::split_mix::SplitMix;

/// State of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// No trial of it has ended.
    Untried,
    /// Its trial ran and was timed.
    Ran,
    /// Its trial failed.
    Failed,
}

/// Prospects of one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Probability that it runs and is the fastest of all.
    pub best: f64,
    /// Probability that it runs.
    pub runs: f64,
    /// Expected share of the best trial's step time that it saves if it is timed next; before any trial has run, the
    /// share of the speed of the fastest that it reaches in the mean.
    pub gain: f64,
}

/// Prospects of all candidates, and of stopping now.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Prospects in the order of the candidates.
    pub prospects: Vec<Prospect>,
    /// Fastest candidate that ran.
    pub leader: Option<usize>,
    /// Expected relative loss of stopping now: of the leader's time against the fastest of all.
    pub loss: f64,
    /// Probability that the leader is within the tolerance of the fastest of all.
    pub within: f64,
    /// Candidate whose timing is worth most; none if all were tried.
    pub next: Option<usize>,
    /// Number of candidates that ran.
    pub ran: usize,
}

/// Number of draws; shares of them have a standard error of at most 1.2 %.
const DRAWS: u32 = 2000;
/// Fewest candidates that ran before a choice is decided: after one or two, what a problem's plans have in common and
/// what a plan has of its own are not told apart.
const FEWEST: usize = 3;
/// Seed of the draws, so that the same trials give the same answer.
const SEED: u64 = 0x5EED;

/// Standard normal number (Box–Muller).
fn standard_normal(numbers: &mut SplitMix) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - numbers.uniform())).sqrt();
    radius * libm::cos(2.0 * std::f64::consts::PI * numbers.uniform())
}

/// Lower triangle L with L·Lᵀ = the covariance of the first `n` points; rounding may leave a variance just below 0.
fn root(covariance: &[Vec<f64>], n: usize) -> Vec<Vec<f64>> {
    let mut lower: Vec<Vec<f64>> = Vec::with_capacity(n);
    for (row, values) in covariance.iter().take(n).enumerate() {
        let mut line = vec![0.0; row + 1];
        for column in 0..=row {
            let known: f64 =
                (0..column).map(|k| line[k] * if column == row { line[k] } else { lower[column][k] }).sum();
            let rest = values[column] - known;
            line[column] = if column == row {
                rest.max(0.0).sqrt()
            } else if lower[column][column] > 1e-9 {
                rest / lower[column][column]
            } else {
                0.0
            };
        }
        lower.push(line);
    }
    lower
}

impl Outlook {
    /// Outlook over the first `tried.len()` points of a belief, each with its probability to run; `tolerance` is the relative
    /// loss that does not matter.
    ///
    /// ```text
    /// gain_i = E[max(0, 1 − t_i/t_leader) · (i runs)]      loss = E[t_leader/min_j t_j − 1]      over plans j that run
    /// gain_i = E[min_j t_j/t_i · (i runs)]                 before any trial has run
    /// ```
    pub fn new(belief: &Belief, tried: &[Tried], runs: &[f64], tolerance: f64) -> Self {
        let n = tried.len();
        let ran = (0..n).filter(|&at| tried[at] == Tried::Ran);
        let leader = ran.min_by(|&a, &b| belief.median(a).total_cmp(&belief.median(b)));
        let lower = root(belief.covariance(), n);
        let mut numbers = SplitMix::new(SEED);
        let (mut gain, mut speed, mut best) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let (mut loss, mut within) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let z: Vec<f64> = (0..n).map(|_| standard_normal(&mut numbers)).collect();
            let times: Vec<f64> = (0..n)
                .map(|at| {
                    let runs = match tried[at] {
                        Tried::Ran => true,
                        Tried::Failed => false,
                        Tried::Untried => numbers.uniform() < runs[at],
                    };
                    let deviation: f64 = lower[at].iter().zip(&z).map(|(l, z)| l * z).sum();
                    if !runs {
                        return f64::INFINITY;
                    }
                    belief.drawn(at, deviation, || (numbers.uniform(), standard_normal(&mut numbers)))
                })
                .collect();
            let Some(first) = (0..n).filter(|&at| times[at].is_finite()).min_by(|&a, &b| times[a].total_cmp(&times[b]))
            else {
                continue;
            };
            best[first] += 1.0;
            let Some(leader) = leader else {
                for at in 0..n {
                    speed[at] += libm::exp(times[first] - times[at]);
                }
                continue;
            };
            let lost = libm::expm1(times[leader] - times[first]);
            loss += lost;
            within += f64::from(u8::from(lost <= tolerance));
            for at in (0..n).filter(|&at| tried[at] == Tried::Untried && times[at] < times[leader]) {
                gain[at] -= libm::expm1(times[at] - times[leader]);
            }
        }
        let share = |sum: f64| sum / f64::from(DRAWS);
        let worth = if leader.is_some() { &gain } else { &speed };
        let prospects: Vec<Prospect> =
            (0..n).map(|at| Prospect { best: share(best[at]), runs: runs[at], gain: share(worth[at]) }).collect();
        let medians: Vec<f64> = (0..n).map(|at| belief.median(at)).collect();
        let untried = (0..n).filter(|&at| tried[at] == Tried::Untried);
        let order = |a: &usize, b: &usize| {
            prospects[*a].gain.total_cmp(&prospects[*b].gain).then(medians[*b].total_cmp(&medians[*a]))
        };
        let ran = tried.iter().filter(|state| **state == Tried::Ran).count();
        Self { next: untried.max_by(order), leader, ran, loss: share(loss), within: share(within), prospects }
    }

    /// Whether further timing is not worth it: three candidates ran and the expected improvement of the best next trial
    /// is below the tolerance, or nothing is left to try ([jones-1998], §4).
    pub fn is_decided(&self, tolerance: f64) -> bool {
        let settled = |next: usize| self.ran >= FEWEST && self.prospects[next].gain < tolerance;
        self.leader.is_some() && self.next.is_none_or(settled)
    }

    /// Candidates to time together, most valuable first: each is chosen as if those before it had come out as expected
    /// (the kriging believer [ginsbourger-2010]).
    pub fn batch(belief: &Belief, tried: &[Tried], runs: &[f64], tolerance: f64, count: usize) -> Vec<usize> {
        let (mut belief, mut tried) = (belief.clone(), tried.to_vec());
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let Some(next) = Self::new(&belief, &tried, runs, tolerance).next else { break };
            let expected = belief.median(next);
            belief.observe(next, expected, 0.0);
            tried[next] = Tried::Ran;
            chosen.push(next);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two plans, and two slow ones that are known.
    fn belief(mean: [f64; 2], deviation: f64, correlation: f64) -> Belief {
        let entry = |a: usize, b: usize| match (a < 2 && b < 2, a == b) {
            (false, _) => 0.0,
            (true, true) => deviation.powi(2),
            (true, false) => deviation.powi(2) * correlation,
        };
        let mean = vec![mean[0], mean[1], 9.0, 9.0];
        Belief::normal(mean, (0..4).map(|a| (0..4).map(|b| entry(a, b)).collect()).collect())
    }

    const TRIED: [Tried; 4] = [Tried::Ran, Tried::Untried, Tried::Ran, Tried::Ran];

    #[test]
    fn expected_improvement_is_that_of_the_closed_form() {
        // Leader known at 0, the other normal (0, 0.1): E[max(0, 1 − e^y)] = ½ − e^(σ²/2)·Φ(−σ) = 0.0376
        let mut known = belief([0.0, 0.0], 0.1, 0.0);
        known.observe(0, 0.0, 0.0);
        let outlook = Outlook::new(&known, &TRIED, &[1.0; 4], 0.05);
        assert!((outlook.prospects[1].gain - 0.0376).abs() < 0.004, "{outlook:?}");
        assert!((outlook.prospects[1].best - 0.5).abs() < 0.04, "{outlook:?}");
        assert_eq!((outlook.leader, outlook.next), (Some(0), Some(1)));
        assert!(outlook.is_decided(0.05) && !outlook.is_decided(0.03));
        let unlikely = Outlook::new(&known, &TRIED, &[1.0, 0.1, 1.0, 1.0], 0.05);
        assert!(
            unlikely.prospects[1].gain < outlook.prospects[1].gain / 5.0,
            "a plan that hardly fits is worth little"
        );
    }

    #[test]
    fn plans_that_err_together_need_no_second_look() {
        let outlook_of = |correlation| {
            let mut belief = belief([0.0, 0.05], 0.2, correlation);
            belief.observe(0, 0.1, 0.01);
            Outlook::new(&belief, &TRIED, &[1.0; 4], 0.05)
        };
        assert!(outlook_of(0.99).is_decided(0.05) && !outlook_of(0.0).is_decided(0.05));
        assert!(outlook_of(0.99).within > 0.95);
        let mut two = belief([0.0, 0.05], 0.2, 0.99);
        two.observe(0, 0.1, 0.01);
        let outlook = Outlook::new(&two, &[Tried::Ran, Tried::Untried, Tried::Failed, Tried::Ran], &[1.0; 4], 0.05);
        assert!(!outlook.is_decided(0.05), "two plans that ran do not decide a choice");
    }

    #[test]
    fn a_batch_spreads_over_plans_that_err_apart() {
        // 0 and 1 are the same but for a little; 2 is apart and expected a little slower
        let covariance = vec![vec![0.04, 0.039, 0.0], vec![0.039, 0.04, 0.0], vec![0.0, 0.0, 0.04]];
        let belief = Belief::normal(vec![0.0, 0.01, 0.05], covariance);
        let chosen = Outlook::batch(&belief, &[Tried::Untried; 3], &[1.0; 3], 0.05, 2);
        assert_eq!(chosen, [0, 2], "what 0 tells, it tells of 1 too");
        let failed = Outlook::new(&belief, &[Tried::Failed; 3], &[1.0; 3], 0.05);
        assert_eq!((failed.next, failed.leader), (None, None));
    }
}
