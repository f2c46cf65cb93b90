//! Answer of a sweep: fronts, comparisons and purchase, from the records of its options.

use rayon::prelude::*;
use serde::Serialize;

use crate::report::json;
use crate::sweep::fleet::{self, Fleet, FleetProof, NoFleet};
use crate::sweep::insight::{self, BreakEven, Marginal};
use crate::sweep::record::Record;
use crate::sweep::select::Selection;
use crate::sweep::tornado::{self, Bar};
use crate::sweep::{Choice, Sweep, front, solve};

/// Comparisons of the options of a sweep.
pub struct SweepAnswer {
    /// Indices of the records on the Pareto front of dollars and days.
    pub front: Vec<usize>,
    /// Prices at which the cheapest option changes.
    pub break_even: Vec<BreakEven>,
    /// Effect of each step of each axis.
    pub marginals: Vec<Marginal>,
    /// Purchase for all workloads, if the file asks for one.
    pub fleet: Option<Result<Fleet, NoFleet>>,
}

#[derive(Serialize)]
struct SweepDocument<'a> {
    schema: u32,
    sweep: &'a str,
    digest: &'a str,
    options: u64,
    infeasible: u64,
    front: Vec<u64>,
    records: &'a [Record],
    break_even: &'a [BreakEven],
    marginals: &'a [Marginal],
    fleet: Option<&'a Fleet>,
}

/// Effect of uncertain figures on the cheapest option, with its index among the records; plans its workloads anew.
pub fn tornado_of_cheapest(sweep: &Sweep, selection: &Selection) -> Option<(usize, Vec<Bar>)> {
    let at = selection.cheapest().first().copied()?;
    let choice = sweep.option(selection.records[at].option)?;
    let solved = solve::machine(sweep, &Choice::machine(&choice)).ok()?;
    Some((at, tornado::bars(sweep, &choice, &solved)))
}

impl SweepAnswer {
    /// Comparisons of selected records.
    pub fn new(sweep: &Sweep, selection: &Selection) -> Self {
        let records = &selection.records;
        Self {
            front: front::of_records(records, |totals| (totals.days, totals.cost_usd)),
            break_even: insight::break_even(records),
            marginals: if selection.is_whole { insight::marginals(sweep, records) } else { Vec::new() },
            fleet: sweep.wanted.as_ref().map(|wanted| {
                let bought = fleet::buy(sweep, wanted, records)?;
                // Only the fronts and the cheapest options of a large sweep are in memory, so nothing is proved of the others.
                let proof = if selection.is_whole { bought.proof } else { FleetProof::Within(f64::INFINITY) };
                Ok(Fleet { proof, ..bought })
            }),
        }
    }

    /// The purchase, if one was asked for and found.
    pub fn bought(&self) -> Option<&Fleet> {
        self.fleet.as_ref().and_then(|fleet| fleet.as_ref().ok())
    }

    /// JSON document of the answer, the same as `sweep --format json` prints.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn document(&self, sweep: &Sweep, selection: &Selection) -> serde_json::Result<String> {
        json::text(&self.form(sweep, selection, &selection.records))
    }

    /// The document in two: all but its records, and each record as a line.
    ///
    /// # Errors
    ///
    /// A value has no JSON form.
    pub fn divided(&self, sweep: &Sweep, selection: &Selection) -> serde_json::Result<(String, Vec<String>)> {
        let lines: serde_json::Result<Vec<String>> = selection.records.par_iter().map(serde_json::to_string).collect();
        Ok((json::text(&self.form(sweep, selection, &[]))?, lines?))
    }

    fn form<'a>(&'a self, sweep: &'a Sweep, selection: &'a Selection, records: &'a [Record]) -> SweepDocument<'a> {
        SweepDocument {
            schema: json::SCHEMA,
            sweep: &sweep.name,
            digest: &sweep.digest,
            options: selection.all,
            infeasible: selection.infeasible,
            front: self.front.iter().map(|at| selection.records[*at].option).collect(),
            records,
            break_even: &self.break_even,
            marginals: &self.marginals,
            fleet: self.bought(),
        }
    }
}
