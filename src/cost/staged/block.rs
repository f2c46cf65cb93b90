//! Layers and ends of the model, priced once for all pipelines, shardings and recomputations.

use crate::cost::head::Ends;
use crate::cost::layer::LayerCost;
use crate::cost::{Costs, ShapeCost};
use crate::plan::{Plan, Recompute};
use crate::units::Seconds;

/// The token-mixing part of every kind of layer, and the two ends: tp, sp, cp and its kind, micro-batch.
#[derive(Clone, Debug)]
pub struct Mixing {
    layers: Vec<LayerCost>,
    ends: Ends,
    /// All layers and the head, for one micro-batch.
    busy: Seconds,
}

/// The feed-forward part of every kind of layer: tp, sp, tokens, ep, etp, dispatcher.
#[derive(Clone, Debug)]
pub struct Feeding {
    layers: Vec<LayerCost>,
    busy: Seconds,
}

/// Layers of both parts, without recomputation.
#[derive(Clone, Debug)]
pub struct Block {
    pub(super) plain: ShapeCost,
}

impl Mixing {
    /// Prices the part.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        let layers = each_kind(costs, |kind| costs.mixing(kind, plan));
        let ends = costs.ends(plan);
        let halved = if costs.is_lora() { 0.5 } else { 1.0 };
        let head = ends.head.forward + ends.head_comm.forward + (ends.head.backward + ends.head_comm.backward) * halved;
        Self { busy: busy(costs, &layers) + head, layers, ends }
    }
}

impl Feeding {
    /// Prices the part.
    pub fn new(costs: &Costs, plan: &Plan) -> Self {
        let layers = each_kind(costs, |kind| costs.feeding(kind, plan));
        Self { busy: busy(costs, &layers), layers }
    }
}

fn each_kind(costs: &Costs, price: impl Fn(usize) -> LayerCost) -> Vec<LayerCost> {
    (0..costs.problem.model().kinds.len()).map(price).collect()
}

/// What one micro-batch spends in a part of all layers at least: no host floor, and no traffic that may run beside.
fn busy(costs: &Costs, layers: &[LayerCost]) -> Seconds {
    let beside = costs.device.stack.overlap.ep > 0.0;
    let wgrad = if costs.is_lora() { 0.0 } else { 1.0 };
    costs
        .problem
        .model()
        .kind_counts()
        .iter()
        .zip(layers)
        .map(|(&count, cost)| {
            let exchange = if beside { Seconds::ZERO } else { cost.ep.sum() };
            let kernels = cost.forward + cost.dgrad + cost.wgrad * wgrad;
            (kernels + cost.tp.sum() + cost.cp.sum() + exchange) * f64::from(count)
        })
        .sum()
}

/// A step time that no plan with these layers can beat on `gpus` GPUs, whatever its pipeline, replicas, sharding and
/// recomputation:
///
/// ```text
/// T ≥ (1 + J)·B·t·c/(N·b)·(Σ_layers (F + B) + head)          specification §8.1, layer bound
/// ```
///
/// Every micro-batch visits every layer and the head once, and the N/(t·c) device groups share them at best evenly. Host
/// floors and traffic that may run beside compute are left out; `J` is that of `fewest` GPUs.
pub fn layer_bound(costs: &Costs, plan: &Plan, mixing: &Mixing, feeding: &Feeding, fewest: u32) -> Seconds {
    let groups = f64::from(costs.problem.cluster().gpus) / f64::from(plan.layout.tp * plan.layout.cp);
    let micro_batches = f64::from(costs.problem.workload().global_batch) / f64::from(plan.micro_batch);
    let slow_down = 1.0 + costs.slow_down(fewest);
    (mixing.busy + feeding.busy) * (micro_batches / groups * slow_down * ROUNDING)
}

/// Sums in another order differ in the last digits: bounds give way by so much.
pub(super) const ROUNDING: f64 = 1.0 - 1e-12;

impl Block {
    /// Joins both parts; of `plan` only what they depend on is read.
    pub fn new(costs: &Costs, plan: &Plan, mixing: &Mixing, feeding: &Feeding) -> Self {
        let plan = Plan { recompute: Recompute::None, ..*plan };
        let layers = (0..mixing.layers.len())
            .map(|kind| costs.joined(kind, &plan, &mixing.layers[kind], &feeding.layers[kind]))
            .collect();
        Self { plain: ShapeCost { layers, ends: mixing.ends } }
    }

    /// Both parts priced for a single plan.
    pub fn of(costs: &Costs, plan: &Plan) -> Self {
        Self::new(costs, plan, &Mixing::new(costs, plan), &Feeding::new(costs, plan))
    }

    /// The layers under a plan's recomputation.
    pub fn shape(&self, costs: &Costs, plan: &Plan) -> ShapeCost {
        let kinds = &costs.problem.model().kinds;
        let layers = self
            .plain
            .layers
            .iter()
            .zip(kinds)
            .map(|(cost, layer)| LayerCost { recompute: costs.recomputed(layer, plan, cost), ..*cost })
            .collect();
        ShapeCost { layers, ends: self.plain.ends }
    }
}
