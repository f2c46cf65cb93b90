//! The price of a plan whose stages are spelled out: replayed, under every rank's own memory.

use std::sync::OnceLock;

use super::costs::Costs;
use super::counts::{LayerChoice, StageCounts};
use super::data::RankParameters;
use super::footprint::Footprint;
use super::incremental::Pairs;
use super::price::{Method, Ranks};
use super::stage::{ShapeCost, Work, embedding, loss};
use super::step::Evaluation;
use crate::plan::{Offload, Plan, Recompute};
use crate::schedule::alive::alive;
use crate::schedule::closed::{RankTime, exposed_sends};
use crate::schedule::ops::runs;
use crate::schedule::player::Player;
use crate::schedule::replay::StageTime;
use crate::stages::StagedPlan;
use crate::units::{Bytes, Seconds};

/// One layer of one kind as a stage runs it, for one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerOption {
    /// Work that the backward pass computes again.
    pub recompute: Recompute,
    /// Cost by what the time is spent on.
    pub work: Work,
    /// As the schedule plays it: with the expert traffic that stays exposed.
    pub time: StageTime,
    /// Kept on the device between forward and backward.
    pub kept: Bytes,
    /// Kept on the host.
    pub on_host: Bytes,
    /// Working set of recomputing the whole layer; nothing where it is not recomputed whole.
    pub again: Bytes,
}

/// A priced plan with its stages.
#[derive(Clone, Debug, PartialEq)]
pub struct StagedEvaluation {
    /// The plan, its replayed step time, and its fullest rank.
    pub evaluation: Evaluation,
    /// Time of each virtual stage on one micro-batch.
    pub stages: Vec<StageTime>,
    /// Memory of each rank.
    pub footprints: Vec<Footprint>,
}

impl StagedEvaluation {
    /// The rank that is over its memory by the most, if any is.
    pub fn over(&self, budget: Bytes) -> Option<&Footprint> {
        let over = self.footprints.iter().filter(|footprint| footprint.device() > budget);
        over.max_by(|a, b| a.device().get().total_cmp(&b.device().get()))
    }
}

/// Prices stages of plans that share degrees and schedule.
#[derive(Clone, Debug)]
pub struct Stager<'a> {
    costs: &'a Costs<'a>,
    plan: Plan,
    shape: ShapeCost,
    micro_batches: f64,
    alive: Vec<Vec<Vec<f64>>>,
    send: Seconds,
    /// Of a bidirectional pipeline that runs.
    pairs: Option<Pairs>,
    /// The schedule, made ready when it is first played.
    player: OnceLock<Option<Player>>,
}

impl<'a> Stager<'a> {
    /// Prices the layers of a plan once. ZeRO 3 is not staged: it gathers weights layer by layer (`fsdp`).
    pub fn new(costs: &'a Costs<'a>, plan: &Plan) -> Self {
        let plan = Plan { recompute: Recompute::None, offload: Offload::NONE, ..*plan };
        let micro_batches = costs.micro_batches(&plan);
        Self {
            costs,
            plan,
            shape: costs.shape(&plan),
            micro_batches,
            alive: alive(plan.schedule, plan.layout.pp, micro_batches),
            send: costs.stage_send(&plan),
            pairs: Pairs::of(costs, &plan),
            player: OnceLock::new(),
        }
    }

    /// The problem's prices.
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
    /// Micro-batches of each chunk that each rank holds at the moments when it holds the most.
    pub fn alive(&self) -> &[Vec<Vec<f64>>] {
        &self.alive
    }
    /// Times of pairs of passes.
    pub fn pairs(&self) -> Pairs {
        self.pairs.unwrap_or(Pairs::NONE)
    }
    /// Whether the replay can play this plan.
    pub fn plays(&self) -> bool {
        let Plan { schedule, layout, .. } = self.plan;
        layout.pp > 1 && self.micro_batches.fract() == 0.0 && runs(schedule, layout.pp, self.micro_batches as u32)
    }
    /// Simulator of the schedule; none where it cannot be simulated.
    pub fn player(&self) -> Option<&Player> {
        let Plan { schedule, layout, .. } = self.plan;
        let ready = || if self.plays() { Player::new(schedule, layout.pp, self.micro_batches as u32) } else { None };
        self.player.get_or_init(ready).as_ref()
    }
    /// One way between neighbouring stages.
    pub const fn send(&self) -> Seconds {
        self.send
    }
    /// Sends of the whole step: their closed form, whatever the stages, as `Costs::evaluate_played` counts them.
    pub fn closed_sends(&self) -> Seconds {
        self.closed_sends_of(self.send)
    }
    /// Sends of a whole step where each takes `send`.
    pub fn closed_sends_of(&self, send: Seconds) -> Seconds {
        let (plan, overlapped) = (&self.plan, self.costs.device.stack.overlap.pp);
        exposed_sends(plan.schedule, plan.layout.pp, self.micro_batches, send, overlapped)
    }

    /// One layer of `kind` that recomputes `recompute` and leaves a share of its activations on the host.
    pub fn layer(&self, kind: usize, recompute: Recompute, on_host: f64) -> LayerOption {
        let choice = LayerChoice { kind, recompute, on_host };
        let work = self.costs.work_of(&self.plan, &self.shape.layers[kind], &choice);
        let bytes = self.costs.layer_bytes(&self.plan, &[choice]);
        let all = self.costs.kept_activations(kind, &Plan { recompute, ..self.plan });
        let time = self.time(&work);
        LayerOption { recompute, work, time, kept: bytes.kept[0], on_host: all * on_host, again: bytes.recomputed[0] }
    }

    /// Work as the schedule runs it. In the bidirectional pipelines, as passes alone: which of them find a partner is the
    /// schedule's affair ([`Pairs`]).
    fn time(&self, work: &Work) -> StageTime {
        if self.pairs.is_some() {
            let RankTime { forward, backward, wgrad } = work.alone();
            return StageTime { forward, backward, wgrad, ..StageTime::default() };
        }
        StageTime::from(work)
    }

    /// Wait of every stage for maxima of FP8 tensors, whatever its layers.
    pub fn maxima(&self) -> (Work, StageTime) {
        let work = Work { amax: self.costs.maxima(&self.plan).unwrap_or_default(), ..Work::default() };
        (work, self.time(&work))
    }

    /// The input embedding: its work, and as the schedule plays it.
    pub fn embedding(&self) -> (Work, StageTime) {
        let work = embedding(&self.shape.ends);
        (work, self.time(&work))
    }

    /// Output heads and losses, one for the model and one for each multi-token-prediction depth.
    pub fn loss(&self) -> (Work, StageTime) {
        let mut work = Work::default();
        work.add(&loss(&self.shape.ends), 1.0 + f64::from(self.costs.problem.model().mtp_depth));
        (work, self.time(&work))
    }

    /// Parameters of one layer of a kind on a rank.
    pub fn layer_parameters(&self, kind: usize) -> RankParameters {
        RankParameters::of_layer(self.costs.layer_parameters(kind), &self.plan.layout)
    }

    /// Parameters of a multi-token-prediction layer beside the layer: its projection, 2·h².
    pub fn mtp_parameters(&self) -> RankParameters {
        self.costs.mtp_parameters(&self.plan)
    }

    /// Parameters of the embedding table with learned positions, and of the table of the head.
    pub fn table_parameters(&self) -> (RankParameters, RankParameters) {
        self.costs.table_parameters(&self.plan)
    }

    /// Bytes of weights, gradients and optimizer states of these parameters under an offload.
    pub fn state_bytes(&self, held: &RankParameters, offload: Offload) -> Bytes {
        let (weights, gradients, optimizer) = self.costs.states(held, &Plan { offload, ..self.plan });
        weights + gradients + optimizer
    }

    /// Memory of a rank whatever its layers: working set and caches, and under ZeRO 2 the gradients of one virtual stage.
    pub fn fixed_bytes(&self, rank: u32) -> Bytes {
        let counts = self.costs.stage_counts(&self.plan, Some(&self.shape), false);
        self.costs.working_set(self.is_last(rank), &self.plan)
            + self.costs.caches(&self.plan)
            + self.costs.unsharded(&self.plan, &counts)
    }

    fn is_last(&self, rank: u32) -> bool {
        let chunks = self.plan.layout.pp * self.plan.schedule.virtual_stages();
        self.plan.schedule.holders(chunks - 1, self.plan.layout.pp).any(|holder| holder == rank)
    }

    /// The price of stages: step time by simulation where the schedule runs (else the closed form), memory of each rank by the
    /// layers that it holds and the moments when it has the most micro-batches in flight.
    pub fn evaluate(&self, staged: &StagedPlan) -> StagedEvaluation {
        let (counts, ranks) = self.ranks(staged);
        let offload = |rank: usize| staged.offload[rank];
        let simulate = |times: &[StageTime]| self.player().map(|player| player.makespan(times));
        let step = self.costs.step(&self.plan, &self.shape, (&counts, &ranks), offload, simulate);
        let footprint = super::footprint::fullest(ranks.footprints.iter().copied());
        StagedEvaluation {
            evaluation: Evaluation { plan: staged.plan, step, footprint },
            stages: self.costs.times_of(&self.plan, &ranks.chunks),
            footprints: ranks.footprints,
        }
    }

    /// Layers of each rank, and what each does and holds.
    pub(super) fn ranks(&self, staged: &StagedPlan) -> (StageCounts, Ranks) {
        let counts = self.costs.staged_counts(staged);
        let offload = |rank: usize| staged.offload[rank];
        let ranks = self.costs.ranks(&self.plan, &self.shape, &counts, Method::Simulated, offload);
        (counts, ranks)
    }

    /// A step time that no stages beat whose pipeline takes at least `pipe`, whose heaviest rank holds at least `held`, whose
    /// ranks hide gradients and parameters behind no more than `forward` and `backward`, and all leave `offload` on the host.
    pub fn bound(
        &self,
        pipe: Seconds,
        held: RankParameters,
        (forward, backward): (Seconds, Seconds),
        offload: Offload,
    ) -> Seconds {
        let compute = super::layer::Pair { forward, backward };
        let work = Work { compute, ..Work::default() };
        let (replicas, (update, host)) = self.costs.beside_the_pipe(&self.plan, &[work], &[held], |_| offload);
        pipe * (1.0 + self.costs.slow_down(self.plan.layout.world_size())) + replicas + update + host
    }
}
