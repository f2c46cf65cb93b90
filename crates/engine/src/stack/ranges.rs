//! Allowed ranges of a stack's values.

use super::{AdapterTraffic, Launches, MemoryUse, ModuleHooks, Overlap, Quirks, Stack};
use crate::range::{self, OutOfRange};
use crate::units::Bytes;

impl Stack {
    /// Checks every number against the range of its kind.
    pub(super) fn check_ranges(&self) -> Result<(), OutOfRange> {
        range::check([
            ("traffic", self.traffic, range::POSITIVE_FACTOR),
            ("casts", self.casts, range::FACTOR),
            ("expert_casts", self.expert_casts.unwrap_or_default(), range::FACTOR),
            ("expert_streams", self.expert_streams.unwrap_or_default(), range::FACTOR),
            ("cast_passes", self.cast_passes, range::POSITIVE_FACTOR),
            ("window_edge", self.window_edge, range::WIDTH),
            ("wide_heads_forward", self.wide_heads_forward, range::POSITIVE_FACTOR),
            ("wide_heads_backward", self.wide_heads_backward, range::POSITIVE_FACTOR),
            ("accumulate_exposed", self.accumulate_exposed, range::SHARE),
            ("permute_traffic", self.permute_traffic, range::POSITIVE_FACTOR),
            ("expert_bias", self.expert_bias, range::FACTOR),
            ("jitter", self.jitter, range::SHARE),
            ("reduce_bytes", self.reduce_bytes, range::SENT_ELEMENT),
            ("gather_bytes", self.gather_bytes, range::SENT_ELEMENT),
            ("gradient_bytes", self.gradient_bytes.unwrap_or_default(), range::ELEMENT),
            ("bucket", self.bucket.map_or(range::MEMORY.least(), Bytes::get), range::MEMORY),
            ("fsdp_efficiency", self.fsdp_efficiency, range::EFFICIENCY),
            ("activation_memory", self.activation_memory, range::POSITIVE_FACTOR),
            ("logit_bytes", self.logit_bytes.unwrap_or_default(), range::ELEMENT),
            ("loss_traffic", self.loss_traffic.unwrap_or_default(), range::ELEMENT),
            ("per_op_kept", self.per_op_kept, range::SHARE),
            ("expert_imbalance", self.expert_imbalance, range::IMBALANCE),
            ("default_zero", f64::from(self.default_zero.unwrap_or_default()), range::ZERO_STAGE),
            ("host_update", self.host_update.get(), range::LATENCY),
        ])?;
        if let Some(adapters) = &self.adapters {
            adapters.check_ranges().map_err(|why| why.below("adapters"))?;
        }
        self.memory.check_ranges().map_err(|why| why.below("memory"))?;
        self.launches.check_ranges().map_err(|why| why.below("launches"))?;
        self.overlap.check_ranges().map_err(|why| why.below("overlap"))?;
        self.quirks.check_ranges().map_err(|why| why.below("quirks"))
    }
}

impl MemoryUse {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self {
            recipe: _,
            narrow_recipe: _,
            frees_stage_inputs: _,
            keeps_expert_outputs: _,
            activation_input_bytes,
            attention_output_bytes,
            keeps_matmul_outputs: _,
            keeps_listed_operators: _,
            keeps_needed_operators: _,
            recomputes_experts: _,
            hides_expert_layers: _,
            hides_nvfp4_layers: _,
            keeps_exchanged_tokens: _,
            keeps_gathered_inputs: _,
            keeps_whole_qkv: _,
            keeps_activated_gate: _,
            unfused_norms: _,
            keeps_quantized_weights: _,
            rotary_tables: _,
            fp32_shards: _,
            by_moment: _,
            updates_at_once: _,
            scanned_layers: _,
            keeps_gathered_head: _,
            keeps_outputs: _,
            loss_chunks,
            split_logit_bytes,
            fragmentation,
            activation_fragmentation,
            transient_fragmentation,
            context,
            graph_pools,
            communicator,
            all_to_all,
        } = self;
        range::check([
            ("activation_input_bytes", *activation_input_bytes, range::ELEMENT),
            ("attention_output_bytes", *attention_output_bytes, range::ELEMENT),
            ("loss_chunks", f64::from(*loss_chunks), range::CHUNKS),
            ("split_logit_bytes", split_logit_bytes.unwrap_or_default(), range::ELEMENT),
            ("fragmentation", *fragmentation, range::SHARE),
            ("activation_fragmentation", *activation_fragmentation, range::SHARE),
            ("transient_fragmentation", *transient_fragmentation, range::SHARE),
            ("context", context.get(), range::OPTIONAL_MEMORY),
            ("graph_pools", graph_pools.get(), range::OPTIONAL_MEMORY),
            ("communicator", communicator.map_or(0.0, Bytes::get), range::OPTIONAL_MEMORY),
            ("all_to_all", all_to_all.get(), range::OPTIONAL_MEMORY),
        ])
    }
}

impl Launches {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self {
            forward,
            backward,
            per_expert_bf16,
            per_expert_narrow,
            expert_wait,
            expert_layer,
            graph_replay,
            plain_layer,
            sharded_layer,
            fsdp_layer,
            expert_gaps: _,
            module_hooks,
            x86,
            grace,
        } = self;
        if let Some(hooks) = module_hooks {
            hooks.check_ranges().map_err(|why| why.below("module_hooks"))?;
        }
        range::check([
            ("forward", *forward, range::LAUNCHES),
            ("backward", *backward, range::LAUNCHES),
            ("per_expert_bf16", *per_expert_bf16, range::LAUNCHES),
            ("per_expert_narrow", *per_expert_narrow, range::LAUNCHES),
            ("expert_wait", *expert_wait, range::FACTOR),
            ("expert_layer", *expert_layer, range::FACTOR),
            ("graph_replay", *graph_replay, range::LAUNCHES),
            ("plain_layer", *plain_layer, range::FACTOR),
            ("sharded_layer", *sharded_layer, range::FACTOR),
            ("fsdp_layer", fsdp_layer.get(), range::LATENCY),
            ("x86", x86.get(), range::LATENCY),
            ("grace", grace.get(), range::LATENCY),
        ])
    }
}

impl ModuleHooks {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { forward, backward, expert_forward, expert_backward } = *self;
        range::check([
            ("forward", forward.get(), range::LATENCY),
            ("backward", backward.get(), range::LATENCY),
            ("expert_forward", expert_forward.get(), range::LATENCY),
            ("expert_backward", expert_backward.get(), range::LATENCY),
        ])
    }
}

impl AdapterTraffic {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { input_forward, input_backward, output_forward, output_backward, kernels_forward, kernels_backward } =
            *self;
        range::check([
            ("input_forward", input_forward, range::ELEMENT),
            ("input_backward", input_backward, range::ELEMENT),
            ("output_forward", output_forward, range::ELEMENT),
            ("output_backward", output_backward, range::ELEMENT),
            ("kernels_forward", kernels_forward, range::LAUNCHES),
            ("kernels_backward", kernels_backward, range::LAUNCHES),
        ])
    }
}

impl Overlap {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self { tp, dp: _, dp_sharded: _, dp_interleaved_window: _, pp: _, cp, ep, fsdp_prefetch: _ } = self;
        range::check([("tp", *tp, range::SHARE), ("cp", *cp, range::SHARE), ("ep", *ep, range::SHARE)])
    }
}

impl Quirks {
    fn check_ranges(&self) -> Result<(), OutOfRange> {
        let Self {
            sync_per_layer,
            moe_sync_per_layer,
            tp_floor,
            cross_domain_tp_latency,
            cross_domain_tp_efficiency,
            network_efficiency,
            broadcast_per_owner,
            zero_all_reduce: _,
            copies_per_gather,
            sync_every_micro_batch: _,
            step_overhead,
        } = self;
        range::check([
            ("sync_per_layer", sync_per_layer.get(), range::LATENCY),
            ("moe_sync_per_layer", moe_sync_per_layer.get(), range::LATENCY),
            ("tp_floor", tp_floor.get(), range::LATENCY),
            ("cross_domain_tp_latency", cross_domain_tp_latency.get(), range::LATENCY),
            ("cross_domain_tp_efficiency", *cross_domain_tp_efficiency, range::EFFICIENCY),
            ("network_efficiency", *network_efficiency, range::EFFICIENCY),
            ("broadcast_per_owner", broadcast_per_owner.get(), range::LATENCY),
            ("copies_per_gather", *copies_per_gather, range::LAUNCHES),
            ("step_overhead", step_overhead.get(), range::LATENCY),
        ])
    }
}
