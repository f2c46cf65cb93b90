//! What can be timed: one kernel, one transfer or one collective, with whole sizes and a name to read back.

mod names;

use meshwright_engine::collective::Group;
use meshwright_engine::gpu::{AttentionKernel, Collective, Format};
use meshwright_engine::kernel::Pass;
use meshwright_engine::units::{Bytes, Flops};

pub(super) use names::name_of;
pub use names::{COLLECTIVES, ParseKernelError, format_name};

/// A matrix product C\[m,n\] = A\[m,k\]·B\[k,n\], `batch` times in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gemm {
    /// Format of the operands.
    pub format: Format,
    /// Which of a linear map's products: it sets how the operands lie in memory.
    pub pass: Pass,
    /// Rows of the output.
    pub m: u64,
    /// Columns of the output.
    pub n: u64,
    /// Inner size.
    pub k: u64,
    /// Products in one launch.
    pub batch: u64,
    /// Bytes that one output element costs: 2 written, 4 accumulated in bf16, 8 accumulated in fp32.
    pub output_bytes: u64,
}

impl Gemm {
    /// Two operations for each multiply-add.
    pub fn flops(&self) -> Flops {
        Flops::new(2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.batch as f64)
    }

    /// Operands read once, the output moved once.
    pub fn bytes(&self) -> Bytes {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        Bytes::new(
            self.batch as f64 * (self.format.element_bytes() * (m * k + k * n) + self.output_bytes as f64 * m * n),
        )
    }
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mask {
    /// All.
    Full,
    /// Those before it.
    Causal,
    /// The last so many before it.
    Window(u64),
}

/// Whose fused attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fused {
    /// A library's, which frameworks run.
    Library(AttentionKernel),
    /// The probe's own (`kernels/attention.cu`): FlashAttention-2's algorithm without a library's tuning. Its time bounds
    /// those of FlashAttention 2 and later from above.
    Own,
}

/// A fused attention core of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attention {
    /// Whose.
    pub kernel: Fused,
    /// `Forward` or `Dgrad`.
    pub pass: Pass,
    /// Sequences.
    pub sequences: u64,
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values, each shared by as many query heads.
    pub kv_heads: u64,
    /// Queries of each sequence.
    pub queries: u64,
    /// Keys of each sequence.
    pub keys: u64,
    /// Dimension of queries and keys.
    pub qk_dim: u64,
    /// Dimension of values.
    pub v_dim: u64,
    /// Which keys a query sees.
    pub mask: Mask,
}

impl Attention {
    /// The probe's own kernel on the same sizes, which is no faster than this one; none for kernels that may be slower.
    pub fn bound(&self) -> Option<Self> {
        match self.kernel {
            Fused::Library(AttentionKernel::Fa2 | AttentionKernel::Cudnn | AttentionKernel::Fa3) => {
                Some(Self { kernel: Fused::Own, ..*self })
            }
            Fused::Library(AttentionKernel::Unfused | AttentionKernel::Fa1) | Fused::Own => None,
        }
    }

    /// Mean share of the keys that a query sees. Source: specification §1.3.
    pub fn seen(&self) -> f64 {
        match self.mask {
            Mask::Full => 1.0,
            Mask::Causal => 0.5,
            Mask::Window(width) => {
                let share = (width as f64 / self.keys as f64).min(1.0);
                share * (1.0 - share / 2.0)
            }
        }
    }

    /// Two products forward, five backward. Source: specification §2.3.
    pub fn flops(&self) -> Flops {
        let products = match self.pass {
            Pass::Forward => 1.0,
            Pass::Dgrad | Pass::Wgrad => 2.5,
        };
        let pairs = self.sequences as f64 * self.heads as f64 * self.queries as f64 * self.keys as f64;
        Flops::new(products * 2.0 * pairs * self.seen() * (self.qk_dim + self.v_dim) as f64)
    }
}

/// A kernel that the memory bounds, on a matrix of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamOp {
    /// Reads and writes each element.
    Copy,
    /// RMS norm.
    Norm,
    /// Its input gradient.
    NormBackward,
    /// Two columns to one: SiLU of the gate times the other.
    SwiGlu,
    /// Its input gradients.
    SwiGluBackward,
    /// Loss of each row against its label.
    CrossEntropy,
    /// Its input gradient.
    CrossEntropyBackward,
    /// AdamW with fp32 gradient, master weight and moments.
    Adam,
}

impl StreamOp {
    /// All with their names.
    pub const NAMED: [(&'static str, Self); 8] = [
        ("copy", Self::Copy),
        ("norm", Self::Norm),
        ("norm-backward", Self::NormBackward),
        ("swiglu", Self::SwiGlu),
        ("swiglu-backward", Self::SwiGluBackward),
        ("cross-entropy", Self::CrossEntropy),
        ("cross-entropy-backward", Self::CrossEntropyBackward),
        ("adam", Self::Adam),
    ];

    /// Bytes that each element of the output matrix moves, when every operand passes once.
    ///
    /// A norm reads and writes 2 bytes and rereads nothing; cross-entropy reads the logits once; AdamW reads gradient,
    /// master and moments and writes the last three and the bf16 weight (4 + 12 + 12 + 2).
    pub const fn bytes_per_element(self) -> u64 {
        match self {
            Self::Copy | Self::Norm | Self::CrossEntropyBackward => 4,
            Self::NormBackward | Self::SwiGlu => 6,
            Self::SwiGluBackward => 10,
            Self::CrossEntropy => 2,
            Self::Adam => 30,
        }
    }
}

/// Where a transfer over the host link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the device.
    ToDevice,
    /// To the host.
    ToHost,
}

/// One thing to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// A matrix product, by itself.
    Gemm(Gemm),
    /// The same while copies by as few blocks as a communication kernel has run beside it: what those take from compute (σ).
    Contended(Gemm),
    /// The same after seconds of nothing else: what power and heat leave of the clocks (κ).
    Sustained(Gemm),
    /// An attention core.
    Attention(Attention),
    /// A kernel that the memory bounds, on `rows` × `columns` of output.
    Stream {
        /// Which.
        op: StreamOp,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
    },
    /// Pinned memory over the host link.
    Transfer {
        /// Which way.
        direction: Direction,
        /// How much.
        bytes: u64,
    },
    /// What one launch costs the host.
    Launch,
    /// A collective of NCCL; `bytes` is the whole tensor (the size column of nccl-tests).
    Collective {
        /// Which.
        op: Collective,
        /// GPUs.
        ranks: u64,
        /// Nodes that they lie on.
        nodes: u64,
        /// The whole tensor.
        bytes: u64,
    },
}

impl Kernel {
    /// Bytes that a memory-bound kernel moves at least; zero for others.
    pub fn streamed(&self) -> Bytes {
        match *self {
            Self::Stream { op, rows, columns } => {
                Bytes::new(op.bytes_per_element() as f64 * rows as f64 * columns as f64)
            }
            Self::Gemm(_)
            | Self::Contended(_)
            | Self::Sustained(_)
            | Self::Attention(_)
            | Self::Transfer { .. }
            | Self::Launch
            | Self::Collective { .. } => Bytes::ZERO,
        }
    }
}

/// The group that a collective over `ranks` ranks of `nodes` nodes runs in: neighbours on one node, else as many on each of
/// the nodes, evenly apart.
pub fn group_of(ranks: u64, nodes: u64, per_node: u64) -> Group {
    let stride = if nodes <= 1 { 1 } else { (per_node * nodes / ranks).max(1) };
    Group { ranks: ranks as u32, stride: stride as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_as_the_specification_does() {
        let Kernel::Attention(core) =
            "attention fa2 dgrad sequences=2 heads=8 queries=64 keys=64 qk=128 v=128 mask=causal".parse().unwrap()
        else {
            unreachable!()
        };
        assert!((core.flops().get() - 2.5 * 2.0 * 2.0 * 8.0 * 64.0 * 64.0 * 0.5 * 256.0).abs() < 1e-6);
        let copy: Kernel = "stream adam rows=10 columns=10".parse().unwrap();
        assert!((copy.streamed().get() - 3000.0).abs() < 1e-9);
    }
}
