//! Low-rank adapters of a layer's projections, as their operators run them.

use super::costs::Costs;
use super::layer::LayerCost;
use crate::model::attention::Widths;
use crate::stack::AdapterTraffic;
use crate::units::Bytes;
use crate::workload::Adaptation;

/// Part of a layer that may have adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adapted {
    /// Attention, or a recurrence in its place.
    Mixer,
    /// Dense or shared MLP.
    Mlp,
}

impl Costs<'_> {
    /// Adds the operators of the adapters of a part's projections, given by their widths on this rank.
    ///
    /// ```text
    /// T = n·(i·in + o·out)/(BW·e_mem) + k·t_op          i, o, k: `stack.adapters`, forward and backward; specification §2.11
    /// ```
    pub(super) fn adapters(
        &self,
        of: Adapted,
        tokens: f64,
        projections: impl IntoIterator<Item = Widths>,
        cost: &mut LayerCost,
    ) {
        let is_adapted = match self.problem.workload().adaptation {
            Adaptation::Full => false,
            Adaptation::LoraAttention => of == Adapted::Mixer,
            Adaptation::Lora => true,
        };
        let (true, Some(traffic)) = (is_adapted, &self.device.stack.adapters) else { return };
        let AdapterTraffic { input_forward, input_backward, output_forward, output_backward, .. } = *traffic;
        for Widths { input, output } in projections {
            let time = |bytes: f64, kernels: f64| self.device.stream_fused(Bytes::new(tokens * bytes), kernels);
            cost.forward += time(input_forward * input + output_forward * output, traffic.kernels_forward);
            cost.dgrad += time(input_backward * input + output_backward * output, traffic.kernels_backward);
        }
    }
}
