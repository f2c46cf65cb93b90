//! The price of a plan whose stages are spelled out: replayed, under every rank's own memory.

use std::sync::OnceLock;

use super::data::{RankParameters, mirrored};
use super::layer::LayerCost;
use super::stage::{ShapeCost, Work, embedding, loss};
use super::staged::Pairs;
use super::step::StepTime;
use super::{Costs, Evaluation, Footprint};
use crate::plan::{Offload, Plan, Recompute};
use crate::schedule::alive::alive;
use crate::schedule::closed::{RankTime, bubble, busiest, exposed_sends};
use crate::schedule::ops::runs;
use crate::schedule::player::Player;
use crate::schedule::replay::StageTime;
use crate::stages::{Stage, StagedPlan};
use crate::units::{Bytes, Seconds};

/// One layer of one kind as a stage runs it, for one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerOption {
    /// What its backward computes again.
    pub recompute: Recompute,
    /// What it is spent on.
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

/// What the stages of a plan are to their ranks.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// Work of each rank, all its stages together.
    pub works: Vec<Work>,
    /// Time of each virtual stage on one micro-batch.
    pub times: Vec<StageTime>,
    /// Parameters of each rank.
    pub parameters: Vec<RankParameters>,
    /// Memory of each rank.
    pub footprints: Vec<Footprint>,
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
    /// What pairs of passes take.
    pub fn pairs(&self) -> Pairs {
        self.pairs.unwrap_or(Pairs::NONE)
    }
    /// Whether the replay can play this plan.
    pub fn plays(&self) -> bool {
        let Plan { schedule, layout, .. } = self.plan;
        layout.pp > 1 && self.micro_batches.fract() == 0.0 && runs(schedule, layout.pp, self.micro_batches as u32)
    }
    /// What plays it; none where the replay cannot.
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
    /// The same where each takes `send`.
    pub fn closed_sends_of(&self, send: Seconds) -> Seconds {
        let (plan, overlapped) = (&self.plan, self.costs.device.stack.overlap.pp);
        exposed_sends(plan.schedule, plan.layout.pp, self.micro_batches, send, overlapped)
    }

    /// One layer of `kind` that recomputes `recompute` and leaves a share of its activations on the host.
    pub fn layer(&self, kind: usize, recompute: Recompute, on_host: f64) -> LayerOption {
        let costs = self.costs;
        let model = costs.problem.model();
        let plan = Plan { recompute, ..self.plan };
        let base = self.shape.layers[kind];
        let cost = LayerCost { recompute: costs.recomputed(&model.kinds[kind], &plan, &base), ..base };
        let mut work = costs.layer_work(kind, &cost, &plan);
        let all = costs.kept_activations(kind, &plan);
        if on_host > 0.0 {
            let transfer = all * on_host / costs.device.gpu.host_link.value;
            work.host.forward += (transfer - cost.forward).or_zero();
            work.host.backward += (transfer - cost.dgrad - cost.wgrad).or_zero();
        }
        let again = match recompute {
            Recompute::Full => costs.all_activations(kind, &plan, crate::plan::Modules::default()),
            _ => Bytes::ZERO,
        };
        let time = self.time(&work);
        LayerOption { recompute, work, time, kept: all * (1.0 - on_host), on_host: all * on_host, again }
    }

    /// Work as the schedule plays it: what stays exposed of expert traffic beside compute falls on backward. In the bidirectional
    /// pipelines, as passes alone: which of them find a partner is the schedule's affair ([`Pairs`]).
    fn time(&self, work: &Work) -> StageTime {
        let (forward, backward) = (work.forward(), work.backward());
        if self.pairs.is_some() {
            let RankTime { forward, backward, wgrad } = work.alone();
            return StageTime { forward, backward, wgrad, ..StageTime::default() };
        }
        let backward = backward + self.costs.beside(work);
        StageTime { forward, backward, wgrad: work.wgrad, ..StageTime::default() }
    }

    /// What every stage waits for maxima of FP8 tensors, whatever its layers.
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

    /// Work and time of one stage.
    fn stage(&self, stage: &Stage, on_host: f64) -> (Work, StageTime, Bytes, Bytes) {
        let (mut work, mut time) = (Work::default(), StageTime::default());
        let (mut kept, mut again) = (Bytes::ZERO, Bytes::ZERO);
        let mut add = |of: &Work, played: &StageTime, times: f64| {
            work.add(of, times);
            time.forward += played.forward * times;
            time.backward += played.backward * times;
            time.wgrad += played.wgrad * times;
        };
        for mix in &stage.mixes {
            let option = self.layer(mix.kind, mix.recompute, on_host);
            add(&option.work, &option.time, f64::from(mix.layers));
            kept += option.kept * f64::from(mix.layers);
            again = again.max(option.again);
        }
        let (agreed, played) = self.maxima();
        add(&agreed, &played, 1.0);
        if stage.embedding {
            let (work, played) = self.embedding();
            add(&work, &played, 1.0);
        }
        if stage.loss {
            let (work, played) = self.loss();
            add(&work, &played, 1.0);
        }
        (work, time, kept, again)
    }

    /// Parameters of one layer of a kind on a rank.
    pub fn layer_parameters(&self, kind: usize) -> RankParameters {
        RankParameters::of_layer(self.costs.layer_parameters(kind), &self.plan.layout)
    }

    /// What a multi-token-prediction layer holds beside the layer: its projection, 2·h².
    pub fn mtp_parameters(&self) -> RankParameters {
        let hidden = f64::from(self.costs.problem.model().hidden);
        RankParameters { dense: 2.0 * hidden.powi(2) / f64::from(self.plan.layout.tp), experts: 0.0 }
    }

    /// The embedding table with learned positions, and the table of the head, which is one with it where both are tied and
    /// stand on one rank without a pipeline.
    pub fn table_parameters(&self) -> (RankParameters, RankParameters) {
        let model = self.costs.problem.model();
        let tp = f64::from(self.plan.layout.tp);
        let hidden = f64::from(model.hidden);
        let table = f64::from(model.padded_vocab(self.plan.layout.tp)) * hidden / tp;
        let shared = model.tied_embeddings && self.plan.layout.pp == 1;
        let of = |dense| RankParameters { dense, experts: 0.0 };
        (of(table + f64::from(model.learned_positions) * hidden), of(if shared { 0.0 } else { table }))
    }

    /// Bytes of weights, gradients and optimizer states of these parameters under an offload.
    pub fn state_bytes(&self, held: &RankParameters, offload: Offload) -> Bytes {
        let (weights, gradients, optimizer) = self.costs.states(held, &Plan { offload, ..self.plan });
        weights + gradients + optimizer
    }

    /// What a rank needs whatever its layers: working set and caches.
    pub fn fixed_bytes(&self, rank: u32) -> Bytes {
        self.costs.working_set(self.is_last(rank), &self.plan) + self.costs.caches(&self.plan)
    }

    fn is_last(&self, rank: u32) -> bool {
        let chunks = self.plan.layout.pp * self.plan.schedule.virtual_stages();
        self.plan.schedule.holders(chunks - 1, self.plan.layout.pp).any(|holder| holder == rank)
    }

    fn rank_of(&self, chunk: usize) -> usize {
        self.plan.schedule.rank_of(chunk as u32, self.plan.layout.pp) as usize
    }

    /// Parameters of each rank.
    pub fn rank_parameters(&self, stages: &[Stage]) -> Vec<RankParameters> {
        let mut ranks = vec![RankParameters::default(); self.plan.layout.pp as usize];
        let (table, head) = self.table_parameters();
        for (chunk, stage) in stages.iter().enumerate() {
            let rank = &mut ranks[self.rank_of(chunk)];
            let mut add = |of: RankParameters, times: f64| {
                rank.dense += of.dense * times;
                rank.experts += of.experts * times;
            };
            for mix in &stage.mixes {
                add(self.layer_parameters(mix.kind), f64::from(mix.layers));
            }
            add(self.mtp_parameters(), f64::from(stage.mtp));
            add(table, f64::from(u8::from(stage.embedding)));
            add(head, f64::from(u8::from(stage.loss)));
        }
        mirrored(&self.plan, ranks)
    }

    /// The price of stages: step time by the replay where the schedule has one (else the closed form), memory of each rank by
    /// the layers that it holds and the moments when it holds the most micro-batches.
    ///
    /// ```text
    /// T_step = T_replayed·(1 + J) + T_dp,exposed + T_opt + T_offload          specification §4.6, §4.7
    /// ```
    pub fn evaluate(&self, staged: &StagedPlan) -> StagedEvaluation {
        let Ranks { works, times, parameters, footprints } = self.ranks(staged);
        let step = self.step(&works, &times, &parameters, &staged.offload);
        let footprint = super::footprint::fullest(footprints.iter().copied());
        StagedEvaluation { evaluation: Evaluation { plan: staged.plan, step, footprint }, stages: times, footprints }
    }

    /// What each rank does and holds.
    pub(super) fn ranks(&self, staged: &StagedPlan) -> Ranks {
        let pp = self.plan.layout.pp as usize;
        let v = self.plan.schedule.virtual_stages() as usize;
        let parameters = self.rank_parameters(&staged.stages);
        let mut works = vec![Work::default(); pp];
        let mut times = Vec::with_capacity(staged.stages.len());
        let unlike = self.plan.schedule.unlike_ranks(pp as u32) as usize;
        let mut chunks = Vec::with_capacity(staged.stages.len());
        let mut kept = vec![vec![Bytes::ZERO; pp * v / unlike]; pp];
        let mut again = vec![Bytes::ZERO; pp];
        for (chunk, stage) in staged.stages.iter().enumerate() {
            let rank = self.rank_of(chunk);
            let (work, time, holds, whole) = self.stage(stage, staged.offload[rank].activations);
            works[rank].add(&work, 1.0);
            times.push(time);
            chunks.push(work);
            for holder in self.plan.schedule.holders(chunk as u32, pp as u32) {
                kept[holder as usize][chunk / unlike] += holds;
                again[holder as usize] = again[holder as usize].max(whole);
            }
        }
        if self.pairs.is_some() {
            times = self.costs.paired_times(&self.plan, &chunks);
        }
        let footprints: Vec<Footprint> = (0..pp)
            .map(|rank| {
                let offload = staged.offload[rank];
                let states = self.costs.states(&parameters[rank], &Plan { offload, ..self.plan });
                let at = |moment: &Vec<f64>| kept[rank].iter().zip(moment).map(|(&bytes, &n)| bytes * n).sum();
                let activations = self.alive[rank].iter().map(at).fold(Bytes::ZERO, Bytes::max);
                let transient = self.costs.working_set(self.is_last(rank as u32), &self.plan) + again[rank];
                Footprint::of_rank(rank as u32, states, activations, transient, self.costs.caches(&self.plan))
            })
            .collect();
        Ranks { works, times, parameters, footprints }
    }

    fn step(
        &self,
        works: &[Work],
        times: &[StageTime],
        parameters: &[RankParameters],
        offload: &[Offload],
    ) -> StepTime {
        let (plan, m) = (&self.plan, self.micro_batches);
        let (pipe, sends) = self.pipe(times);
        let (work, exposed) = self.busiest(works, times);
        let busy = StepTime::busy(&work, exposed, m);
        let mut step = StepTime { pipeline_bubble: (pipe - busy.total()).or_zero(), pp_comm: sends, ..busy };
        step.stragglers = step.total() * self.costs.slow_down(plan.layout.world_size());
        let (rest, optimizer, host) = self.beside_the_pipe(works, parameters, offload);
        StepTime { dp_comm: rest, optimizer, offload: host, ..step }
    }

    /// Exposed data-parallel traffic, the update, and the host's: what a step adds to its pipeline.
    pub(super) fn beside_the_pipe(
        &self,
        works: &[Work],
        parameters: &[RankParameters],
        offload: &[Offload],
    ) -> (Seconds, Seconds, Seconds) {
        let (costs, m) = (self.costs, self.micro_batches);
        let heaviest = super::data::heaviest(parameters);
        let windows = costs.dp_windows(&self.plan, works.iter(), m);
        let edges = costs.edges(&self.plan, &heaviest);
        let data = costs.exposed_exchange(&self.plan, edges.exchange, &windows, m) + edges.tied;
        let (mut optimizer, mut host) = (Seconds::ZERO, Seconds::ZERO);
        for (held, &offload) in parameters.iter().zip(offload) {
            let plan = Plan { offload, ..self.plan };
            let update = costs.optimizer_step(&plan, held);
            let moved = costs.host_update(&plan, held);
            if update + moved > optimizer + host {
                (optimizer, host) = (update, moved);
            }
        }
        (data, optimizer, host)
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
        let (costs, m) = (self.costs, self.micro_batches);
        let compute = super::layer::Pair { forward, backward };
        let work = Work { compute, ..Work::default() };
        let windows = costs.dp_windows(&self.plan, std::iter::once(&work), m);
        let edges = costs.edges(&self.plan, &held);
        let data = costs.exposed_exchange(&self.plan, edges.exchange, &windows, m) + edges.tied;
        let plan = Plan { offload, ..self.plan };
        let update = costs.optimizer_step(&plan, &held) + costs.host_update(&plan, &held);
        pipe * (1.0 + costs.slow_down(self.plan.layout.world_size())) + data + update
    }

    /// Times of each rank, all its stages together.
    pub fn rank_times(&self, times: &[StageTime]) -> Vec<RankTime> {
        let mut ranks = vec![RankTime::default(); self.plan.layout.pp as usize];
        for (chunk, time) in times.iter().enumerate() {
            let rank = &mut ranks[self.rank_of(chunk)];
            rank.forward += time.forward;
            rank.backward += time.backward;
            rank.wgrad += time.wgrad;
        }
        ranks
    }

    /// The rank that works longest: what it does with a micro-batch on average, and what of its expert traffic stays exposed.
    pub(super) fn busiest(&self, works: &[Work], times: &[StageTime]) -> (Work, Seconds) {
        let (plan, m) = (&self.plan, self.micro_batches);
        if self.pairs.is_some()
            && let Some(found) = self.costs.busiest_rank(plan, m as u32, works, times)
        {
            return found;
        }
        let ranks = self.rank_times(times);
        let most = (0..ranks.len()).reduce(|a, b| if ranks[b].both() > ranks[a].both() { b } else { a }).unwrap_or(0);
        (works[most], (ranks[most].both() - works[most].forward() - works[most].backward()).or_zero())
    }

    /// The pipeline of one step without its sends, and its sends.
    pub fn pipe(&self, times: &[StageTime]) -> (Seconds, Seconds) {
        let (plan, m) = (&self.plan, self.micro_batches);
        let pp = plan.layout.pp;
        let ranks = self.rank_times(times);
        let busy = busiest(&ranks);
        if pp == 1 {
            return (busy.both() * m, Seconds::ZERO);
        }
        if let Some(player) = self.player() {
            return (player.makespan(times), self.closed_sends());
        }
        (busy.both() * m + bubble(plan.schedule, &ranks, m), self.closed_sends())
    }
}
