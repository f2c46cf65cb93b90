//! Kernels, transfers and collectives with integer sizes.

use meshwright_engine::collective::Group;
use meshwright_engine::gpu::{AttentionKernel, Collective, Format};
use meshwright_engine::kernel::Pass;
use meshwright_engine::units::{Bytes, Flops};

/// GEMM C\[m,n\] = A\[m,k\]·B\[k,n\], `batch` times in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gemm {
    /// Format of the operands.
    pub format: Format,
    /// Pass of the linear map, which sets the memory layout of the operands.
    pub pass: Pass,
    /// Rows of the output.
    pub m: u64,
    /// Columns of the output.
    pub n: u64,
    /// Inner dimension of the GEMM.
    pub k: u64,
    /// Number of GEMMs in one launch.
    pub batch: u64,
    /// Bytes moved per output element: 2 written, 4 accumulated in bf16, 8 accumulated in fp32.
    pub output_bytes: u64,
}

impl Gemm {
    /// FLOPs, with two for each multiply-add.
    pub fn flops(&self) -> Flops {
        Flops::new(2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.batch as f64)
    }

    /// Bytes moved if operands are read once and the output is moved once.
    pub fn bytes(&self) -> Bytes {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        Bytes::new(
            self.batch as f64 * (self.format.element_bytes() * (m * k + k * n) + self.output_bytes as f64 * m * n),
        )
    }
}

/// Attention mask: the keys that each query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mask {
    /// All keys of the sequence.
    Full,
    /// Keys up to the query's position.
    Causal,
    /// At most this many keys up to the query's position.
    Window(u64),
}

/// Origin of a fused attention kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fused {
    /// Kernel of a library, as frameworks run it.
    Library(AttentionKernel),
    /// Probe's own kernel (`kernels/attention.cu`): FlashAttention-2's algorithm without a library's tuning. Its time is an
    /// upper bound for FlashAttention 2 and later.
    Own,
}

/// Fused attention core of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attention {
    /// Origin of the kernel.
    pub kernel: Fused,
    /// Pass: `Forward` or `Dgrad`.
    pub pass: Pass,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Number of key-value heads, each shared by an equal number of query heads.
    pub kv_heads: u64,
    /// Number of queries per sequence.
    pub queries: u64,
    /// Number of keys per sequence.
    pub keys: u64,
    /// Head dimension of queries and keys.
    pub qk_dim: u64,
    /// Head dimension of values.
    pub v_dim: u64,
    /// Keys that each query attends to.
    pub mask: Mask,
}

impl Attention {
    /// Probe's own kernel of the same sizes, whose time is an upper bound; `None` for kernels that may be slower.
    pub fn bound(&self) -> Option<Self> {
        match self.kernel {
            Fused::Library(AttentionKernel::Fa2 | AttentionKernel::Cudnn | AttentionKernel::Fa3) => {
                Some(Self { kernel: Fused::Own, ..*self })
            }
            Fused::Library(AttentionKernel::Unfused | AttentionKernel::Efficient | AttentionKernel::Fa1)
            | Fused::Own => None,
        }
    }

    /// Mean share of the keys that a query attends to. Source: specification §1.3.
    pub fn attended_share(&self) -> f64 {
        match self.mask {
            Mask::Full => 1.0,
            Mask::Causal => 0.5,
            Mask::Window(width) => {
                let share = (width as f64 / self.keys as f64).min(1.0);
                share * (1.0 - share / 2.0)
            }
        }
    }

    /// FLOPs: two GEMMs forward, five backward. Source: specification §2.3.
    pub fn flops(&self) -> Flops {
        let forward_passes = match self.pass {
            Pass::Forward => 1.0,
            Pass::Dgrad | Pass::Wgrad => 2.5,
        };
        let pairs = self.sequences as f64 * self.heads as f64 * self.queries as f64 * self.keys as f64;
        Flops::new(forward_passes * 2.0 * pairs * self.attended_share() * (self.qk_dim + self.v_dim) as f64)
    }
}

/// Memory-bound kernel on a matrix of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamOp {
    /// Copy of each element.
    Copy,
    /// RMS norm, forward.
    Norm,
    /// RMS norm, input gradient.
    NormBackward,
    /// SwiGLU, two columns to one: SiLU of the gate times the other.
    SwiGlu,
    /// SwiGLU, input gradients.
    SwiGluBackward,
    /// Cross-entropy: loss of each row against its label.
    CrossEntropy,
    /// Cross-entropy, input gradient.
    CrossEntropyBackward,
    /// AdamW with fp32 gradient, master weight and moments.
    Adam,
}

impl StreamOp {
    /// All operations with their names.
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

    /// Bytes moved per element of the output matrix, if every operand is moved once.
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

/// Direction of a transfer over the host link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
}

/// Memory of the host from or to which a transfer copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageLock {
    /// Page-locked memory, which the copy engine reads and writes by itself.
    Pinned,
    /// Ordinary memory, which the driver copies through a pinned buffer of its own.
    Pageable,
}

/// Work on another stream while a transfer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alongside {
    /// No other work.
    Nothing,
    /// A transfer in the other direction.
    OtherWay,
    /// A large GEMM in bf16, over and over.
    Gemm,
}

/// Transfer between the host's memory and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostTransfer {
    /// Direction of the transfer.
    pub direction: Direction,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Memory of the host.
    pub memory: PageLock,
    /// Work on another stream.
    pub beside: Alongside,
}

impl HostTransfer {
    /// Transfer with pinned memory and no other work.
    pub const fn alone(direction: Direction, bytes: u64) -> Self {
        Self { direction, bytes, memory: PageLock::Pinned, beside: Alongside::Nothing }
    }
}

/// Kernel, transfer or collective to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// GEMM in a loop by itself.
    Gemm(Gemm),
    /// GEMM beside copies with as few blocks as a communication kernel has, which measures contention (σ).
    Contended(Gemm),
    /// GEMM after seconds of load, which measures the clocks that power and heat allow (κ).
    Sustained(Gemm),
    /// Fused attention core.
    Attention(Attention),
    /// Memory-bound kernel on `rows` × `columns` of output.
    Stream {
        /// Operation of the kernel.
        op: StreamOp,
        /// Rows of the output.
        rows: u64,
        /// Columns of the output.
        columns: u64,
    },
    /// Transfer between the host's memory and the device.
    Transfer(HostTransfer),
    /// Host time of one launch.
    Launch,
    /// Collective of NCCL; `bytes` is the whole tensor (the size column of nccl-tests).
    Collective {
        /// Collective operation.
        op: Collective,
        /// Number of GPUs.
        ranks: u64,
        /// Number of nodes.
        nodes: u64,
        /// Bytes of the whole tensor.
        bytes: u64,
    },
}

/// Ratio of the rows of two streaming kernels up to which the time of one tells that of the other.
const NEAR: f64 = 1.1;

impl Kernel {
    /// Work of this kernel relative to another: 1 for the same kernel; for streaming kernels that differ in their rows alone, and
    /// by a tenth at most, the ratio of the rows. `None` for any other.
    ///
    /// The traffic of a plan's streaming kernels is a constant of the stack, which a fit may move after kernels were timed.
    pub fn relative_to(&self, other: &Self) -> Option<f64> {
        if self == other {
            return Some(1.0);
        }
        match (self, other) {
            (
                Self::Stream { op, rows, columns },
                Self::Stream { op: other_op, rows: other_rows, columns: other_columns },
            ) if op == other_op && columns == other_columns => {
                let ratio = *rows as f64 / *other_rows as f64;
                (ratio.max(1.0 / ratio) <= NEAR).then_some(ratio)
            }
            _ => None,
        }
    }

    /// Least bytes that a memory-bound kernel moves; zero for other kernels.
    pub fn streamed(&self) -> Bytes {
        match *self {
            Self::Stream { op, rows, columns } => {
                Bytes::new(op.bytes_per_element() as f64 * rows as f64 * columns as f64)
            }
            Self::Gemm(_)
            | Self::Contended(_)
            | Self::Sustained(_)
            | Self::Attention(_)
            | Self::Transfer(_)
            | Self::Launch
            | Self::Collective { .. } => Bytes::ZERO,
        }
    }
}

/// Group of a collective over `ranks` ranks on `nodes` nodes: neighbours on one node, else an equal number on each node,
/// evenly spaced.
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

    #[test]
    fn streaming_kernels_of_nearly_the_same_rows_tell_each_others_time() {
        let kernel = |text: &str| -> Kernel { text.parse().unwrap() };
        let timed = kernel("stream copy rows=1000 columns=1024");
        for (text, ratio) in [
            ("stream copy rows=1050 columns=1024", Some(1.05)),
            ("stream copy rows=1200 columns=1024", None),
            ("stream copy rows=1000 columns=2048", None),
            ("stream norm rows=1000 columns=1024", None),
            ("launch", None),
        ] {
            assert_eq!(kernel(text).relative_to(&timed), ratio, "{text}");
        }
        assert_eq!(kernel("launch").relative_to(&Kernel::Launch), Some(1.0));
    }
}
