//! The program: layers in order, the recomputations of each, and the memory of each stage and rank.

use std::rc::Rc;

use super::device::DeviceLayers;
use super::frontier::{Frontier, RecomputePoint};
use super::options::Freedom;
use super::split::{StageLoad, StageParameters, StageSeconds, StagedSplit};
use meshwright_engine::cost::Stager;
use meshwright_engine::cost::data::TableParameters;
use meshwright_engine::plan::Recompute;
use meshwright_engine::schedule::replay::StageTime;
use meshwright_engine::schedule::simulator::Simulator;
use meshwright_engine::stages::{Mix, Stage, StagedPlan, kinds_in_order};

/// Program of one plan: the layers of each stage and their recomputation.
///
/// Items are the model's layers in order, multi-token-prediction layers behind them. Stage `S` holds items `a..b`.
///
/// ```text
/// minimise   simulated time of the stages
/// s.t.       cuts ascend from 0 to n                                        every layer has a stage
///            b > a, but for stages with an end of the model                 no stage is empty
///            states(r) + Σ_S in_flight_S·kept(S) + working set ≤ room(r)    every rank fits
/// ```
pub struct StageProgram<'a> {
    /// Costs on the first device; on the others only times and kept activations differ.
    pub stager: &'a Stager<'a>,
    /// Costs on each device.
    pub stagers: &'a [Stager<'a>],
    /// The device of each rank; the first where it ends.
    of_rank: &'a [usize],
    /// Layers on each device.
    devices: Vec<DeviceLayers>,
    /// Choices in addition to the number of layers.
    pub freedom: Freedom,
    /// Kind of each item.
    pub items: Vec<usize>,
    /// Number of decoder layers among the items.
    pub decoder_layers: usize,
    /// Number of virtual stages.
    pub chunks: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Items of each kind among the first `i`.
    counts: Vec<Vec<u32>>,
    /// State bytes of the first `i` items.
    states: Vec<f64>,
    /// Parameters of the first `i` items.
    parameters: Vec<StageParameters>,
    /// Parameters of the embedding.
    embedding: f64,
    /// Parameters of the output head.
    head: f64,
    /// The rank of each stage; of two that hold it, the first.
    rank_of: Vec<usize>,
    /// Most micro-batches of each stage in flight at one of its rank's fullest moments.
    pub most_in_flight: Vec<f64>,
    /// Share of a stage's work that a rank does: all, or half where two ranks hold it.
    pub share: f64,
    /// Bytes that a rank may fill with layers, by rank: room less working set, caches and the model's ends.
    pub room: Vec<f64>,
    /// Sends of a step in seconds, equal for all splits.
    pub sends: f64,
    /// Upper bound on sends between heterogeneous devices, seconds for each micro-batch.
    pub late: f64,
}

impl<'a> StageProgram<'a> {
    /// Program of a stager's plan; `recompute` is the plan's own recomputation.
    pub fn new(stager: &'a Stager<'a>, recompute: Recompute, freedom: Freedom) -> Self {
        Self::over(std::slice::from_ref(stager), &[], recompute, freedom, stager.closed_sends().get(), 0.0)
    }

    /// Program over heterogeneous devices: `stagers` evaluate the plan on each, `of_rank` gives the device of each
    /// rank. A step's sends take `sends`, and those between devices add at most `late` for each micro-batch.
    pub fn over(
        stagers: &'a [Stager<'a>],
        of_rank: &'a [usize],
        recompute: Recompute,
        freedom: Freedom,
        sends: f64,
        late: f64,
    ) -> Self {
        let stager = &stagers[0];
        let costs = stager.costs();
        let model = costs.problem.model();
        let plan = stager.plan();
        let items = kinds_in_order(model);
        // Where two ranks hold each stage, a rank does and owns half of what its stages ask for, in two copies.
        let share = f64::from(plan.pipeline().distinct_ranks()) / f64::from(plan.layout.pp);
        let state = |of| stager.state_bytes(&of, freedom.offload).get() * share;
        let by_kind: Vec<f64> = (0..model.kinds.len()).map(|kind| state(stager.layer_parameters(kind))).collect();
        let mtp = state(stager.mtp_parameters());
        let decoder_layers = model.layers() as usize;
        let mut counts = vec![vec![0; model.kinds.len()]];
        let (mut states, mut parameters) = (vec![0.0], vec![StageParameters::default()]);
        for (at, &kind) in items.iter().enumerate() {
            let mut next = counts[at].clone();
            next[kind] += 1;
            counts.push(next);
            states.push(states[at] + by_kind[kind] + if at >= decoder_layers { mtp } else { 0.0 });
            let one = stager.layer_parameters(kind);
            let projection = if at >= decoder_layers { stager.mtp_parameters().dense } else { 0.0 };
            let layer = StageParameters { dense: (one.dense + projection) * share, experts: one.experts * share };
            parameters.push(parameters[at] + layer);
        }
        let ranks = plan.pipeline().distinct_ranks() as usize;
        let chunks = plan.pipeline().chunks() as usize;
        let TableParameters { embedding, head } = stager.table_parameters();
        let mut room: Vec<f64> = (0..ranks)
            .map(|rank| {
                let own = &stagers[of_rank.get(rank).copied().unwrap_or_default()];
                own.costs().tensor_room(own.plan()).get() - own.fixed_bytes(rank as u32).get()
            })
            .collect();
        let first_holder = |chunk: usize| plan.pipeline().holders(chunk as u32).min().unwrap_or_default() as usize;
        let rank_of: Vec<usize> = (0..chunks).map(first_holder).collect();
        let most = |chunk: usize| {
            let moments = stager.peak_moments()[rank_of[chunk]].iter();
            moments.map(|moment| moment[chunk / ranks]).fold(0.0, f64::max)
        };
        let most_in_flight = (0..chunks).map(most).collect();
        room[rank_of[0]] -= state(embedding);
        room[rank_of[chunks - 1]] -= state(head);
        let devices =
            stagers.iter().map(|stager| DeviceLayers::new(stager, &items, recompute, freedom, share)).collect();
        Self {
            stager,
            stagers,
            of_rank,
            devices,
            freedom,
            decoder_layers,
            chunks,
            ranks,
            counts,
            states,
            parameters,
            embedding: embedding.dense * share,
            head: head.dense * share,
            rank_of,
            most_in_flight,
            share,
            room,
            sends,
            late,
            items,
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Rank of a stage; of two that hold it, the first.
    pub fn rank_of(&self, chunk: usize) -> usize {
        self.rank_of[chunk]
    }

    /// Whether a stage may hold items `a..b`: only the stages with an end of the model may be empty.
    pub fn may_hold(&self, chunk: usize, a: usize, b: usize) -> bool {
        b > a || chunk == 0 || chunk + 1 == self.chunks
    }

    /// State bytes of items `a..b`.
    pub fn states(&self, a: usize, b: usize) -> f64 {
        self.states[b] - self.states[a]
    }

    /// Parameters of stage `chunk` with items `a..b`.
    pub fn parameters(&self, chunk: usize, a: usize, b: usize) -> StageParameters {
        let (from, to) = (self.parameters[a], self.parameters[b]);
        let embedding = if chunk == 0 { self.embedding } else { 0.0 };
        let head = if chunk + 1 == self.chunks { self.head } else { 0.0 };
        StageParameters { dense: to.dense - from.dense + embedding + head, experts: to.experts - from.experts }
    }

    /// Index of the device that a stage is on.
    pub fn device_of(&self, chunk: usize) -> usize {
        self.of_rank.get(self.rank_of(chunk)).copied().unwrap_or_default()
    }

    fn device(&self, chunk: usize) -> &DeviceLayers {
        &self.devices[self.device_of(chunk)]
    }

    /// Number of kinds of layer.
    pub fn layer_kinds(&self) -> usize {
        self.devices[0].options.len()
    }

    /// Time that one layer of each kind occupies its rank, on the device where it is the fastest.
    pub fn least_layers(&self) -> Vec<f64> {
        let time_on = |device: &DeviceLayers, kind: usize| {
            let StageTime { forward, backward, wgrad, .. } = device.options[kind][0].time;
            let (forward, backward, wgrad) = (forward.get(), backward.get(), wgrad.get());
            self.busy(StageSeconds { forward, backward, wgrad, traffic: device.traffic[kind] })
        };
        let least = |kind| self.devices.iter().map(|device| time_on(device, kind)).fold(f64::INFINITY, f64::min);
        (0..self.layer_kinds()).map(least).collect()
    }

    /// Mean time that passes and expert traffic occupy their rank, a lower bound.
    pub fn busy(&self, StageSeconds { forward, backward, wgrad: _, traffic }: StageSeconds) -> f64 {
        let factors = self.stager.pairs().on_average();
        factors.passes * (forward + backward) + factors.traffic * traffic
    }

    /// Mean time that one more second of a pass occupies its rank, a lower bound.
    pub fn slower(&self) -> f64 {
        self.stager.pairs().on_average().passes
    }

    /// Times of stage `chunk` with items `a..b` under their fastest options, passes alone.
    pub fn times(&self, chunk: usize, a: usize, b: usize) -> StageSeconds {
        self.times_on(self.device(chunk), chunk, a, b)
    }

    fn times_on(&self, device: &DeviceLayers, chunk: usize, a: usize, b: usize) -> StageSeconds {
        device.fastest[b] - device.fastest[a] + device.time_without_layers(chunk, self.chunks)
    }

    /// Times of stage `chunk` with items `a..b`, each on the device where it is the longest.
    pub fn longest(&self, chunk: usize, a: usize, b: usize) -> StageSeconds {
        let each = self.devices.iter().map(|device| self.times_on(device, chunk, a, b));
        each.fold(StageSeconds::default(), StageSeconds::max)
    }

    /// Lower bound on the time of the other stages of a stage's rank, for one micro-batch.
    pub fn least_beside(&self, chunk: usize) -> f64 {
        let shortest = self.least_layers().into_iter().fold(f64::INFINITY, f64::min);
        let others = (0..self.chunks).filter(|&other| other != chunk && self.rank_of(other) == self.rank_of(chunk));
        others
            .map(|other| self.fastest(other, 0, 0).busy + if self.may_hold(other, 0, 0) { 0.0 } else { shortest })
            .sum()
    }

    /// Stage `chunk` with items `a..b`, every layer under its fastest option, whether that fits or not.
    pub fn fastest(&self, chunk: usize, a: usize, b: usize) -> StageLoad {
        let times = self.times(chunk, a, b);
        let StageSeconds { forward, backward, wgrad, traffic } = times;
        let device = self.device(chunk);
        StageLoad {
            forward,
            backward,
            wgrad,
            traffic,
            busy: self.busy(times),
            kept: device.kept[b] - device.kept[a],
            working_set: self.working_set_of_fastest(device, a, b),
            slack: 0.0,
            point: None,
        }
    }

    /// Time of items `a..b` alone under their fastest options, on the device of a stage.
    pub fn layers_time(&self, chunk: usize, a: usize, b: usize) -> f64 {
        let fastest = &self.device(chunk).fastest;
        let (from, to) = (fastest[a], fastest[b]);
        to.forward - from.forward + to.backward - from.backward
    }

    fn working_set_of_fastest(&self, device: &DeviceLayers, a: usize, b: usize) -> f64 {
        let held = |kind: &usize| self.counts[b][*kind] > self.counts[a][*kind];
        let kinds = (0..device.options.len()).filter(held);
        kinds.map(|kind| device.options[kind][0].working_set.get()).fold(0.0, f64::max)
    }

    /// Items of each kind among `a..b`.
    pub fn counts_between(&self, a: usize, b: usize) -> impl Iterator<Item = u32> + '_ {
        self.counts[b].iter().zip(&self.counts[a]).map(|(to, from)| to - from)
    }

    /// Undominated mixes of recomputation of items `a..b` on a stage.
    pub fn frontier(&self, chunk: usize, a: usize, b: usize) -> Rc<Frontier> {
        self.device(chunk).frontier_of(&self.counts_between(a, b).collect::<Vec<u32>>())
    }

    /// Stage `chunk` with items `a..b` under one mix of the frontier.
    pub fn load(&self, chunk: usize, a: usize, b: usize, at: usize, frontier: &Frontier) -> StageLoad {
        let base = self.fastest(chunk, a, b);
        let point = &frontier.points[at];
        StageLoad {
            backward: base.backward + point.extra,
            // With `both() - slack` nothing is lost of the slack either.
            busy: base.busy + self.slower() * point.extra - (self.slower() - 1.0) * frontier.slack,
            kept: point.kept,
            working_set: point.working_set,
            slack: frontier.slack,
            point: Some(at),
            ..base
        }
    }

    /// The fastest mix with which items `a..b` fit alone on the rank of stage `chunk`; `None` if none does.
    pub fn fitting(&self, chunk: usize, a: usize, b: usize) -> Option<StageLoad> {
        let room = self.room[self.rank_of(chunk)] - self.states(a, b);
        let most = self.most_in_flight[chunk];
        let base = self.fastest(chunk, a, b);
        if base.kept * most + base.working_set <= room {
            return Some(base);
        }
        if room < 0.0 {
            return None;
        }
        let frontier = self.frontier(chunk, a, b);
        let fits = |point: &RecomputePoint| point.kept * most + point.working_set <= room;
        let at = frontier.points.iter().position(fits)?;
        Some(self.load(chunk, a, b, at, &frontier))
    }

    /// Bytes by which items `a..b` on stage `chunk` alone exceed the room of its rank, under their smallest mix.
    pub fn least_excess(&self, chunk: usize, a: usize, b: usize) -> f64 {
        let most = self.most_in_flight[chunk];
        let least = self.frontier(chunk, a, b).least_bytes(most);
        self.states(a, b) + least - self.room[self.rank_of(chunk)]
    }

    /// The staged plan of a split.
    pub fn staged(&self, StagedSplit { cuts, loads }: &StagedSplit) -> StagedPlan {
        let last = self.chunks - 1;
        let stages = (0..self.chunks)
            .map(|chunk| {
                let (a, b) = (cuts[chunk], cuts[chunk + 1]);
                let decoders = b.min(self.decoder_layers).saturating_sub(a);
                Stage {
                    from: a as u32,
                    layers: decoders as u32,
                    mtp: (b - a - decoders) as u32,
                    embedding: chunk == 0,
                    loss: chunk == last,
                    mixes: self.mixes(chunk, a, b, loads[chunk].point),
                }
            })
            .collect();
        StagedPlan {
            plan: self.stager.plan().clone(),
            stages,
            offload: vec![self.freedom.offload; self.stager.plan().layout.pp as usize],
        }
    }

    /// Recomputation of items `a..b` at a point of their frontier.
    fn mixes(&self, chunk: usize, a: usize, b: usize, point: Option<usize>) -> Vec<Mix> {
        let device = self.device(chunk);
        let mut mixes: Vec<Mix> = Vec::new();
        let mut add = |kind: usize, option: usize| {
            let recompute = device.options[kind][option].recompute;
            match mixes.iter_mut().find(|mix| mix.kind == kind && mix.recompute == recompute) {
                Some(mix) => mix.layers += 1,
                None => mixes.push(Mix { kind, recompute, layers: 1 }),
            }
        };
        let mut counts: Vec<u32> = self.counts_between(a, b).collect();
        match point {
            None => self.items[a..b].iter().for_each(|&kind| add(kind, 0)),
            Some(mut at) => {
                while let Some(kind) = counts.iter().rposition(|&n| n > 0) {
                    let point = device.frontier_of(&counts).points[at];
                    add(kind, point.option);
                    at = point.before;
                    counts[kind] -= 1;
                }
            }
        }
        mixes.sort();
        mixes
    }

    /// Simulator of the schedule; none where it has no list of operations, or two ranks share the work of a stage.
    pub fn simulator(&self) -> Option<&Simulator> {
        if self.share < 1.0 { None } else { self.stager.simulator() }
    }

    /// Whether the work of ranks is the only bound on a pipeline: no list of operations, or two ranks share a stage.
    pub fn is_closed(&self) -> bool {
        !self.stager.is_simulated() || self.share < 1.0
    }
}
