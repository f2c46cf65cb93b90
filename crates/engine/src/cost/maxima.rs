//! All-reduce of the maxima of FP8 tensors (amax), from which delayed scaling sets their scales.

use super::costs::Costs;
use super::layer::PassTimes;
use crate::collective::Group;
use crate::gpu::{Collective, Format};
use crate::kernel::PerPass;
use crate::plan::Plan;
use crate::stack::AmaxReduction;
use crate::units::Bytes;

/// Number of maxima that a GEMM keeps: of input, weight and output forward; of the gradients of output and input backward.
/// Source: [transformer-engine] `pytorch/fp8.py`, `pytorch/module/base.py`.
const MAXIMA_OF_GEMM: PerPass = PerPass::new(3.0, 2.0);
/// Number of GEMMs of a layer that keep them: attention's two projections and the two of its feed-forward part.
const GEMMS: f64 = 4.0;
/// Bytes of a maximum, in fp32.
const MAXIMUM_BYTES: f64 = 4.0;

impl Costs<'_> {
    /// Wait of a chunk in one micro-batch for the maxima of FP8 tensors; `None` if the stack does not reduce them, or the
    /// format has no delayed scaling.
    ///
    /// ```text
    /// T = ar(S)          forward S = 4·3·4·L/p bytes, backward 4·2·4·L/p: latency, nearly all of it
    /// ```
    ///
    /// An FP8 region is the layers of one chunk ([megatron-lm] `transformer_block.py`). When the outermost one ends, forward
    /// and backward, its maxima are reduced, and the stream waits ([transformer-engine] `pytorch/fp8.py`). The group is that
    /// of tp, cp and dp, or of tp and cp alone; its ranks count as neighbours in either rank order.
    pub(super) fn maxima(&self, plan: &Plan) -> Option<PassTimes> {
        if self.device.format != Format::Fp8 {
            return None;
        }
        let layout = &plan.layout;
        let ranks = match self.device.stack.amax_reduction {
            AmaxReduction::None => return None,
            AmaxReduction::Tp => layout.tp * layout.cp,
            AmaxReduction::All => layout.tp * layout.cp * layout.dp,
        };
        let layers = f64::from(self.problem.model().layers()) / f64::from(layout.pp);
        let reduced = |of_gemm: f64| {
            let payload = Bytes::new(MAXIMUM_BYTES * of_gemm * GEMMS * layers);
            self.fabric.time(Collective::AllReduce, payload, Group { ranks, stride: 1 }, 1.0)
        };
        Some(PassTimes { forward: reduced(MAXIMA_OF_GEMM.forward), backward: reduced(MAXIMA_OF_GEMM.backward) })
    }
}
