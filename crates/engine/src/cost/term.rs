//! Names of the terms of a step and of the tenants of memory, each with the function that computes it.

use std::fmt;

use serde::{Serialize, Serializer};

/// The function behind a number, and the section of `docs/specification.md` that it implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Path of the source file from the root of the repository.
    pub file: &'static str,
    /// Name of the function in that file.
    pub function: &'static str,
    /// Section of the specification.
    pub section: &'static str,
}

/// Declares an enum of names: its members in order, their keys and their origins, each written once.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$member:meta])* $variant:ident = $key:literal, $file:literal, $function:literal, $section:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$member])* $variant,)*
        }

        impl $name {
            /// All members, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Key in JSON and CSV.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$variant => $key,)*
                }
            }

            /// The function that computes it.
            pub const fn origin(self) -> Origin {
                match self {
                    $(Self::$variant => Origin {
                        file: concat!("crates/engine/src/", $file),
                        function: $function,
                        section: $section,
                    },)*
                }
            }
        }

        impl fmt::Display for $name {
            /// Its name in words: `tp comm`.
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.pad(&self.key().replace('_', " "))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.key())
            }
        }
    };
}

names! {
    /// A term of the step time.
    Term {
        /// Kernels of the model on the busiest rank.
        Compute = "compute", "cost/layer.rs", "layer", "2";
        /// Activations computed again in the backward pass.
        Recompute = "recompute", "cost/recompute.rs", "recomputed", "6.4";
        /// Exposed tensor-parallel collectives.
        TpComm = "tp_comm", "cost/exchange.rs", "tensor_parallel", "3.6";
        /// Exposed context-parallel exchange.
        CpComm = "cp_comm", "cost/exchange.rs", "context_parallel", "3.7";
        /// Exposed expert dispatch and combine.
        EpComm = "ep_comm", "cost/exchange.rs", "expert_exchange", "3.5";
        /// All-reduces of FP8 maxima under delayed scaling.
        AmaxComm = "amax_comm", "cost/maxima.rs", "maxima", "2.5";
        /// Kernels waiting for the host to launch them.
        Host = "host", "cost/stage.rs", "host_wait", "2.9";
        /// Waiting for other pipeline stages.
        PipelineBubble = "pipeline_bubble", "schedule/closed.rs", "bubble", "4.6";
        /// Exposed sends between pipeline stages.
        PpComm = "pp_comm", "cost/pipeline.rs", "stage_send", "3.8";
        /// Waiting for the slowest of many nodes.
        Stragglers = "stragglers", "cost/straggler.rs", "slow_down", "7.5";
        /// Exposed exchange of gradients and parameters between replicas.
        DpComm = "dp_comm", "cost/data.rs", "exposed_exchange", "3.9";
        /// Update of the parameters.
        Optimizer = "optimizer", "cost/optimizer.rs", "optimizer_step", "2.7";
        /// Exposed traffic with the host.
        Offload = "offload", "cost/offload.rs", "host_update", "6.8";
    }
}

names! {
    /// A tenant of a device's memory.
    Tenant {
        /// Weights that the GEMMs read.
        Weights = "weights", "cost/memory.rs", "states", "6.1";
        /// Gradients.
        Gradients = "gradients", "cost/memory.rs", "states", "6.1";
        /// Master weights and moments.
        Optimizer = "optimizer", "cost/memory.rs", "states", "6.1";
        /// Tensors saved by the forward for the backward pass.
        Activations = "activations", "cost/memory.rs", "peak_activations", "6.5";
        /// Working set: logits, a recomputed layer, gathered weights.
        Transient = "transient", "cost/memory.rs", "working_set", "6.5";
        /// Caches of the libraries (Transformer Engine's weight-gradient buffers).
        Caches = "caches", "cost/memory.rs", "caches", "6.5";
        /// Memory lost to fragmentation of the allocator.
        Fragmentation = "fragmentation", "cost/footprint.rs", "of_rank", "6.5";
        /// CUDA context, workspaces and NCCL buffers.
        Context = "context", "cost/footprint.rs", "of_rank", "6.5";
    }
}
