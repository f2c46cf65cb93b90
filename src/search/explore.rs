//! All plans of one shape: what a rule or a bound leaves out is counted, never looked at.

use super::certificate::Counts;
use super::incumbents::Incumbents;
use super::tables::{Menu, Pipe, Tables};
use crate::cost::Costs;
use crate::cost::staged::{Block, Feeding, Mixing, Pipeline, Price, Sharding, Stages};
use crate::plan::{Offload, Plan, Recompute, ZeroStage};
use crate::space::{Rejection, Space, legal};
use crate::stack::LayerSplit;
use crate::units::{Bytes, Seconds};

/// What was found, and what was counted.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub best: Incumbents,
    pub counts: Counts,
}

impl Found {
    pub fn new(best: Incumbents) -> Self {
        Self { best, counts: Counts::default() }
    }

    pub fn merge(mut self, other: Self) -> Self {
        self.counts.add(other.counts);
        Self { best: self.best.merge(other.best), counts: self.counts }
    }
}

/// One shape's way through the tree.
pub(super) struct Explorer<'e> {
    pub costs: &'e Costs<'e>,
    pub space: &'e Space<'e>,
    pub tables: &'e Tables<'e>,
    pub known: &'e Incumbents,
}

/// A pipeline and where its plans are counted.
struct Node<'n> {
    pipe: &'n Pipe,
    stages: &'n Stages,
    block: &'n Block,
    menu: &'n Menu,
}

impl Explorer<'_> {
    /// Every plan of a shape.
    pub fn explore(&self, shape: &Plan, mixing: &Mixing, feeding: &Feeding) -> Found {
        let mut found = Found::new(self.known.beside());
        let block = Block::new(self.costs, shape, mixing, feeding);
        for layout in self.space.layouts(shape) {
            let plan = Plan { layout, ..*shape };
            let shardings = self.tables.shardings(&layout);
            let pipes = &self.tables.pipes(&plan).pipelines;
            let mut reasons = Vec::new();
            legal::batch(self.costs.problem, &plan, &mut reasons);
            legal::experts(self.costs.problem, &plan, &mut reasons);
            if let Some(reason) = reasons.first() {
                let below: u64 = pipes.iter().map(|pipe| pipe.below).sum();
                found.counts.reject(reason, below * shardings);
                continue;
            }
            for pipe in pipes {
                self.pipe(&plan, pipe, shardings, &block, &mut found);
            }
        }
        found
    }

    /// Every plan of a shape on one layout, schedule and split.
    fn pipe(&self, plan: &Plan, pipe: &Pipe, shardings: u64, block: &Block, found: &mut Found) {
        let (schedule, split) = (pipe.plan.schedule, pipe.plan.split);
        let plan = Plan { schedule, split, recompute: Recompute::None, offload: Offload::NONE, ..*plan };
        let mut reasons = Vec::new();
        legal::pipeline(self.costs.problem, &plan, &mut reasons);
        if let Some(reason) = reasons.first() {
            found.counts.reject(reason, pipe.below * shardings);
            return;
        }
        let own;
        let stages = if split == LayerSplit::Even {
            &pipe.stages
        } else {
            own = self.weighed(&plan, pipe, block);
            &own
        };
        let plain = Pipeline::new(self.costs, &plan, block, stages);
        let gathers = self.space.zero_stages(plan.layout.pp).contains(&ZeroStage::Three);
        let hopeless = |pipeline: &Pipeline, menu: Option<&Menu>, found: &Found| {
            let memory = match menu {
                Some(menu) if found.best.weighs_memory() => pipeline.least_memory(menu.replicated.iter()),
                Some(_) | None => Bytes::ZERO,
            };
            found.best.is_hopeless(&plan.layout, Price { time: pipeline.least_time(self.costs), memory })
        };
        if !gathers && hopeless(&plain, None, found) {
            found.counts.flow += pipe.below * shardings;
            return;
        }
        let menu = self.tables.menu(&plan, &pipe.stages);
        let budget = Bytes::new(found.best.wanted.budget);
        if menu.least > budget {
            let reason = Rejection::OutOfMemory { needed: menu.least, available: budget, rank: 0 };
            found.counts.reject(&reason, pipe.below * shardings);
            return;
        }
        let node = Node { pipe, stages, block, menu: &menu };
        for (recompute, shares) in &node.pipe.recomputes {
            for &activations in shares {
                let plan = Plan { recompute: *recompute, offload: Offload { activations, ..Offload::NONE }, ..plan };
                if *recompute == Recompute::None && activations == 0.0 {
                    self.shardings(&plain, hopeless(&plain, Some(&menu), found), &node, found);
                    continue;
                }
                let own;
                let stages = if matches!(recompute, Recompute::FirstLayers(_)) || split == LayerSplit::CostBalanced {
                    own = self.weighed(&plan, pipe, node.block);
                    &own
                } else {
                    node.stages
                };
                let pipeline = Pipeline::new(self.costs, &plan, block, stages);
                let over = hopeless(&pipeline, Some(&menu), found);
                self.shardings(&pipeline, over, &node, found);
            }
        }
    }

    /// The classes of ranks where chunks weigh the head, or forget their first layers.
    fn weighed(&self, plan: &Plan, pipe: &Pipe, block: &Block) -> Stages {
        let layers = self.costs.layers_of_chunks(plan, &block.shape(self.costs, plan));
        pipe.stages.with_layers(self.costs, plan, &layers)
    }

    /// Every sharding of a pipeline; `over` = its flow alone takes too long under ZeRO 0 to 2.
    fn shardings(&self, pipeline: &Pipeline, over: bool, node: &Node, found: &mut Found) {
        let menu = node.menu;
        found.counts.dominated += menu.dominated;
        let mut bubble = Bubble::Unknown;
        if over {
            found.counts.flow += menu.replicated.len() as u64;
        } else {
            for sharding in &menu.replicated {
                self.sharding(pipeline, sharding, &mut bubble, found);
            }
        }
        for sharding in &menu.sharded {
            self.sharding(pipeline, sharding, &mut Bubble::Closed, found);
        }
    }

    fn sharding(&self, pipeline: &Pipeline, sharding: &Sharding, bubble: &mut Bubble, found: &mut Found) {
        let (memory, rank) = pipeline.memory(sharding);
        if memory.get() > found.best.wanted.budget {
            let available = Bytes::new(found.best.wanted.budget);
            found.counts.reject(&Rejection::OutOfMemory { needed: memory, available, rank }, 1);
            return;
        }
        let layout = &pipeline.plan.layout;
        let bound = Price { time: pipeline.bound(self.costs, sharding), memory };
        if found.best.is_hopeless(layout, bound) {
            found.counts.sharding += 1;
            return;
        }
        let time = pipeline.played(self.costs, sharding, bubble.of(self.costs, pipeline, &mut found.counts));
        found.counts.priced += 1;
        let price = Price { time, memory };
        if !found.best.is_hopeless(layout, price) {
            found.best.offer(sharding.of(&pipeline.plan), price);
        }
    }
}

/// The bubble of a pipeline, played when it is first asked for.
enum Bubble {
    Unknown,
    Closed,
    Played(Option<Seconds>),
}

impl Bubble {
    fn of(&mut self, costs: &Costs, pipeline: &Pipeline, counts: &mut Counts) -> Option<Seconds> {
        if let Self::Unknown = self {
            *self = if pipeline.is_played() {
                counts.played += 1;
                Self::Played(costs.played_bubble(&pipeline.plan, &pipeline.shape))
            } else {
                Self::Closed
            };
        }
        match self {
            Self::Played(bubble) => *bubble,
            Self::Unknown | Self::Closed => None,
        }
    }
}
