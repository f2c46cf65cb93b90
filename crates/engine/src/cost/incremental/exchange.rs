//! Exchange between replicas: lower bounds over many shardings, and over the windows that hide it.

use super::block::{Layers, ROUNDING};
use super::sharding::Parameters;
use super::stages::{Stages, WorkClass};
use crate::cost::costs::Costs;
use crate::cost::data::Exchange;
use crate::cost::overlap::unhidden;
use crate::cost::windows::PARTS;
use crate::plan::{Plan, RankOrder, ZeroStage};
use crate::units::Seconds;

/// One value for each rank order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByOrder<T> {
    pipeline_outermost: T,
    data_outermost: T,
}

impl<T: Copy> ByOrder<T> {
    /// The value of `of` in each rank order.
    pub fn new(of: impl Fn(RankOrder) -> T) -> Self {
        Self { pipeline_outermost: of(RankOrder::PipelineOutermost), data_outermost: of(RankOrder::DataOutermost) }
    }

    /// Value in a rank order.
    pub const fn of(&self, order: RankOrder) -> T {
        match order {
            RankOrder::PipelineOutermost => self.pipeline_outermost,
            RankOrder::DataOutermost => self.data_outermost,
        }
    }

    /// Values of both rank orders.
    pub const fn both(&self) -> [T; 2] {
        [self.pipeline_outermost, self.data_outermost]
    }
}

impl Exchange {
    /// Sum, part by part.
    pub(in crate::cost) fn plus(self, other: Self) -> Self {
        Self { reduce: self.reduce + other.reduce, gather: self.gather + other.gather }
    }

    /// Minimum, part by part.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self { reduce: self.reduce.min(other.reduce), gather: self.gather.min(other.gather) }
    }
}

impl Costs<'_> {
    /// Whether a bound can derive the windows that hide the exchange between replicas from the least time of a flow: only where
    /// expert traffic runs beside compute (`windows_in_flow`).
    pub fn may_know_windows(&self) -> bool {
        let overlap = &self.device.stack.overlap;
        overlap.dp && overlap.dp_sharded && overlap.ep > 0.0 && self.problem.model().is_moe()
    }
}

impl Parameters {
    /// Exchange of dense parameters under a plan's sharding of ZeRO 0 to 2.
    pub fn dense_exchange(&self, costs: &Costs, plan: &Plan) -> Exchange {
        costs.exchange_beside(Exchange::default(), plan, &self.heaviest)
    }

    /// Exchange of all parameters under a plan's sharding of ZeRO 0 to 2, given that of the dense ones.
    pub fn exchange(&self, costs: &Costs, plan: &Plan, dense: Exchange) -> Exchange {
        dense.plus(costs.exchange_of_experts(plan, &self.heaviest))
    }

    /// Lower bound of the time of an exchange of dense parameters that no flow hides, under a plan's sharding of ZeRO 0 to 2.
    pub fn least_dense_exchange(costs: &Costs, plan: &Plan, exchange: Exchange) -> Seconds {
        costs.least_exchange(plan, plan.zero, exchange) * ROUNDING
    }

    /// Lower bound of the time at the ends of a step that no flow hides, under a plan's sharding of ZeRO 0 to 2, without the update
    /// and the exchange of dense parameters.
    pub fn least_ends(&self, costs: &Costs, plan: &Plan) -> Seconds {
        let exchange = costs.exchange_of_experts(plan, &self.heaviest);
        (costs.least_exchange(plan, plan.zero, exchange) + costs.tied_ends(plan)) * ROUNDING
    }
}

/// Lower bounds, in each rank order, of the exchange between replicas before overlap, over many shardings under ZeRO 0 to 2.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastExchange(ByOrder<OfOrder>);

/// Lower bounds in one rank order; `None` where no sharding is of the kind.
#[derive(Clone, Copy, Debug, Default)]
struct OfOrder {
    /// Under ZeRO 0, which gathers nothing.
    whole: Option<Exchange>,
    /// Under ZeRO 1 and 2.
    sharded: Option<Exchange>,
}

impl OfOrder {
    fn lesser(self, other: Self) -> Self {
        let least = |a: Option<Exchange>, b: Option<Exchange>| a.into_iter().chain(b).reduce(Exchange::lesser);
        Self { whole: least(self.whole, other.whole), sharded: least(self.sharded, other.sharded) }
    }

    fn each(self) -> impl Iterator<Item = Exchange> {
        self.whole.into_iter().chain(self.sharded)
    }
}

impl LeastExchange {
    /// Exchange of one sharding of a ZeRO stage below 3.
    pub fn new(zero: ZeroStage, order: RankOrder, exchange: Exchange) -> Self {
        let is_whole = zero == ZeroStage::Zero;
        let own = OfOrder { whole: is_whole.then_some(exchange), sharded: (!is_whole).then_some(exchange) };
        Self(ByOrder::new(|known| if known == order { own } else { OfOrder::default() }))
    }

    /// Lower bounds over the shardings of both.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self(ByOrder::new(|order| self.0.of(order).lesser(other.0.of(order))))
    }

    /// Whether any sharding has a bound.
    fn is_known(self) -> bool {
        self.0.both().into_iter().any(|of_order| of_order.each().next().is_some())
    }
}

/// Upper bounds of the windows: times of compute behind which the exchange between replicas hides.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongestWindows {
    /// Time of backward passes, behind which gradients hide: W_B.
    pub(super) backward: Seconds,
    /// Time of forward passes, behind which parameters hide: W_F.
    pub(super) forward: Seconds,
}

/// Lower bound of the exchange between replicas that is exposed because windows are short, over all shardings under ZeRO 0 to 2;
/// the part that is exposed under endless windows is counted elsewhere:
///
/// ```text
/// min over shardings of  h(reduce, W_B) − h(reduce, ∞) + h(gather, W_F) − h(gather, ∞)          h = `unhidden`
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unhidden {
    exchange: LeastExchange,
    /// σ.
    contention: f64,
    /// Upper bound of both windows together, as a share of the flow; `None` where it is not known.
    windows: Option<f64>,
}

impl Unhidden {
    /// Bound for a plan with these layers on a pipeline; it adds nothing where the exchange or the windows are not known.
    pub fn new(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages, exchange: LeastExchange) -> Self {
        if !exchange.is_known() || !costs.may_know_windows() {
            return Self::default();
        }
        let windows = windows_in_flow(costs, plan, layers, stages);
        Self { exchange, contention: costs.device.gpu.contention.value, windows }
    }

    /// Upper bounds of the windows of every plan whose flow takes `flow`, where they are known. They hold for the least flow: a
    /// longer one hides no more than the time by which it is longer.
    pub fn windows_of(&self, flow: Seconds) -> Option<LongestWindows> {
        let of_share =
            |share| LongestWindows { backward: flow * (share * 2.0 / PARTS), forward: flow * (share / PARTS) };
        self.windows.map(of_share)
    }

    /// Lower bound of the time of a step with this flow and these exposed sends in each rank order, without the exchange that is
    /// exposed under endless windows. `slower` = factor of stragglers, `windows` = upper bounds where they are known.
    pub fn least_step(
        &self,
        flow: Seconds,
        sends: ByOrder<Seconds>,
        slower: f64,
        windows: Option<LongestWindows>,
    ) -> Seconds {
        let Some(LongestWindows { backward, forward }) = windows.filter(|_| self.exchange.is_known()) else {
            let [first, second] = sends.both();
            return (flow + first.min(second)) * slower;
        };
        let beyond = |time: Seconds, window: Seconds| unhidden(time, window, self.contention) - time * self.contention;
        let of = |exchange: Exchange| beyond(exchange.reduce, backward) + beyond(exchange.gather, forward);
        let of_order = |(sends, exchange): (Seconds, OfOrder)| {
            let least = exchange.each().map(of).reduce(Seconds::min)?;
            Some((flow + sends) * slower + least.or_zero() * ROUNDING)
        };
        sends
            .both()
            .into_iter()
            .zip(self.exchange.0.both())
            .filter_map(of_order)
            .reduce(Seconds::min)
            .unwrap_or_default()
    }
}

/// Upper bound of both windows of the exchange between replicas together, as a share of a plan's flow; `None` where it is not
/// known.
///
/// ```text
/// W_B = 2/3·w·x,  W_F = 1/3·w·x,  x = max over ranks of (F + B + E)  ≤  T/m          W_B + W_F  ≤  w/m·T
/// ```
///
/// w = passes that a window spans, T = flow of the m micro-batches, in which each rank works m·(F + B + E). Where expert traffic
/// runs beside compute, the windows are one and two thirds of a rank's passes; where it does not on some rank, the bound is not
/// known. As w ≤ m and the hidden part grows no faster than a window, a longer flow hides no more than the time by which it is
/// longer: a bound with the least flow holds for all.
fn windows_in_flow(costs: &Costs, plan: &Plan, layers: &Layers, stages: &Stages) -> Option<f64> {
    let (works, micro_batches) = (&layers.works(plan.layout.pp).layers, costs.micro_batches(plan));
    let is_beside =
        |class: &WorkClass| works.iter().zip(&class.layers).any(|(work, &n)| n > 0.0 && work.ep_beside > Seconds::ZERO);
    let is_known =
        micro_batches >= 1.0 && !plan.schedule.is_bidirectional() && stages.work_classes.iter().all(is_beside);
    is_known.then(|| costs.passes_of_windows(plan, micro_batches) / micro_batches)
}
