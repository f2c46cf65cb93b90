//! Evaluation of stages on heterogeneous devices: each rank by its own device, the step simulated over the links between
//! them.

use super::by_stage::{StagedEvaluation, Stager};
use super::data::RankParameters;
use super::footprint::{self, Footprint};
use super::optimizer::Update;
use super::pipeline::takes_longer;
use super::price::Ranks;
use super::step::{Evaluation, StepTime};
use super::work::Work;
use crate::schedule::replay::{Wire, makespan_over};
use crate::stages::StagedPlan;
use crate::units::Seconds;

/// Evaluator of staged plans over several kinds of device.
#[derive(Debug)]
pub struct HeterogeneousStager<'s, 'a> {
    /// Evaluator of the plan on each kind of device.
    stagers: &'s [Stager<'a>],
    /// Kind of the device of each rank.
    of_rank: &'s [usize],
    /// Link from each virtual stage to the next.
    wires: Vec<Wire>,
    /// Shortest send between two virtual stages.
    send: Seconds,
}

/// Ranks of a staged plan, each evaluated on its own device.
struct OwnRanks {
    /// Work of each rank on one micro-batch.
    works: Vec<Work>,
    parameters: Vec<RankParameters>,
    footprints: Vec<Footprint>,
    /// Work of each virtual stage.
    chunks: Vec<Work>,
}

/// Send between two ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SendTime {
    /// Time until it has arrived.
    pub latency: Seconds,
    /// Time until the link is free for the next.
    pub occupied: Seconds,
}

impl<'s, 'a> HeterogeneousStager<'s, 'a> {
    /// Evaluator of one plan: `stagers` evaluate it on each kind of device, `of_rank` is the stager of each rank;
    /// `across(a, b)` = send from a rank of stager a to one of stager b.
    ///
    /// Every link counts as the fastest one in the closed form, as on identical devices; what slower links take longer is simulated.
    pub fn new(stagers: &'s [Stager<'a>], of_rank: &'s [usize], across: impl Fn(usize, usize) -> SendTime) -> Self {
        let plan = stagers[0].plan();
        let sends: Vec<SendTime> = (1..plan.pipeline().chunks())
            .map(|chunk| {
                let rank = |chunk| of_rank[plan.pipeline().rank_of(chunk) as usize];
                let (a, b) = (rank(chunk - 1), rank(chunk));
                if a == b { SendTime { latency: stagers[a].send(), occupied: Seconds::ZERO } } else { across(a, b) }
            })
            .collect();
        let send = sends.iter().map(|own| own.latency).reduce(Seconds::min).unwrap_or_default();
        let wires = sends.into_iter().map(|own| Wire { delay: own.latency - send, occupied: own.occupied }).collect();
        Self { stagers, of_rank, wires, send }
    }

    /// Sends of the whole step that the closed form counts.
    pub fn closed_sends(&self) -> Seconds {
        self.stagers[0].costs().exposed_sends_of(self.stagers[0].plan(), self.send)
    }

    /// Upper bound on the time that unequal sends add to a step for each micro-batch: a round trip over each link, and its
    /// occupation.
    pub fn most_added_latency(&self) -> Seconds {
        self.wires.iter().map(|wire| wire.delay * 4.0 + wire.occupied * 2.0).sum()
    }

    /// Evaluation of a staged plan:
    ///
    /// ```text
    /// T_step = (T_simulated + sends)·(1 + J) + max over kinds of device of (T_dp,exposed, T_opt + T_offload)
    /// ```
    ///
    /// with the replay of [`crate::schedule::replay`] over links with a delay each, which carry one send at a time.
    /// Where no send is overlapped, a delay blocks both stages of the link. `None` where the schedule does not run.
    pub fn evaluate(&self, staged: &StagedPlan) -> Option<StagedEvaluation> {
        let (plan, costs) = (self.stagers[0].plan(), self.stagers[0].costs());
        let m = self.stagers[0].micro_batches();
        let ranks = self.ranks(staged);
        let mut times = costs.times_of(plan, &ranks.chunks);
        if !costs.device.stack.overlap.pp {
            for (at, wire) in self.wires.iter().enumerate() {
                times[at].forward += wire.delay;
                times[at + 1].backward += wire.delay;
            }
        }
        let makespan = makespan_over(plan.pipeline(), m as u32, &times, &self.wires)?;
        let both = |work: &Work| work.rank_time().both() + work.ep_exposed;
        let busiest = ranks.works.iter().reduce(|a, b| if takes_longer(both(b), both(a)) { b } else { a })?;
        let busy = StepTime::busy(busiest, busiest.ep_exposed, m);
        let bubble = (makespan - busy.total()).or_zero();
        let step = StepTime { pipeline_bubble: bubble, pp_comm: self.closed_sends(), ..busy };
        let (exchange, update) = self.longest_exchange_and_update(staged, &ranks);
        let step = step.with_edges(costs.slow_down(plan.layout.world_size()), exchange, update);
        let footprint = footprint::fullest(&ranks.footprints);
        Some(StagedEvaluation {
            evaluation: Evaluation { plan: staged.plan.clone(), step, footprint },
            stages: times,
            footprints: ranks.footprints,
        })
    }

    /// Work, parameters and memory of each rank on its own device.
    fn ranks(&self, staged: &StagedPlan) -> OwnRanks {
        let plan = self.stagers[0].plan();
        let of_kinds: Vec<Ranks> = self.stagers.iter().map(|stager| stager.ranks(staged).1).collect();
        let own = |rank: usize| &of_kinds[self.of_rank[rank]];
        let rank_of = |chunk: usize| plan.pipeline().rank_of(chunk as u32) as usize;
        let all = 0..plan.layout.pp as usize;
        OwnRanks {
            works: all.clone().map(|rank| own(rank).works[rank]).collect(),
            parameters: all.clone().map(|rank| own(rank).parameters[rank]).collect(),
            footprints: all.map(|rank| own(rank).footprints[rank]).collect(),
            chunks: (0..staged.stages.len()).map(|chunk| own(rank_of(chunk)).chunks[chunk]).collect(),
        }
    }

    /// Longest exposed exchange between replicas, and longest update, over the kinds of device.
    fn longest_exchange_and_update(&self, staged: &StagedPlan, ranks: &OwnRanks) -> (Seconds, Update) {
        let (mut exchange, mut update) = (Seconds::ZERO, Update::default());
        for (kind, stager) in self.stagers.iter().enumerate() {
            let of_kind: Vec<usize> = (0..ranks.works.len()).filter(|&rank| self.of_rank[rank] == kind).collect();
            let works: Vec<Work> = of_kind.iter().map(|&rank| ranks.works[rank]).collect();
            let parameters: Vec<RankParameters> = of_kind.iter().map(|&rank| ranks.parameters[rank]).collect();
            let offload = |at: usize| staged.offload[of_kind[at]];
            let (exposed, own) = stager.costs().exchange_and_update(stager.plan(), &works, &parameters, offload);
            exchange = exchange.max(exposed);
            if own.total() > update.total() {
                update = own;
            }
        }
        (exchange, update)
    }
}
