//! Evaluation of a staged plan: its simulated step time and the memory of each rank.

use std::sync::OnceLock;

use super::costs::Costs;
use super::counts::{Counted, LayerChoice, StageCounts, each_rank};
use super::data::{RankParameters, TableParameters};
use super::footprint::Footprint;
use super::incremental::Pairs;
use super::layer::PassTimes;
use super::price::{Method, Ranks};
use super::shape::{CountedPlan, ShapeCost};
use super::stage::{embedding, loss};
use super::step::Evaluation;
use super::work::Work;
use crate::plan::{Offload, Plan, Recompute};
use crate::schedule::closed::RankTime;
use crate::schedule::in_flight::peak_moments;
use crate::schedule::replay::StageTime;
use crate::schedule::simulator::Simulator;
use crate::stages::StagedPlan;
use crate::units::{Bytes, Seconds};

/// One layer of one kind as a stage runs it, for one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerOption {
    /// Recomputation of the layer in backward.
    pub recompute: Recompute,
    /// Cost by kind of work: compute, recomputation, each communication.
    pub work: Work,
    /// Time as the schedule takes it: with the exposed expert traffic.
    pub time: StageTime,
    /// Bytes kept on the device between forward and backward.
    pub kept: Bytes,
    /// Bytes kept on the host.
    pub on_host: Bytes,
    /// Working set of the recomputation of the whole layer; 0 if it is not fully recomputed.
    pub working_set: Bytes,
}

/// Evaluated plan with its stages.
#[derive(Clone, Debug, PartialEq)]
pub struct StagedEvaluation {
    /// The plan, its simulated step time, and its fullest rank.
    pub evaluation: Evaluation,
    /// Time of each virtual stage on one micro-batch.
    pub stages: Vec<StageTime>,
    /// Memory of each rank.
    pub footprints: Vec<Footprint>,
}

impl StagedEvaluation {
    /// Rank with the largest peak, if it exceeds the memory budget.
    pub fn over(&self, hbm_budget: Bytes) -> Option<&Footprint> {
        let over = self.footprints.iter().filter(|footprint| footprint.peak() > hbm_budget);
        over.max_by(|a, b| a.peak().get().total_cmp(&b.peak().get()))
    }
}

/// Evaluator of staged plans that share degrees and schedule.
#[derive(Clone, Debug)]
pub struct Stager<'a> {
    costs: &'a Costs<'a>,
    plan: Plan,
    shape: ShapeCost,
    micro_batches: f64,
    peak_moments: Vec<Vec<Vec<f64>>>,
    send: Seconds,
    /// Times of pairs, of a bidirectional pipeline that runs.
    pairs: Option<Pairs>,
    /// Simulator of the schedule, prepared on first use.
    simulator: OnceLock<Option<Simulator>>,
}

impl<'a> Stager<'a> {
    /// Computes the layer costs of a plan once. ZeRO 3 is not staged: it gathers weights layer by layer (`fsdp`).
    pub fn new(costs: &'a Costs<'a>, plan: &Plan) -> Self {
        let plan = Plan { recompute: Recompute::None, offload: Offload::NONE, ..plan.clone() };
        let micro_batches = costs.micro_batches(&plan);
        Self {
            costs,
            plan: plan.clone(),
            shape: costs.shape(&plan),
            micro_batches,
            peak_moments: peak_moments(plan.pipeline(), micro_batches),
            send: costs.stage_send(&plan),
            pairs: Pairs::of(costs, &plan),
            simulator: OnceLock::new(),
        }
    }

    /// Costs of the problem.
    pub const fn costs(&self) -> &'a Costs<'a> {
        self.costs
    }
    /// The plan, without recomputation and offload.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }
    /// Micro-batches of one step.
    pub const fn micro_batches(&self) -> f64 {
        self.micro_batches
    }
    /// Micro-batches in flight of each chunk, at the peak moments of each rank.
    pub fn peak_moments(&self) -> &[Vec<Vec<f64>>] {
        &self.peak_moments
    }
    /// Times of pairs of passes.
    pub fn pairs(&self) -> Pairs {
        self.pairs.unwrap_or(Pairs::NONE)
    }
    /// Whether the schedule of this plan can be simulated.
    pub fn is_simulated(&self) -> bool {
        self.plan.pipeline().runnable(self.micro_batches).is_some()
    }
    /// Simulator of the schedule; none where it cannot be simulated.
    pub fn simulator(&self) -> Option<&Simulator> {
        let pipeline = self.plan.pipeline();
        let ready = || Simulator::new(pipeline, pipeline.runnable(self.micro_batches)?);
        self.simulator.get_or_init(ready).as_ref()
    }
    /// Time of a send between neighbouring stages.
    pub const fn send(&self) -> Seconds {
        self.send
    }
    /// Closed-form time of all sends of a step, as in `Costs::evaluate_simulated`; it does not depend on the stages.
    pub fn closed_sends(&self) -> Seconds {
        self.costs.exposed_sends_of(&self.plan, self.send)
    }

    /// Layer of `kind` under a recomputation, with a share of its activations on the host.
    pub fn layer(&self, kind: usize, recompute: Recompute, on_host: f64) -> LayerOption {
        let choice = LayerChoice { kind, recompute, on_host };
        let mut work = self.costs.work_of(&self.plan, &self.shape.layers[kind], &choice);
        self.costs.expose_alone(&self.plan, &mut work);
        let bytes = self.costs.layer_bytes(&self.plan, &[choice]);
        let all = self.costs.kept_activations(kind, &self.plan.recomputing(recompute));
        let time = self.time(&work);
        LayerOption {
            recompute,
            work,
            time,
            kept: bytes.kept[0],
            on_host: all * on_host,
            working_set: bytes.recomputed[0],
        }
    }

    /// Work as the schedule runs it. In bidirectional pipelines, as passes alone: the schedule decides which of them are
    /// paired ([`Pairs`]).
    fn time(&self, work: &Work) -> StageTime {
        if self.pairs.is_some() {
            let RankTime { forward, backward, wgrad } = work.unpaired_time();
            return StageTime { forward, backward, wgrad, ..StageTime::default() };
        }
        StageTime::from(work)
    }

    /// Time of every stage in which it waits for maxima of FP8 tensors; it does not depend on the layers.
    pub fn maxima(&self) -> StageTime {
        self.time(&Work { amax: self.costs.maxima(&self.plan).unwrap_or_default(), ..Work::default() })
    }

    /// Time of the input embedding.
    pub fn embedding(&self) -> StageTime {
        self.time(&embedding(&self.shape.ends))
    }

    /// Time of the output heads and losses, one for the model and one for each multi-token-prediction depth.
    pub fn loss(&self) -> StageTime {
        let mut work = Work::default();
        work.add(&loss(&self.shape.ends), 1.0 + f64::from(self.costs.problem.model().mtp_depth));
        self.time(&work)
    }

    /// Parameters of one layer of a kind on a rank.
    pub fn layer_parameters(&self, kind: usize) -> RankParameters {
        RankParameters::of_layer(self.costs.layer_parameters(kind), &self.plan.layout)
    }

    /// Parameters that multi-token prediction adds to its layer: the projection, 2·h².
    pub fn mtp_parameters(&self) -> RankParameters {
        self.costs.mtp_parameters(&self.plan)
    }

    /// Parameters of the tables at the ends of the model.
    pub fn table_parameters(&self) -> TableParameters {
        self.costs.table_parameters(&self.plan)
    }

    /// Bytes of weights, gradients and optimizer states of these parameters under an offload.
    pub fn state_bytes(&self, resident: &RankParameters, offload: Offload) -> Bytes {
        self.costs.states(resident, &self.plan.offloading(offload)).total()
    }

    /// Memory of a rank that does not depend on its layers: working set and caches, and under ZeRO 2 the gradients of one
    /// virtual stage.
    pub fn fixed_bytes(&self, rank: u32) -> Bytes {
        let counts = self.costs.stage_counts(&self.plan, Some(&self.shape), Counted::Ranks);
        self.costs.working_set(&self.plan).on_rank(self.plan.pipeline().holds_last(rank))
            + self.costs.caches(&self.plan)
            + self.costs.unsharded(&self.plan, &counts).loss
    }

    /// Evaluation of a staged plan: step time by simulation if the schedule runs (else the closed form), memory of each rank
    /// by its layers and its peak moments.
    pub fn evaluate(&self, staged: &StagedPlan) -> StagedEvaluation {
        let (counts, ranks) = self.ranks(staged);
        let offload = |rank: usize| staged.offload[rank];
        let simulate = |times: &[StageTime]| self.simulator().map(|simulator| simulator.makespan(times));
        let step = self.costs.step(self.counted(&counts), &ranks, offload, simulate);
        let footprint = super::footprint::fullest(&ranks.footprints);
        StagedEvaluation {
            evaluation: Evaluation { plan: staged.plan.clone(), step, footprint },
            stages: self.costs.times_of(&self.plan, &ranks.chunks),
            footprints: ranks.footprints,
        }
    }

    /// Layers of each rank, with the work and memory of each rank.
    pub(super) fn ranks(&self, staged: &StagedPlan) -> (StageCounts, Ranks) {
        let counts = self.costs.staged_counts(staged);
        let offload = |rank: usize| staged.offload[rank];
        let classes = each_rank(self.plan.layout.pp);
        let ranks = self.costs.ranks(self.counted(&counts), classes, Method::Simulated, offload);
        (counts, ranks)
    }

    fn counted<'s>(&'s self, counts: &'s StageCounts) -> CountedPlan<'s> {
        CountedPlan { plan: &self.plan, shape: &self.shape, counts }
    }

    /// Lower bound on the step time of stages whose pipeline takes at least `pipe`, whose heaviest rank has at least
    /// `resident` parameters and whose ranks hide the exchange of gradients and parameters behind passes of at most `hidden_by`.
    /// Every rank offloads `offload`.
    pub fn bound(&self, pipe: Seconds, resident: RankParameters, hidden_by: PassTimes, offload: Offload) -> Seconds {
        let work = Work { compute: hidden_by, ..Work::default() };
        let (replicas, update) = self.costs.exchange_and_update(&self.plan, &[work], &[resident], |_| offload);
        pipe * (1.0 + self.costs.slow_down(self.plan.layout.world_size())) + replicas + update.device + update.host
    }
}
