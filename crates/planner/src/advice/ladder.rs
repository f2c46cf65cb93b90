//! Limits of prudence, in the order in which a search gives them up.

use crate::space::Restrictions;
use meshwright_engine::problem::Problem;

/// Probability of running out of memory that a launch accepts where the user names none.
pub const USUAL_RISK: f64 = 0.05;

/// Limits that a recommendation keeps if any plan does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prudence {
    /// Largest accepted probability of running out of memory.
    pub risk: f64,
    /// Whether mechanisms without a published run are considered.
    pub exotic: bool,
}

impl Default for Prudence {
    fn default() -> Self {
        Self { risk: USUAL_RISK, exotic: false }
    }
}

/// Limit that no plan keeps, and that was given up to find one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GivenUp {
    /// Every plan without unproven mechanisms that fits has a larger risk than accepted.
    Risk,
    /// Only plans with unproven mechanisms fit; the accepted risk is kept if any of them keeps it.
    Proof,
}

/// One search for plans that keep some limits of prudence.
pub(super) struct Rung {
    /// Restrictions of its space.
    pub restrictions: Restrictions,
    /// Whether plans keep the accepted risk of running out of memory.
    pub keeps_risk: bool,
    /// Limit that its plans need not keep.
    pub given_up: Option<GivenUp>,
}

/// Restrictions to mechanisms that published runs have shown on each of several problems.
pub(super) fn shown_by_runs(problems: &[Problem], asked: &Restrictions) -> Restrictions {
    let mut proven = asked.clone();
    for problem in problems {
        proven.proven_only(problem);
    }
    proven
}

/// The searches to try in turn until one finds a plan: all limits; any risk; mechanisms that no run has shown and that free memory,
/// under the risk and then at any; everything. Of several problems, such as pools of one question, only what has been shown on
/// each counts as shown.
pub(super) fn rungs(problems: &[Problem], asked: &Restrictions, prudence: Prudence) -> Vec<Rung> {
    let rung = |restrictions: &Restrictions, keeps_risk, given_up| Rung {
        restrictions: restrictions.clone(),
        keeps_risk,
        given_up,
    };
    if prudence.exotic {
        return vec![rung(asked, true, None), rung(asked, false, Some(GivenUp::Risk))];
    }
    let proven = shown_by_runs(problems, asked);
    let mut freeing = asked.clone();
    for problem in problems {
        freeing.proven_but_for_memory(problem);
    }
    vec![
        rung(&proven, true, None),
        rung(&proven, false, Some(GivenUp::Risk)),
        rung(&freeing, true, Some(GivenUp::Proof)),
        rung(&freeing, false, Some(GivenUp::Proof)),
        rung(asked, false, Some(GivenUp::Proof)),
    ]
}
