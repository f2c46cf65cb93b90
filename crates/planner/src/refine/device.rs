//! Layers on one kind of device, under every recomputation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Add;
use std::rc::Rc;

use super::frontier::Frontier;
use super::options::Freedom;
use super::split::StageSeconds;
use meshwright_engine::ascending::sort_by_numbers;
use meshwright_engine::cost::Stager;
use meshwright_engine::cost::by_stage::LayerOption;
use meshwright_engine::plan::{Modules, Recompute};
use meshwright_engine::schedule::replay::StageTime;

/// Times and bytes of layers on one kind of device.
pub struct DeviceLayers {
    /// Options of each kind, the fastest first; none dominates another.
    pub options: Vec<Vec<LayerOption>>,
    /// Seconds of expert traffic of a layer of each kind that a pair of passes may hide; 0 under schedules without pairs.
    pub traffic: Vec<f64>,
    /// Times of the first `i` items under their fastest option.
    pub fastest: Vec<StageSeconds>,
    /// Bytes kept by the first `i` items under their fastest option, and the largest working set.
    pub kept: Vec<f64>,
    /// Time of every stage that does not depend on its layers: all-reduces of FP8 maxima.
    every: StageTime,
    embedding: StageTime,
    loss: StageTime,
    frontiers: RefCell<BTreeMap<Vec<u32>, Rc<Frontier>>>,
}

impl DeviceLayers {
    /// Layers of a model whose items are of these kinds. `share` = share of a stage's work that falls on one rank: ½ where two
    /// ranks hold each stage.
    pub fn new(stager: &Stager, items: &[usize], recompute: Recompute, freedom: Freedom, share: f64) -> Self {
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
        let options: Vec<Vec<LayerOption>> = (0..stager.costs().problem.model().kinds.len())
            .map(|kind| {
                let list = if freedom.recompute { recomputes(recompute) } else { vec![plain(recompute)] };
                undominated(list.into_iter().map(|r| option(kind, r)).collect())
            })
            .collect();
        let paired = stager.plan().schedule.is_bidirectional();
        let hidden = |option: &LayerOption| if paired { option.work.ep_beside.get() * share } else { 0.0 };
        let traffic: Vec<f64> = options.iter().map(|options| hidden(&options[0])).collect();
        let (mut kept, mut fastest) = (vec![0.0], vec![StageSeconds::default()]);
        for (at, &kind) in items.iter().enumerate() {
            let option = &options[kind][0];
            kept.push(kept[at] + option.kept.get());
            fastest.push(fastest[at] + seconds(&option.time, traffic[kind]));
        }
        Self {
            options,
            traffic,
            fastest,
            kept,
            every: shared(stager.maxima()),
            embedding: shared(stager.embedding()),
            loss: shared(stager.loss()),
            frontiers: RefCell::new(BTreeMap::new()),
        }
    }

    /// Times of stage `chunk` of `chunks` without its layers: FP8 maxima, the embedding of the first and the loss of the last.
    pub fn time_without_layers(&self, chunk: usize, chunks: usize) -> StageSeconds {
        let (is_first, is_last) = (chunk == 0, chunk + 1 == chunks);
        let parts = [(true, &self.every), (is_first, &self.embedding), (is_last, &self.loss)];
        let here = parts.into_iter().filter(|(is_here, _)| *is_here).map(|(_, time)| seconds(time, 0.0));
        here.fold(StageSeconds::default(), StageSeconds::add)
    }

    /// Pareto front of recomputations in time and memory, for a number of layers of each kind.
    pub fn frontier_of(&self, counts: &[u32]) -> Rc<Frontier> {
        if let Some(known) = self.frontiers.borrow().get(counts) {
            return Rc::clone(known);
        }
        let made = match counts.iter().rposition(|&n| n > 0) {
            None => Frontier::empty(),
            Some(kind) => {
                let mut fewer = counts.to_vec();
                fewer[kind] -= 1;
                self.frontier_of(&fewer).with(&self.options[kind])
            }
        };
        let made = Rc::new(made);
        self.frontiers.borrow_mut().insert(counts.to_vec(), Rc::clone(&made));
        made
    }
}

/// Times of the passes in seconds, with `traffic` seconds of expert traffic that pairs may hide.
fn seconds(StageTime { forward, backward, wgrad, .. }: &StageTime, traffic: f64) -> StageSeconds {
    StageSeconds { forward: forward.get(), backward: backward.get(), wgrad: wgrad.get(), traffic }
}

/// Number of modules that can be recomputed by themselves: the fields of [`Modules`].
const MODULES: u32 = 6;

/// Recomputations of one layer: every set of modules, the whole layer, and the plan's own.
fn recomputes(own: Recompute) -> Vec<Recompute> {
    let mut list = vec![Recompute::None, Recompute::Full];
    for bits in 1_u32..1 << MODULES {
        let has = |bit: u32| bits >> bit & 1 == 1;
        list.push(Recompute::Selective(Modules {
            core_attn: has(0),
            layernorm: has(1),
            act: has(2),
            mla_up_proj: has(3),
            mlp: has(4),
            moe: has(5),
        }));
    }
    if !list.contains(&plain(own)) {
        list.push(plain(own));
    }
    list
}

/// Recomputation that a plan states for each layer; none where it states a number of first layers, which the options cover.
const fn plain(recompute: Recompute) -> Recompute {
    match recompute {
        Recompute::FirstLayers(_) => Recompute::None,
        other => other,
    }
}

/// Pareto front of options in backward time, kept bytes and working set, the fastest first; of equals, the first listed stays.
fn undominated(mut all: Vec<LayerOption>) -> Vec<LayerOption> {
    let key = |o: &LayerOption| [o.time.backward.get(), o.kept.get(), o.working_set.get()];
    sort_by_numbers(&mut all, key);
    let mut kept: Vec<LayerOption> = Vec::new();
    for option in all {
        let [_, bytes, working_set] = key(&option);
        if !kept.iter().any(|known| known.kept.get() <= bytes && known.working_set.get() <= working_set) {
            kept.push(option);
        }
    }
    kept
}
