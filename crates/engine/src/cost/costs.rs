//! Context of all prices: a problem with its device, its links and its layers counted by kind.

use std::sync::Arc;

use super::flows::Flows;
use super::straggler;
use crate::collective::{Fabric, Observer, RankMapping};
use crate::kernel::{Device, Meter};
use crate::model::parameters::LayerParameters;
use crate::model::{Ffn, Moe};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::schedule::peaks::Peaks;
use crate::schedule::replays::Replays;

/// Context of all prices: the problem, its device and fabric, and layers counted by kind.
#[derive(Clone, Debug)]
pub struct Costs<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// The device under the problem's software.
    pub device: Device<'a>,
    /// The links between devices, and the times of collectives over them.
    pub fabric: Fabric<'a>,
    /// Layers of each kind among the first `l`, for l = 0 ..= layers, row after row.
    counts: Vec<u32>,
    /// Parameters of a layer of each kind.
    pub(super) parameters: Vec<LayerParameters>,
    /// Highest kind of any layer, whose weights are the last that ZeRO 3 scatters.
    pub(super) highest_kind: usize,
    /// Whether plans are imported runs whose split is not known.
    pub(super) splits_unknown: bool,
    /// Share by which stragglers lengthen a step on all GPUs of the cluster.
    pub(super) slow_down_of_all: f64,
    /// Micro-batches in flight at the peaks of ranks.
    pub(super) peaks: Peaks,
    /// Simulated flows of long pipelines.
    pub(super) flows: Flows,
}

impl<'a> Costs<'a> {
    /// Prepares a problem for pricing.
    pub fn new(problem: &'a Problem) -> Self {
        let model = problem.model();
        let (kinds, gpus) = (model.kinds.len(), problem.cluster().gpus);
        let mut counts = vec![0; kinds];
        for &kind in &model.order {
            counts.extend_from_within(counts.len() - kinds..);
            let row = counts.len() - kinds;
            counts[row + kind] += 1;
        }
        let parameters = (0..model.kinds.len()).map(|kind| model.layer_parameters(kind)).collect();
        let device = Device {
            gpu: &problem.cluster().gpu,
            stack: problem.stack(),
            format: problem.workload().format,
            host: problem.cluster().host,
            meter: None,
        };
        Self {
            problem,
            device,
            fabric: Fabric::new(problem.cluster(), problem.stack()),
            counts,
            parameters,
            highest_kind: model.order.iter().copied().max().unwrap_or_default(),
            splits_unknown: false,
            slow_down_of_all: straggler::slow_down(gpus, problem.stack().jitter),
            peaks: Peaks::default(),
            flows: Flows::default(),
        }
    }

    /// Costs that share the simulators and peaks of schedules in `replays`, where many plans have a few schedules.
    #[must_use]
    pub fn replaying(mut self, replays: &Arc<Replays>) -> Self {
        self.peaks = replays.peaks.clone();
        self.flows = Flows::with_replays(replays);
        self
    }

    /// Costs with `meter` observing every kernel call.
    #[must_use]
    pub fn metered(mut self, meter: &'a dyn Meter) -> Self {
        self.device.meter = Some(meter);
        self
    }

    /// Costs that report every transfer between ranks to `observer`.
    pub(super) fn observed<'o>(&'o self, observer: &'o dyn Observer) -> Costs<'o> {
        let mut costs: Costs<'o> = self.clone();
        costs.fabric.observer = Some(observer);
        costs
    }

    /// Costs of ranks that are mapped to units in a given way.
    #[must_use]
    pub fn mapped<'s>(&'s self, mapping: &'s RankMapping) -> Costs<'s> {
        let mut costs: Costs<'s> = self.clone();
        costs.fabric.mapping = Some(mapping);
        costs
    }

    /// Parameters of a layer of a kind.
    pub(crate) fn layer_parameters(&self, kind: usize) -> &LayerParameters {
        &self.parameters[kind]
    }

    /// Layers of each kind in the whole model.
    pub(crate) fn kind_counts(&self) -> &[u32] {
        self.among_first(self.problem.model().layers())
    }

    /// Layers of each kind among layers `from..to`.
    pub(crate) fn kinds_between(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        self.among_first(from).iter().zip(self.among_first(to)).map(|(before, all)| all - before)
    }

    /// Layers of each kind among the first `layers`.
    fn among_first(&self, layers: u32) -> &[u32] {
        let kinds = self.parameters.len();
        &self.counts[layers as usize * kinds..][..kinds]
    }

    /// Tokens of one micro-batch on one context-parallel rank.
    pub fn tokens(&self, plan: &Plan) -> f64 {
        plan.tokens(self.problem.workload().seq_len)
    }

    /// Tokens of one micro-batch that a rank sends to their experts: those of its tensor-parallel group, `n`, or its share
    /// `n·t_e/t` of them where experts are split over fewer ranks than the rest of the layer.
    pub fn owned_tokens(&self, plan: &Plan) -> f64 {
        let (tp, expert_tp) = (plan.layout.tp, plan.layout.etp);
        if tp > expert_tp { self.tokens(plan) * f64::from(expert_tp) / f64::from(tp) } else { self.tokens(plan) }
    }

    /// Load of the busiest rank of an expert group relative to the mean, ξ of specification §2.8; 1 where every rank
    /// has all experts.
    pub(super) fn imbalance(&self, plan: &Plan) -> f64 {
        if plan.layout.ep > 1 { self.problem.workload().imbalance } else { 1.0 }
    }

    /// Copies of tokens that the busiest rank of an expert group receives.
    pub(super) fn most_received(&self, moe: &Moe, plan: &Plan) -> f64 {
        self.owned_tokens(plan) * f64::from(moe.top_k) * self.imbalance(plan)
    }

    /// Whether the weights of the model are frozen, and adapters are trained.
    pub fn is_lora(&self) -> bool {
        self.problem.workload().adaptation.is_lora()
    }

    /// Micro-batches of one step.
    pub(crate) fn micro_batches(&self, plan: &Plan) -> f64 {
        plan.micro_batches(self.problem.workload().global_batch)
    }

    /// Intermediate width of the dense or shared MLP of each kind of layer that has one: tensor parallelism must divide it.
    pub fn ffn_widths(&self) -> impl Iterator<Item = u32> + '_ {
        self.problem.model().kinds.iter().filter_map(|layer| match &layer.ffn {
            Ffn::Dense(mlp) => Some(mlp.intermediate),
            Ffn::Moe(moe) => moe.shared().map(|mlp| mlp.intermediate),
            Ffn::None => None,
        })
    }
}
