//! Launches of a layer's kernels by the host.

use serde::{Deserialize, Serialize};

use crate::gpu::Host;
use crate::units::Seconds;

/// Kernel launches of one layer and micro-batch, with their host times (specification §2.9).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Launches {
    /// Number of launches in forward.
    pub forward: f64,
    /// Number of launches in backward.
    pub backward: f64,
    /// Launches per local expert in forward, in bf16; backward has twice as many.
    #[serde(default)]
    pub per_expert_bf16: f64,
    /// Launches per local expert in forward, in narrower formats.
    #[serde(default)]
    pub per_expert_narrow: f64,
    /// Weight of the experts' launches as a floor of their own: the host reads the token counts back before it can launch
    /// them, so they cannot be queued while earlier kernels run. Zero lets all launches of the layer run ahead.
    #[serde(default)]
    pub expert_wait: f64,
    /// Host time of a whole layer with experts but for their own launches, as a multiple of the launches counted for it: routing and
    /// dispatch are many small operators. A lower bound of the layer's time; zero for none.
    #[serde(default)]
    pub expert_layer: f64,
    /// Host time of a layer's replay from CUDA graphs of modules in either pass, in launches: inputs are copied, the graphs launched, their
    /// results and the gradients of their parameters handed over.
    #[serde(default)]
    pub graph_replay: f64,
    /// Host time of a whole layer without experts, as a multiple of the launches counted for it: its modules are Python, which
    /// takes as long however few tokens their kernels have. A lower bound of the layer's time; zero for none.
    #[serde(default)]
    pub plain_layer: f64,
    /// Host time of a layer under tensor parallelism, as a multiple of the launches counted for it: operators on PyTorch's sharded
    /// tensors (`DTensor`) are dispatched in Python. A lower bound of the layer's time; zero for none.
    #[serde(default)]
    pub sharded_layer: f64,
    /// Host time of a layer under FSDP, forward and backward without recomputation: hooks gather and free its weights and scatter its
    /// gradients in Python, which takes as long on any device. A lower bound of the layer's time; zero for none.
    #[serde(default)]
    pub fsdp_layer: Seconds,
    /// Whether each of those launches adds a kernel gap on the device, since an expert's casts are separate kernels.
    #[serde(default)]
    pub expert_gaps: bool,
    /// Host time of the hooks that gather and free the weights of each module under ZeRO 3, beside the launches; none
    /// where not stated.
    pub module_hooks: Option<ModuleHooks>,
    /// Host time of one launch on x86; the unit of what modules in Python take, which take as long on Grace.
    pub x86: Seconds,
    /// Host time of one launch on Grace.
    pub grace: Seconds,
}

/// Host time of the hooks of one module in one pass. Hooks are Python, so the same on any device. Source: [deepspeed-hooks].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleHooks {
    /// A module with a matrix of its own, forward.
    pub forward: Seconds,
    /// A module with a matrix of its own, backward, without a second forward pass.
    pub backward: Seconds,
    /// An expert of a mixture whose weights are gathered together, forward.
    pub expert_forward: Seconds,
    /// An expert of a mixture whose weights are gathered together, backward, without a second forward pass.
    pub expert_backward: Seconds,
}

impl Launches {
    /// Host time of one launch on this host processor.
    pub const fn host_time(&self, host: Host) -> Seconds {
        match host {
            Host::X86 => self.x86,
            Host::Grace => self.grace,
        }
    }

    /// Host time of what modules in Python take, in launches, whatever the host processor.
    pub fn python_time(&self, launches: f64) -> Seconds {
        self.x86 * launches
    }
}
