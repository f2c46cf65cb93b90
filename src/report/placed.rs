//! Plans with an optimised order of hosts.

use meshwright_engine::units::percent;
use serde::Serialize;

use super::Sheet;
use crate::placement::{Placement, PlacementMethod, Unplaceable, host_order};
use meshwright_engine::collective::{RankMapping, units};
use meshwright_engine::gpu::Topology;
use meshwright_engine::plan::Plan;
use meshwright_engine::problem::Problem;

/// Placement of one plan of the ranking.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Rank in the ranking, from 1.
    pub place: usize,
    /// The plan as ranked.
    pub plan: Plan,
    /// Its placement, or the reason why only the rank order is possible.
    pub outcome: Result<Placement, Unplaceable>,
}

impl Entry {
    /// Placement and mapping, if the reordering saves more than `least` as a share of the step.
    fn if_gain_exceeds(&self, least: f64) -> Option<(&Placement, &RankMapping)> {
        let placed = self.outcome.as_ref().ok().filter(|placed| placed.gain() > least)?;
        Some((placed, placed.mapping.as_ref()?))
    }
}

/// File name of the host list next to a framework's files.
pub const HOST_FILE: &str = "host-order.txt";

/// Largest number of host ranges listed in one line.
const MOST_RUNS: usize = 6;

/// Table of the plans that a reordering speeds up by more than `least`; `None` if there are none.
pub fn sheet(problem: &Problem, entries: &[Entry], least: f64) -> Option<Sheet> {
    let columns = ["#", "plan", "in rank order", "placed", "gain", "one unit holds", "hosts (chips of a torus)"];
    let mut sheet = Sheet::new("with reordered hosts", &columns);
    for entry in entries {
        let Some((placed, mapping)) = entry.if_gain_exceeds(least) else { continue };
        sheet.push([
            entry.place.to_string(),
            placed.plan.to_string(),
            placed.in_order.to_string(),
            placed.step.to_string(),
            percent(placed.gain()),
            ranks_by_unit(problem, &placed.plan, mapping).join(";\n"),
            shortened(&hosts(problem, placed)),
        ]);
    }
    (!sheet.rows.is_empty()).then_some(sheet)
}

/// Sentences on how to launch the placement and how to read the table; empty if a reordering saves at most `least`.
pub fn sentence(problem: &Problem, entries: &[Entry], least: f64) -> String {
    let Some((placed, entry)) = entries.iter().find_map(|entry| Some((entry.if_gain_exceeds(least)?.0, entry))) else {
        return String::new();
    };
    let proof = match placed.found {
        PlacementMethod::Enumerated(1) => {
            "the only even placement on the units of the network was evaluated".to_owned()
        }
        PlacementMethod::Enumerated(all) => {
            format!("all {all} even placements on the units of the network were evaluated")
        }
        PlacementMethod::Program(priced) => {
            format!("an integer program chose, and {priced} of its solutions were evaluated: not proved optimal")
        }
    };
    let (what, launch) = if problem.cluster().scale_up.topology == Topology::Torus {
        (
            "Chips are counted from 0 along the axes, the first axis first",
            "give the mesh of devices its chips in that order",
        )
    } else {
        (
            "Hosts are counted from 0 as they stand, unit by unit",
            "name them in that order in the file $SLURM_HOSTFILE and add --distribution=arbitrary to srun, or number the nodes so",
        )
    };
    format!(
        "Plan {} is {} faster when ranks with the most traffic are nearest to each other: {proof}. {what}; \
        {launch}. The placed time counts sends between \
         stages by the levels that each crosses.",
        entry.place,
        percent(placed.gain()),
    )
}

/// Host list for launchers: one host per line in the order of node ranks; `None` if the rank order stays.
pub fn host_file(problem: &Problem, placed: &Placement) -> Option<String> {
    let hosts = placed.mapping.as_ref().and_then(|mapping| host_order(problem.cluster(), &placed.plan, mapping))?;
    let head = format!(
        "# Host of each node rank in turn, counted from 0 as hosts stand in the network, unit by unit.\n\
         # plan: {}\n# predicted: {} a step, {} with hosts in rank order\n\
         # Under Slurm, where hosts.txt names the job's hosts as they stand:\n\
         #   awk 'NR == FNR {{ host[NR - 1] = $1; next }} !/^#/ {{ print host[$1] }}' hosts.txt {HOST_FILE} > ordered.txt\n\
         #   SLURM_HOSTFILE=ordered.txt srun --distribution=arbitrary …\n",
        placed.plan, placed.step, placed.in_order
    );
    let lines: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    Some(head + &lines.join("\n") + "\n")
}

/// Reason why no other order helps the first plan.
pub fn nothing(entries: &[Entry]) -> Option<String> {
    let entry = entries.first()?;
    match &entry.outcome {
        Err(why) => Some(why.to_string()),
        Ok(placed) if placed.mapping.is_none() => {
            Some(format!("rank order {} is as fast as any other host order", entry.plan.order))
        }
        Ok(_) => None,
    }
}

fn hosts(problem: &Problem, placed: &Placement) -> Vec<u32> {
    let mapping = placed.mapping.as_ref();
    mapping.and_then(|mapping| host_order(problem.cluster(), &placed.plan, mapping)).unwrap_or_default()
}

/// Ranks in one unit of each size above a host: `pod: tp 8, dp 24`.
fn ranks_by_unit(problem: &Problem, plan: &Plan, mapping: &RankMapping) -> Vec<String> {
    let cluster = problem.cluster();
    let sizes = units(cluster);
    let below = sizes.len() - cluster.levels.len().max(1);
    let name = |unit: usize| match unit.checked_sub(below + 1) {
        Some(level) => cluster.levels[level].name.clone(),
        None if unit == below => "domain".to_owned(),
        None => format!("{} chips", sizes[unit]),
    };
    let dims = |unit: usize| {
        let layout = plan.layout;
        let ends = [layout.tp, layout.tp * layout.cp, layout.tp * layout.cp * layout.dp, layout.world_size()];
        let mut held = [1; 4];
        let mut stride = 1;
        for axis in mapping.axes() {
            stride *= axis.ranks;
            held[ends.iter().position(|end| stride <= *end).unwrap_or(3)] *= axis.inside[unit];
        }
        let named = ["tp", "cp", "dp", "pp"].into_iter().zip(held).filter(|(_, held)| *held > 1);
        named.map(|(dim, held)| format!("{dim} {held}")).collect::<Vec<_>>().join(", ")
    };
    let above_host = (0..sizes.len()).filter(|&unit| sizes[unit] > cluster.gpus_per_node);
    above_host.map(|unit| format!("{}: {}", name(unit), dims(unit))).collect()
}

/// List of hosts with consecutive ones as ranges, truncated.
fn shortened(hosts: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &host in hosts {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == host => *last = host,
            _ => runs.push((host, host)),
        }
    }
    let run = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let shown: Vec<String> = runs.iter().take(MOST_RUNS).map(run).collect();
    shown.join(" ") + if runs.len() > MOST_RUNS { " … (--format json)" } else { "" }
}

/// JSON form of a placed plan.
#[derive(Debug, Serialize)]
pub struct PlacedDocument {
    plan: String,
    place: usize,
    reason: Option<String>,
    placed: Option<PlacementFigures>,
}

#[derive(Debug, Serialize)]
struct PlacementFigures {
    /// Plan in the rank order of its launch.
    plan: String,
    step_time_s: f64,
    step_time_in_order_s: f64,
    gain: f64,
    enumerated: bool,
    evaluated: usize,
    /// Host of each node rank, counted from 0 in the cluster's own order; empty if the rank order is as fast.
    host_order: Vec<u32>,
}

impl PlacedDocument {
    /// JSON form of an entry.
    pub fn new(problem: &Problem, entry: &Entry) -> Self {
        let placed = entry.outcome.as_ref().ok().map(|placed| {
            let (enumerated, evaluated) = match placed.found {
                PlacementMethod::Enumerated(evaluated) => (true, evaluated),
                PlacementMethod::Program(evaluated) => (false, evaluated),
            };
            PlacementFigures {
                step_time_s: placed.step.get(),
                step_time_in_order_s: placed.in_order.get(),
                gain: placed.gain(),
                enumerated,
                evaluated,
                plan: placed.plan.to_string(),
                host_order: hosts(problem, placed),
            }
        });
        let reason = entry.outcome.as_ref().err().map(ToString::to_string);
        Self { plan: entry.plan.to_string(), place: entry.place, reason, placed }
    }
}
