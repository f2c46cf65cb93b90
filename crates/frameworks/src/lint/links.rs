//! Groups that leave the scale-up domain, priced against the same cluster with a domain that holds them.

use serde::Serialize;

use crate::import::finding::Finding;
use crate::import::imported::Imported;
use meshwright_engine::cost::{Costs, Evaluation};
use meshwright_engine::plan::{Layout, Plan};
use meshwright_engine::problem::Problem;

/// A group that talks across domains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Which: `tp`, `cp`, `ep`.
    pub group: &'static str,
    /// Its ranks.
    pub ranks: u32,
    /// GPUs from its first rank to its last.
    pub span: u32,
    /// GPUs of the scale-up domain.
    pub domain: u32,
    /// The level of the network that joins it.
    pub level: String,
    /// Cost of leaving the domain, as a share of the step without it.
    pub costs: f64,
}

/// The groups that talk in every layer and leave the domain.
pub fn crossings(problem: &Problem, plan: &Plan, evaluation: &Evaluation) -> Vec<Crossing> {
    let domain = problem.cluster().scale_up.gpus;
    let Layout { tp, cp, ep, etp, .. } = plan.layout;
    let groups = [("tp", tp, tp), ("cp", cp, tp.saturating_mul(cp)), ("ep", ep, ep.saturating_mul(etp))];
    let crossing = |(group, ranks, span): (&'static str, u32, u32)| {
        if ranks < 2 || span <= domain {
            return None;
        }
        let inside = with_domain(problem, span)?;
        let without = Costs::new(&inside).evaluate_simulated(plan).step.total();
        let level = problem.cluster().levels.iter().find(|level| level.gpus >= span);
        Some(Crossing {
            group,
            ranks,
            span,
            domain,
            level: level.map_or_else(|| "network".to_owned(), |level| level.name.clone()),
            // A wide domain's curve is extrapolated; where it comes out slower, leaving costs nothing that the model sees.
            costs: (evaluation.step.total() / without - 1.0).max(0.0),
        })
    };
    groups.into_iter().filter_map(crossing).collect()
}

/// The problem on a cluster whose scale-up domain holds `gpus`.
pub fn with_domain(problem: &Problem, gpus: u32) -> Option<Problem> {
    let changed = problem.changed(|cluster, _, _| {
        cluster.scale_up.gpus = gpus;
        cluster.levels.retain(|level| level.gpus > gpus);
    });
    changed.ok()
}

/// Share of the step from which leaving the domain is a warning: the spread of repeated measurements (README).
const NOTICEABLE: f64 = 0.04;

impl Crossing {
    /// In words: "EP 64 leaves the 8-GPU domain: +38 %".
    pub fn finding(&self, imported: &Imported) -> Finding {
        let Self { group, ranks, span, domain, level, costs } = self;
        let price = if *costs > 0.0 {
            format!("{:+.0} %", costs * 100.0)
        } else {
            "no slower in the model, whose domains beyond the measured sizes are extrapolated: time it".to_owned()
        };
        let message = format!(
            "{} {ranks} leaves the {domain}-GPU domain (it spans {span}, joined by `{level}`): {price}",
            group.to_uppercase()
        );
        let finding = if *costs >= NOTICEABLE {
            Finding::warning("leaves-domain", message)
        } else {
            Finding::note("leaves-domain", message)
        };
        finding
            .at_maybe(imported.places.get(*group))
            .costing(*costs)
            .expected(format!("groups of {domain} GPUs or fewer, or a larger domain"))
    }
}
