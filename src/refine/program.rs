//! The program: items in order, what each may recompute, and what each stage and rank may hold.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::cost::Stager;
use crate::cost::by_stage::LayerOption;
use crate::plan::{Modules, Offload, Recompute};
use crate::schedule::player::Player;
use crate::schedule::replay::StageTime;
use crate::stages::{Mix, Stage, StagedPlan, kinds_in_order};

use super::frontier::{Frontier, Point};

/// What the program may change beside the number of layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Freedom {
    /// Choose what each layer recomputes; otherwise all do what the plan says.
    pub recompute: bool,
    /// Share of activations and of optimizer states left on the host, the same for every rank.
    pub offload: Offload,
}

impl Default for Freedom {
    fn default() -> Self {
        Self { recompute: true, offload: Offload::NONE }
    }
}

/// The program for one plan: which layers lie on which stage, and what they recompute.
///
/// Items are the model's layers in order, multi-token-prediction layers behind them. Stage `S` holds items `a..b`.
///
/// ```text
/// minimise   replayed time of the stages
/// s.t.       cuts ascend from 0 to n                                       every layer has a stage
///            b > a, but for stages with an end of the model                no stage is empty
///            states(r) + Σ_S alive_S·kept(S) + working set ≤ room(r)       every rank fits
/// ```
pub struct Program<'a> {
    /// Prices.
    pub stager: &'a Stager<'a>,
    /// What may change.
    pub freedom: Freedom,
    /// Kind of each item.
    pub items: Vec<usize>,
    /// Decoder layers among them.
    pub decoder_layers: usize,
    /// Virtual stages.
    pub chunks: usize,
    /// Ranks.
    pub ranks: usize,
    /// Options of each kind, the fastest first; none dominates another.
    pub options: Vec<Vec<LayerOption>>,
    /// Items of each kind among the first `i`.
    counts: Vec<Vec<u32>>,
    /// State bytes of the first `i` items.
    states: Vec<f64>,
    /// Dense and expert parameters of the first `i` items.
    parameters: Vec<[f64; 2]>,
    /// Of the embedding, and of the head.
    tables: [f64; 2],
    /// Forward, backward, weight-gradient time and expert traffic that pairs may hide, of the first `i` items under their fastest
    /// option.
    fastest: Vec<[f64; 4]>,
    /// Bytes kept by the first `i` items under their fastest option, and the largest working set.
    kept: Vec<f64>,
    /// What every stage waits for, whatever its layers.
    every: StageTime,
    embedding: StageTime,
    loss: StageTime,
    /// What a rank does of a stage's work: all, or half where two ranks hold it.
    pub share: f64,
    /// Bytes that a rank may fill with layers, by rank: room less working set, caches and the model's ends.
    pub room: Vec<f64>,
    frontiers: RefCell<BTreeMap<Vec<u32>, Rc<Frontier>>>,
}

/// One stage as the program sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Forward, alone.
    pub forward: f64,
    /// Backward with what is recomputed, alone.
    pub backward: f64,
    /// Weight-gradient part.
    pub wgrad: f64,
    /// Expert traffic that pairs may hide.
    pub traffic: f64,
    /// What a micro-batch takes of its rank, on average, at the least.
    pub busy: f64,
    /// Bytes kept for one micro-batch.
    pub kept: f64,
    /// Working set of whole recomputed layers.
    pub again: f64,
    /// How much less the backward might be had the frontier not been thinned.
    pub slack: f64,
    /// Its point in the frontier; none for the fastest options.
    pub point: Option<usize>,
}

impl Load {
    /// What a micro-batch takes of its rank, on average, at the least.
    pub fn both(&self) -> f64 {
        self.busy
    }
}

impl<'a> Program<'a> {
    /// Writes the program for the plan that a stager prices; `recompute` is what it recomputes on its own.
    pub fn new(stager: &'a Stager<'a>, recompute: Recompute, freedom: Freedom) -> Self {
        let costs = stager.costs();
        let model = costs.problem.model();
        let plan = stager.plan();
        let items = kinds_in_order(model);
        // Where two ranks hold each stage, a rank does and owns half of what its stages ask for, in two copies.
        let share = f64::from(plan.schedule.unlike_ranks(plan.layout.pp)) / f64::from(plan.layout.pp);
        let shared = |time: StageTime| StageTime {
            forward: time.forward * share,
            backward: time.backward * share,
            wgrad: time.wgrad * share,
            ..time
        };
        let option = |kind: usize, recompute| {
            let option = stager.layer(kind, recompute, freedom.offload.activations);
            LayerOption { time: shared(option.time), ..option }
        };
        let options: Vec<Vec<LayerOption>> = (0..model.kinds.len())
            .map(|kind| {
                let list = if freedom.recompute { recomputes(recompute) } else { vec![plain(recompute)] };
                undominated(list.into_iter().map(|r| option(kind, r)).collect())
            })
            .collect();
        let state = |of| stager.state_bytes(&of, freedom.offload).get() * share;
        let by_kind: Vec<f64> = (0..model.kinds.len()).map(|kind| state(stager.layer_parameters(kind))).collect();
        let mtp = state(stager.mtp_parameters());
        let decoder_layers = model.layers() as usize;
        let mut counts = vec![vec![0; model.kinds.len()]];
        let (mut states, mut kept, mut fastest) = (vec![0.0], vec![0.0], vec![[0.0; 4]]);
        let mut parameters = vec![[0.0; 2]];
        for (at, &kind) in items.iter().enumerate() {
            let mut next = counts[at].clone();
            next[kind] += 1;
            counts.push(next);
            states.push(states[at] + by_kind[kind] + if at >= decoder_layers { mtp } else { 0.0 });
            let (one, [dense, experts]) = (stager.layer_parameters(kind), parameters[at]);
            let projection = if at >= decoder_layers { stager.mtp_parameters().dense } else { 0.0 };
            parameters.push([dense + (one.dense + projection) * share, experts + one.experts * share]);
            let option = &options[kind][0];
            kept.push(kept[at] + option.kept.get());
            let [f, b, w, e] = fastest[at];
            let time = option.time;
            let more = traffic(stager, option) * share;
            fastest.push([f + time.forward.get(), b + time.backward.get(), w + time.wgrad.get(), e + more]);
        }
        let ranks = plan.schedule.unlike_ranks(plan.layout.pp) as usize;
        let chunks = (plan.layout.pp * plan.schedule.virtual_stages()) as usize;
        let (table, head) = stager.table_parameters();
        let mut room: Vec<f64> =
            (0..ranks).map(|rank| costs.tensor_room().get() - stager.fixed_bytes(rank as u32).get()).collect();
        let rank_of =
            |chunk: usize| plan.schedule.holders(chunk as u32, plan.layout.pp).min().unwrap_or_default() as usize;
        room[rank_of(0)] -= state(table);
        room[rank_of(chunks - 1)] -= state(head);
        Self {
            stager,
            freedom,
            decoder_layers,
            chunks,
            ranks,
            options,
            counts,
            states,
            parameters,
            tables: [table.dense * share, head.dense * share],
            fastest,
            kept,
            every: shared(stager.maxima().1),
            embedding: shared(stager.embedding().1),
            loss: shared(stager.loss().1),
            share,
            room,
            frontiers: RefCell::new(BTreeMap::new()),
            items,
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The rank of a stage; of two that hold it, the first.
    pub fn rank_of(&self, chunk: usize) -> usize {
        let plan = self.stager.plan();
        plan.schedule.holders(chunk as u32, plan.layout.pp).min().unwrap_or_default() as usize
    }

    /// Whether a stage may hold items `a..b`: only the stages with an end of the model may be empty.
    pub fn may_hold(&self, chunk: usize, a: usize, b: usize) -> bool {
        b > a || chunk == 0 || chunk + 1 == self.chunks
    }

    /// Micro-batches of a stage's chunk that its rank holds at each of its fullest moments.
    pub fn alive(&self, chunk: usize) -> impl Iterator<Item = f64> + '_ {
        let local = chunk / self.ranks;
        self.stager.alive()[self.rank_of(chunk)].iter().map(move |moment| moment[local])
    }

    /// State bytes of items `a..b`.
    pub fn states(&self, a: usize, b: usize) -> f64 {
        self.states[b] - self.states[a]
    }

    /// Dense and expert parameters of stage `chunk` with items `a..b`.
    pub fn parameters(&self, chunk: usize, a: usize, b: usize) -> [f64; 2] {
        let [from, to] = [self.parameters[a], self.parameters[b]];
        let first = if chunk == 0 { self.tables[0] } else { 0.0 };
        let last = if chunk + 1 == self.chunks { self.tables[1] } else { 0.0 };
        [to[0] - from[0] + first + last, to[1] - from[1]]
    }

    /// Of a stage, whatever its layers: maxima, embedding and loss; forward, backward, weight gradients.
    fn ends(&self, chunk: usize) -> [f64; 3] {
        let mut sum = [0.0; 3];
        for (here, time) in [(true, &self.every), (chunk == 0, &self.embedding), (chunk + 1 == self.chunks, &self.loss)]
        {
            if here {
                sum[0] += time.forward.get();
                sum[1] += time.backward.get();
                sum[2] += time.wgrad.get();
            }
        }
        sum
    }

    /// What passes and expert traffic take of their rank, on average, at the least.
    pub fn busy(&self, [forward, backward, _, traffic]: [f64; 4]) -> f64 {
        let (passes, hidden) = self.stager.pairs().on_average();
        passes * (forward + backward) + hidden * traffic
    }

    /// What a second more of a pass takes of its rank, on average, at the least.
    pub fn slower(&self) -> f64 {
        self.stager.pairs().on_average().0
    }

    /// What a layer of a kind takes of its rank under its fastest option.
    pub fn layer_busy(&self, kind: usize) -> f64 {
        let option = &self.options[kind][0];
        let StageTime { forward, backward, wgrad, .. } = option.time;
        self.busy([forward.get(), backward.get(), wgrad.get(), traffic(self.stager, option) * self.share])
    }

    /// Forward, backward and weight-gradient time of stage `chunk` with items `a..b` under their fastest options, passes alone, and
    /// expert traffic that pairs may hide.
    pub fn times(&self, chunk: usize, a: usize, b: usize) -> [f64; 4] {
        let (ends, from, to) = (self.ends(chunk), self.fastest[a], self.fastest[b]);
        [to[0] - from[0] + ends[0], to[1] - from[1] + ends[1], to[2] - from[2] + ends[2], to[3] - from[3]]
    }

    /// The least that the other stages of a stage's rank take, for one micro-batch.
    pub fn least_beside(&self, chunk: usize) -> f64 {
        let shortest = (0..self.options.len()).map(|kind| self.layer_busy(kind)).fold(f64::INFINITY, f64::min);
        let others = (0..self.chunks).filter(|&other| other != chunk && self.rank_of(other) == self.rank_of(chunk));
        others
            .map(|other| self.fastest(other, 0, 0).busy + if self.may_hold(other, 0, 0) { 0.0 } else { shortest })
            .sum()
    }

    /// Stage `chunk` with items `a..b`, every layer under its fastest option, whether that fits or not.
    pub fn fastest(&self, chunk: usize, a: usize, b: usize) -> Load {
        let times = self.times(chunk, a, b);
        let [forward, backward, wgrad, traffic] = times;
        Load {
            forward,
            backward,
            wgrad,
            traffic,
            busy: self.busy(times),
            kept: self.kept[b] - self.kept[a],
            again: self.again_of_fastest(a, b),
            slack: 0.0,
            point: None,
        }
    }

    /// Time of items `a..b` alone under their fastest options.
    pub fn layers_time(&self, a: usize, b: usize) -> f64 {
        let (from, to) = (self.fastest[a], self.fastest[b]);
        to[0] - from[0] + to[1] - from[1]
    }

    fn again_of_fastest(&self, a: usize, b: usize) -> f64 {
        let held = |kind: &usize| self.counts[b][*kind] > self.counts[a][*kind];
        let kinds = (0..self.options.len()).filter(held);
        kinds.map(|kind| self.options[kind][0].again.get()).fold(0.0, f64::max)
    }

    /// Items of each kind among `a..b`.
    pub fn counts_between(&self, a: usize, b: usize) -> impl Iterator<Item = u32> + '_ {
        self.counts[b].iter().zip(&self.counts[a]).map(|(to, from)| to - from)
    }

    /// Mixes of recomputation of items `a..b`: none slower and larger than another.
    pub fn frontier(&self, a: usize, b: usize) -> Rc<Frontier> {
        self.frontier_of(&self.counts_between(a, b).collect::<Vec<u32>>())
    }

    fn frontier_of(&self, counts: &[u32]) -> Rc<Frontier> {
        if let Some(known) = self.frontiers.borrow().get(counts) {
            return Rc::clone(known);
        }
        let made = match counts.iter().rposition(|&n| n > 0) {
            None => Frontier::empty(),
            Some(kind) => {
                let mut fewer = counts.to_vec();
                fewer[kind] -= 1;
                self.frontier_of(&fewer).with(kind, &self.options[kind])
            }
        };
        let made = Rc::new(made);
        self.frontiers.borrow_mut().insert(counts.to_vec(), Rc::clone(&made));
        made
    }

    /// Stage `chunk` with items `a..b` under one mix of the frontier.
    pub fn load(&self, chunk: usize, a: usize, b: usize, at: usize, frontier: &Frontier) -> Load {
        let base = self.fastest(chunk, a, b);
        let point = &frontier.points[at];
        Load {
            backward: base.backward + point.extra,
            // With `both() - slack` nothing is lost of the slack either.
            busy: base.busy + self.slower() * point.extra - (self.slower() - 1.0) * frontier.slack,
            kept: point.kept,
            again: point.again,
            slack: frontier.slack,
            point: Some(at),
            ..base
        }
    }

    /// The fastest mix with which items `a..b` fit alone on the rank of stage `chunk`; `None` if none does.
    pub fn fitting(&self, chunk: usize, a: usize, b: usize) -> Option<Load> {
        let room = self.room[self.rank_of(chunk)] - self.states(a, b);
        let most = self.alive(chunk).fold(0.0, f64::max);
        let base = self.fastest(chunk, a, b);
        if base.kept * most + base.again <= room {
            return Some(base);
        }
        if room < 0.0 {
            return None;
        }
        let frontier = self.frontier(a, b);
        let fits = |point: &Point| point.kept * most + point.again <= room;
        let at = frontier.points.iter().position(fits)?;
        Some(self.load(chunk, a, b, at, &frontier))
    }

    /// Bytes over its room that a rank is with items `a..b` on stage `chunk` alone, under its smallest mix.
    pub fn least_excess(&self, chunk: usize, a: usize, b: usize) -> f64 {
        let most = self.alive(chunk).fold(0.0, f64::max);
        let frontier = self.frontier(a, b);
        let least = frontier.points.iter().map(|point| point.kept * most + point.again).fold(f64::INFINITY, f64::min);
        let least = if frontier.points.is_empty() { 0.0 } else { least };
        self.states(a, b) + least - self.room[self.rank_of(chunk)]
    }

    /// The staged plan of these cuts (`chunks + 1` of them) and points of the frontiers.
    pub fn staged(&self, cuts: &[usize], points: &[Option<usize>]) -> StagedPlan {
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
                    mixes: self.mixes(a, b, points[chunk]),
                }
            })
            .collect();
        StagedPlan {
            plan: *self.stager.plan(),
            stages,
            offload: vec![self.freedom.offload; self.stager.plan().layout.pp as usize],
        }
    }

    /// The options that a point of the frontier of `a..b` stands for.
    pub fn mixes(&self, a: usize, b: usize, point: Option<usize>) -> Vec<Mix> {
        let mut mixes: Vec<Mix> = Vec::new();
        let mut add = |kind: usize, option: usize| {
            let recompute = self.options[kind][option].recompute;
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
                    let point = self.frontier_of(&counts).points[at];
                    add(kind, point.option);
                    at = point.before;
                    counts[kind] -= 1;
                }
            }
        }
        mixes.sort();
        mixes
    }

    /// What plays the stages; none where nothing is played, or two ranks share the work of a stage.
    pub fn player(&self) -> Option<&Player> {
        if self.share < 1.0 { None } else { self.stager.player() }
    }

    /// What a step takes whatever the split: its sends.
    pub fn sends(&self) -> f64 {
        self.stager.closed_sends().get()
    }

    /// Whether chains are told by what ranks work alone: where nothing is played, and where two ranks share a stage.
    pub fn is_closed(&self) -> bool {
        !self.stager.plays() || self.share < 1.0
    }
}

/// Expert traffic of a layer that pairs may hide.
fn traffic(stager: &Stager, option: &LayerOption) -> f64 {
    if stager.plan().schedule.is_bidirectional() { option.work.ep_beside.get() } else { 0.0 }
}

/// Recomputations of one layer: every set of modules, the whole layer, and what the plan does by itself.
fn recomputes(own: Recompute) -> Vec<Recompute> {
    let mut list = vec![Recompute::None, Recompute::Full];
    for bits in 1_u32..64 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        list.push(Recompute::Selective(Modules {
            core_attn: on(0),
            layernorm: on(1),
            act: on(2),
            mla_up_proj: on(3),
            mlp: on(4),
            moe: on(5),
        }));
    }
    if !list.contains(&plain(own)) {
        list.push(plain(own));
    }
    list
}

/// What one layer does under a plan's recomputation; the first layers of a chunk are spelled out elsewhere.
const fn plain(recompute: Recompute) -> Recompute {
    match recompute {
        Recompute::FirstLayers(_) => Recompute::None,
        other => other,
    }
}

/// Options of which none is as slow and as large as another, the fastest first; of equals, the first listed stays.
fn undominated(mut all: Vec<LayerOption>) -> Vec<LayerOption> {
    let key = |o: &LayerOption| (o.time.backward.get(), o.kept.get(), o.again.get());
    all.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
    });
    let mut kept: Vec<LayerOption> = Vec::new();
    for option in all {
        let (_, bytes, again) = key(&option);
        if !kept.iter().any(|known| known.kept.get() <= bytes && known.again.get() <= again) {
            kept.push(option);
        }
    }
    kept
}
