//! Selection of the records for reports: all of a small sweep; of a large one the fronts, the cheapest, and the best of
//! each GPU.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;

use super::error::SweepError;
use super::record::{OptionStatus, Record};
use super::results;

/// Number of options up to which all records stay in memory.
const MOST_WHOLE: u64 = 20_000;
/// Number of cheapest options selected from a larger sweep.
const MOST_CHEAP: usize = 1000;
/// Number of infeasible options selected.
const MOST_INFEASIBLE: u64 = 200;

/// Selected records of a sweep.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Records in the order of their options.
    pub records: Vec<Record>,
    /// Number of options of the sweep.
    pub all: u64,
    /// Number of infeasible options.
    pub infeasible: u64,
    /// Whether all records were selected.
    pub is_whole: bool,
}

/// Pareto front that accepts points one at a time.
#[derive(Default)]
struct Front(Vec<FrontPoint>);

/// Option with two figures of which less is better.
struct FrontPoint {
    x: f64,
    y: f64,
    option: u64,
}

impl Front {
    /// Adds a point unless another is at least as small in both coordinates; drops those that it dominates.
    fn offer(&mut self, point: FrontPoint) {
        if self.0.iter().all(|known| known.x > point.x || known.y > point.y) {
            self.0.retain(|known| known.x < point.x || known.y < point.y);
            self.0.push(point);
        }
    }
}

impl Selection {
    /// Selects all records of a sweep in memory.
    pub fn of_all(records: Vec<Record>) -> Self {
        let infeasible = records.iter().filter(|record| record.status == OptionStatus::Infeasible).count() as u64;
        Self { all: records.len() as u64, infeasible, is_whole: true, records }
    }

    /// Selects from a finished results file, which is read a second time if it has more records than are kept.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(path: &Path) -> Result<Self, SweepError> {
        let (mut all, mut infeasible) = (0_u64, 0_u64);
        let (mut by_cost, mut by_energy) = (Front::default(), Front::default());
        let mut cheapest: BinaryHeap<(u64, u64)> = BinaryHeap::new(); // cents, option: the dearest on top
        let mut of_gpu: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        let mut kept: BTreeSet<u64> = BTreeSet::new();
        let mut records = Vec::new();
        results::each_record(path, &mut |record| {
            all += 1;
            if all > MOST_WHOLE {
                records = Vec::new();
            }
            let Some(totals) = &record.totals else {
                infeasible += 1;
                if infeasible <= MOST_INFEASIBLE {
                    kept.insert(record.option);
                }
                if all <= MOST_WHOLE {
                    records.push(record);
                }
                return Ok(());
            };
            let point = |y: f64| FrontPoint { x: totals.days, y, option: record.option };
            by_cost.offer(point(totals.cost_usd));
            by_energy.offer(point(totals.energy_mwh));
            cheapest.push(((totals.cost_usd * 100.0) as u64, record.option));
            if cheapest.len() > MOST_CHEAP {
                cheapest.pop();
            }
            let best = of_gpu.entry(record.gpu.clone()).or_insert((totals.cost_usd, record.option));
            if totals.cost_usd < best.0 {
                *best = (totals.cost_usd, record.option);
            }
            if all <= MOST_WHOLE {
                records.push(record);
            }
            Ok(())
        })?;
        let is_whole = all <= MOST_WHOLE;
        kept.extend(by_cost.0.iter().chain(&by_energy.0).map(|point| point.option));
        kept.extend(cheapest.iter().map(|(_, option)| option));
        kept.extend(of_gpu.values().map(|(_, option)| option));
        let records = if is_whole { records } else { results::records(path, &|record| kept.contains(&record.option))? };
        Ok(Self { records, all, infeasible, is_whole })
    }

    /// Indices of the feasible records, cheapest first.
    pub fn cheapest(&self) -> Vec<usize> {
        let cost = |at: &usize| self.records[*at].totals.as_ref().map_or(f64::INFINITY, |totals| totals.cost_usd);
        let mut order: Vec<usize> = (0..self.records.len()).filter(|at| self.records[*at].totals.is_some()).collect();
        order.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.cmp(b)));
        order
    }
}
