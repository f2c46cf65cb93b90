//! Attention core: scores, softmax and context.

use super::call::{AttentionShape, Call, ContextSplit, PassTimes, PerPass};
use super::device::Device;
use crate::gpu::{AttentionKernel, Format, Pass};
use crate::units::{Bytes, Flops, FlopsPerSec, Seconds};

/// Gaps of the kernels of fused attention backward. Source: specification §2.3.
const BACKWARD_KERNELS: f64 = 3.0;

/// Attention in several kernels. Source: specification §2.3, version 1.1.
mod unfused {
    use crate::kernel::PerPass;

    /// Bytes per score of the softmax and the mask, forward and backward.
    pub const SOFTMAX: PerPass = PerPass::new(4.0, 6.0);
    /// Bytes per score of dropout.
    pub const DROPOUT: f64 = 5.0;
    /// Kernels of each pass.
    pub const KERNELS: f64 = 4.0;
    /// Divisor of the head dimension that the matmuls need for full speed.
    pub const ALIGNMENT: u32 = 8;
}

/// Speed of a head dimension relative to 128, forward and backward.
///
/// Source: specification §2.3 (`H_f`, `H_b`); `narrow` is the kernel's own speed with heads of 64, `wide` the stack's with
/// heads of 192.
fn head_dim_factor(qk_dim: f64, narrow: f64, wide: PerPass) -> PerPass {
    match qk_dim as u32 {
        64 => PerPass::same(narrow),
        80 => PerPass::same(0.80),
        96 => PerPass::same(0.85),
        192 => wide,
        256 => PerPass::same(0.98),
        dim if dim >= 128 => PerPass::same(1.0),
        _ => PerPass::same(0.8),
    }
}

/// Share of the keys that a fused kernel computes, of which queries see `seen`: those in a window and `edge` more, never more than
/// the causal half.
fn computed(seen: f64, edge: f64, seq_len: f64) -> f64 {
    if seen < CAUSAL { (seen + edge / seq_len).min(CAUSAL) } else { seen }
}

/// Share of the keys that queries see under a causal mask.
const CAUSAL: f64 = 0.5;
/// FLOPs of flash backward relative to forward: five GEMMs instead of two. Source: specification §1.3.
const FLASH_BACKWARD: f64 = 2.5;
/// Gain of FP8 attention, forward and backward. Source: specification §2.3 [A].
const FP8_ATTENTION: PerPass = PerPass::new(1.35, 1.2);
/// Queries of one thread block. Source: specification §2.3.
const QUERIES_PER_BLOCK: f64 = 128.0;
/// Slow-down of batched GEMMs whose rows lose 16-byte alignment. Source: specification §2.3, version 1.1.
const MISALIGNED: f64 = 4.0;

impl Device<'_> {
    /// Time of the attention core under `kernel`.
    pub fn attention(&self, core: &AttentionShape, kernel: AttentionKernel) -> PassTimes {
        let PassTimes { forward, backward } = match kernel {
            AttentionKernel::Unfused => self.unfused_attention(core, self.stack.traffic, core.dropout),
            // On V100 the fused kernel of xFormers, which is PyTorch's, takes about as long as two batched GEMMs and one kernel of the
            // softmax, without dropout. Source: [xformers].
            AttentionKernel::Efficient => self.unfused_attention(core, 1.0, false),
            AttentionKernel::Fa1 | AttentionKernel::Fa2 | AttentionKernel::Cudnn | AttentionKernel::Fa3 => {
                self.flash_attention(core, kernel)
            }
        };
        let call = |pass| Call::Attention { core: *core, kernel, pass };
        PassTimes {
            forward: self.metered(&call(Pass::Forward), forward),
            backward: self.metered(&call(Pass::Dgrad), backward),
        }
    }

    /// A fused kernel.
    ///
    /// ```text
    /// F_f = 2·b·a'·s²·φ·(d_qk + d_v)/c        F_b = 2.5·F_f        φ of a window with its edges
    /// T   = F / (R·√κ·H·sat·occ) + t_op       backward 3·t_op
    /// sat = s/(s + s0), with s/c for a ring   occ = CTA/(CTA + χ·SM),  CTA = b·a'·s/128
    /// ```
    ///
    /// Source: specification §2.3 with version 1.1.
    fn flash_attention(&self, core: &AttentionShape, kernel: AttentionKernel) -> PassTimes {
        let curve = self.gpu.attention_curve(kernel).expect("every device has a fused kernel: Gpu::check");
        let fp8 = if self.stack.fp8_attention { FP8_ATTENTION } else { PerPass::same(1.0) };
        let clock = self.gpu.gemm[&Format::Bf16].sustained.sqrt();
        let wide = PerPass::new(self.stack.wide_heads_forward, self.stack.wide_heads_backward);
        let head = head_dim_factor(core.qk_dim, curve.narrow_heads, wide);
        let ContextSplit { ranks, by_heads, by_queries: _, by_chunks } = core.context_split;
        let blocks =
            (core.sequences * (core.heads / by_heads) * (core.seq_len / by_chunks) / QUERIES_PER_BLOCK).max(1.0);
        let processors = f64::from(self.gpu.processors.value);
        let occupancy = |half: f64| blocks / (blocks + half * processors);
        let chunk = core.seq_len / by_chunks;
        let saturation = chunk / (chunk + curve.half_sequence);
        let seen = computed(core.attended, self.stack.window_edge, core.seq_len);
        let work =
            2.0 * core.sequences * core.heads * core.seq_len * core.seq_len * seen * (core.qk_dim + core.v_dim) / ranks;
        let rate = |asymptote: FlopsPerSec, fp8: f64, head: f64, half: f64| {
            asymptote * (fp8 * clock * head * saturation * occupancy(half))
        };
        let occupied = &self.gpu.attention_occupancy;
        let forward = Flops::new(work) / rate(curve.forward, fp8.forward, head.forward, occupied.forward);
        let backward =
            Flops::new(FLASH_BACKWARD * work) / rate(curve.backward, fp8.backward, head.backward, occupied.backward);
        let gap = self.gpu.kernel_gap.value;
        PassTimes { forward: forward + gap, backward: backward + gap * BACKWARD_KERNELS }
    }

    /// Time of a kernel of sparse attention or of its indexer that computes `work` in `blocks` thread blocks.
    ///
    /// ```text
    /// T = F / (R·√κ·occ) + t_op          occ = CTA/(CTA + χ·SM)
    /// ```
    ///
    /// R is the rate of the stack's dense kernel: sparse ones reach about as much, 640 of 660 TFLOP/s on Hopper and 1450 of 1460 on
    /// Blackwell forward ([flashmla]). No rate of a backward kernel is published.
    pub fn sparse_attention(&self, work: Flops, blocks: f64, pass: Pass) -> Seconds {
        let curve =
            self.gpu.attention_curve(self.stack.attention).expect("every device has a fused kernel: Gpu::check");
        let clock = self.gpu.gemm[&Format::Bf16].sustained.sqrt();
        let occupied = &self.gpu.attention_occupancy;
        let (rate, half) = match pass {
            Pass::Forward => (curve.forward, occupied.forward),
            Pass::Dgrad | Pass::Wgrad => (curve.backward, occupied.backward),
        };
        let occupancy = blocks / (blocks + half * f64::from(self.gpu.processors.value));
        let predicted = work / (rate * (clock * occupancy)) + self.gpu.kernel_gap.value;
        self.metered(&Call::Sparse { work, pass }, predicted)
    }

    /// Scores written to memory between kernels (EW = `traffic`); el = b·a'·s²/c elements.
    ///
    /// ```text
    /// T_f = Σ_{d = d_qk, d_v} max(2·el·d/R, 2·el/BW') + el·(4 + 5δ)/BW' + 4·t_op
    /// T_b = 2·(the matmuls)                          + el·(6 + 5δ)/BW' + 4·t_op
    /// R   = P·e_max·κ·d/(d + K0)        BW' = BW·e_mem/EW        δ = 1 with dropout
    /// ```
    ///
    /// Matmuls × 4 where `d_qk` is no multiple of 8. Source: specification §2.3 with version 1.1.
    fn unfused_attention(&self, core: &AttentionShape, traffic: f64, dropout: bool) -> PassTimes {
        let elements = core.sequences * core.heads * core.seq_len * core.seq_len / core.context_split.ranks;
        let curve = &self.gpu.gemm[&Format::Bf16];
        let peak = self.gpu.peak_of(Format::Bf16).expect("every curve has its peak: Gpu::check");
        let depth = core.qk_dim / (core.qk_dim + curve.half_depth);
        let rate = peak * (curve.efficiency * curve.sustained * depth);
        let bandwidth = self.streaming_bandwidth() / traffic;
        let written = Bytes::new(2.0 * elements) / bandwidth;
        let matmul = |dim: f64| (Flops::new(2.0 * elements * dim) / rate).max(written);
        let misaligned = if (core.qk_dim as u32).is_multiple_of(unfused::ALIGNMENT) { 1.0 } else { MISALIGNED };
        let matmuls = (matmul(core.qk_dim) + matmul(core.v_dim)) * misaligned;
        let dropout = if dropout { unfused::DROPOUT } else { 0.0 };
        let softmax = |bytes: f64| Bytes::new(elements * (bytes + dropout)) / bandwidth;
        let gaps = self.gpu.kernel_gap.value * unfused::KERNELS;
        PassTimes {
            forward: matmuls + softmax(unfused::SOFTMAX.forward) + gaps,
            backward: matmuls * 2.0 + softmax(unfused::SOFTMAX.backward) + gaps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::computed;

    /// Windows of 128 and 4096 of 8192 keys never count more than the causal half; other masks do not change.
    #[test]
    fn a_window_is_computed_with_its_edges() {
        let share = |window: f64| window / 8192.0 * (1.0 - window / 16384.0);
        assert!((computed(share(128.0), 384.0, 8192.0) / share(128.0) - 4.02).abs() < 0.01);
        assert!((computed(share(4096.0), 384.0, 8192.0) / share(4096.0) - 1.125).abs() < 0.001);
        for (seen, edge, expected) in
            [(share(8100.0), 384.0, 0.5), (0.5, 384.0, 0.5), (1.0, 384.0, 1.0), (share(128.0), 0.0, share(128.0))]
        {
            assert!((computed(seen, edge, 8192.0) - expected).abs() < 1e-12, "{seen} with {edge} keys more");
        }
    }
}
