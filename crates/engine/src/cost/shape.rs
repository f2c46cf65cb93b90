//! Costs that plans of one shape share, whatever their pipeline, replicas and sharding.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::costs::Costs;
use super::counts::{Choices, LayerChoice, StageCounts};
use super::head::Ends;
use super::layer::LayerCost;
use super::memory::LayerBytes;
use super::work::Work;
use crate::plan::Plan;
use crate::units::Seconds;

/// Costs that plans of one shape share: tp, cp and its kind, sp, ep, etp, dispatcher, and micro-batch.
#[derive(Clone, Debug)]
pub struct ShapeCost {
    /// Price of each kind of layer.
    pub layers: Vec<LayerCost>,
    /// The two ends of the model.
    pub ends: Ends,
    /// Layers under the recomputation and the offload of the plan that the shape is of.
    chosen: ChosenLayers,
}

/// One layer of each of some choices, alone or in a pipeline.
#[derive(Clone, Debug)]
struct ChosenLayers {
    choices: Choices,
    /// Whether the layers are in a pipeline, where a pass may have a floor.
    in_pipeline: bool,
    /// Work under ZeRO 0 to 2.
    works: SmallVec<[Work; 2]>,
    /// Bytes of activations.
    bytes: LayerBytes,
}

/// Plan with its layers priced by kind, and counted by rank and virtual stage.
#[derive(Clone, Copy)]
pub(super) struct CountedPlan<'c> {
    /// The plan.
    pub plan: &'c Plan,
    /// Price of each kind of layer, and of the two ends of the model.
    pub shape: &'c ShapeCost,
    /// Its layers.
    pub counts: &'c StageCounts,
}

impl ShapeCost {
    /// Shape with given prices of each kind of layer and of the two ends.
    pub(super) fn new(costs: &Costs, plan: &Plan, layers: Vec<LayerCost>, ends: Ends) -> Self {
        let choices = costs.choices(plan);
        let works = choices.iter().map(|choice| costs.work_of(plan, &layers[choice.kind], choice)).collect();
        let bytes = costs.layer_bytes(plan, &choices);
        Self { layers, ends, chosen: ChosenLayers { choices, in_pipeline: plan.layout.pp > 1, works, bytes } }
    }
}

impl Costs<'_> {
    /// Costs that plans of one shape share: each kind of layer, and the two ends of the model.
    pub fn shape(&self, plan: &Plan) -> ShapeCost {
        let layers = (0..self.problem.model().kinds.len()).map(|kind| self.layer(kind, plan)).collect();
        ShapeCost::new(self, plan, layers, self.ends(plan))
    }

    /// Work of one layer of each choice under ZeRO 0 to 2.
    pub(super) fn works<'s>(&self, plan: &Plan, shape: &'s ShapeCost, choices: &[LayerChoice]) -> Cow<'s, [Work]> {
        let ShapeCost { layers, chosen, .. } = shape;
        if chosen.choices[..] == *choices && chosen.in_pipeline == (plan.layout.pp > 1) {
            return self.with_lone_passes(plan, Cow::Borrowed(&chosen.works));
        }
        let works = choices.iter().map(|choice| self.work_of(plan, &layers[choice.kind], choice)).collect();
        self.with_lone_passes(plan, Cow::Owned(works))
    }

    /// Work of layers with the expert traffic of passes that run alone counted as exposed: [`Self::expose_alone`].
    pub(super) fn with_lone_passes<'w>(&self, plan: &Plan, mut works: Cow<'w, [Work]>) -> Cow<'w, [Work]> {
        if self.device.stack.overlap.ep > 0.0 && works.iter().any(|work| work.ep_beside > Seconds::ZERO) {
            works.to_mut().iter_mut().for_each(|work| self.expose_alone(plan, work));
        }
        works
    }

    /// Bytes of one layer of each choice.
    pub(super) fn bytes<'s>(&self, plan: &Plan, shape: &'s ShapeCost, choices: &[LayerChoice]) -> Cow<'s, LayerBytes> {
        if shape.chosen.choices[..] == *choices {
            return Cow::Borrowed(&shape.chosen.bytes);
        }
        Cow::Owned(self.layer_bytes(plan, choices))
    }
}
