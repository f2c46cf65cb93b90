//! What can be timed: one kernel, one transfer or one collective, with whole sizes and a name to read back.

use std::fmt;
use std::str::FromStr;

use crate::collective::Group;
use crate::gpu::{AttentionKernel, Collective, Format};
use crate::kernel::Pass;
use crate::units::{Bytes, Flops};

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
    /// The same while a copy inside the device runs beside it: what communication kernels take from compute (σ).
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

const ATTENTION_KERNELS: [(&str, Fused); 6] = [
    ("unfused", Fused::Library(AttentionKernel::Unfused)),
    ("fa1", Fused::Library(AttentionKernel::Fa1)),
    ("fa2", Fused::Library(AttentionKernel::Fa2)),
    ("cudnn", Fused::Library(AttentionKernel::Cudnn)),
    ("fa3", Fused::Library(AttentionKernel::Fa3)),
    ("own", Fused::Own),
];

/// Collectives by the names that data files use.
pub const COLLECTIVES: [(&str, Collective); 4] = [
    ("all_reduce", Collective::AllReduce),
    ("all_gather", Collective::AllGather),
    ("reduce_scatter", Collective::ReduceScatter),
    ("all_to_all", Collective::AllToAll),
];

const PASSES: [(&str, Pass); 3] = [("forward", Pass::Forward), ("dgrad", Pass::Dgrad), ("wgrad", Pass::Wgrad)];

/// Name of a value in a list of named values that holds them all.
pub(super) fn name_of<T: PartialEq>(list: &[(&'static str, T)], value: &T) -> &'static str {
    list.iter().find(|(_, known)| known == value).map_or("?", |(name, _)| name)
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { format, pass, m, n, k, batch, output_bytes } = self;
        write!(f, "{format} {pass} m={m} n={n} k={k} batch={batch} out={output_bytes}")
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Gemm(gemm) => write!(f, "gemm {gemm}"),
            Self::Contended(gemm) => write!(f, "contended {gemm}"),
            Self::Sustained(gemm) => write!(f, "sustained {gemm}"),
            Self::Attention(core) => {
                let Attention { kernel, pass, sequences, heads, queries, keys, qk_dim, v_dim, mask } = core;
                let kernel = name_of(&ATTENTION_KERNELS, kernel);
                write!(f, "attention {kernel} {pass} sequences={sequences} heads={heads} queries={queries} ")?;
                write!(f, "keys={keys} qk={qk_dim} v={v_dim} mask=")?;
                match mask {
                    Mask::Full => f.write_str("full"),
                    Mask::Causal => f.write_str("causal"),
                    Mask::Window(width) => write!(f, "{width}"),
                }
            }
            Self::Stream { op, rows, columns } => {
                write!(f, "stream {} rows={rows} columns={columns}", name_of(&StreamOp::NAMED, op))
            }
            Self::Transfer { direction: Direction::ToDevice, bytes } => write!(f, "to-device bytes={bytes}"),
            Self::Transfer { direction: Direction::ToHost, bytes } => write!(f, "to-host bytes={bytes}"),
            Self::Launch => f.write_str("launch"),
            Self::Collective { op, ranks, nodes, bytes } => {
                write!(f, "collective {} ranks={ranks} nodes={nodes} bytes={bytes}", name_of(&COLLECTIVES, op))
            }
        }
    }
}

/// The group that a collective over `ranks` ranks of `nodes` nodes runs in: neighbours on one node, else as many on each of
/// the nodes, evenly apart.
pub fn group_of(ranks: u64, nodes: u64, per_node: u64) -> Group {
    let stride = if nodes <= 1 { 1 } else { (per_node * nodes / ranks).max(1) };
    Group { ranks: ranks as u32, stride: stride as u32 }
}

/// A text that names no kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no kernel: {why}")]
pub struct ParseKernelError {
    text: String,
    why: String,
}

/// The words of a kernel's name, taken one by one.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn named<T: Copy>(&mut self, what: &str, list: &[(&'static str, T)]) -> Result<T, String> {
        let word = self.next(what)?;
        list.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
            format!("`{word}` is no {what}: there are {}", names.join(", "))
        })
    }

    fn text(&mut self, key: &str) -> Result<&'a str, String> {
        let word = self.next(key)?;
        word.strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='))
            .ok_or_else(|| format!("`{word}` stands where `{key}=` should"))
    }

    /// A size: 1 to 2^50, so that products of a few fit a double.
    fn size(&mut self, key: &str) -> Result<u64, String> {
        let text = self.text(key)?;
        text.parse()
            .ok()
            .filter(|size| (1..=1 << 50).contains(size))
            .ok_or_else(|| format!("`{key}={text}` is no size of 1 or more"))
    }

    fn gemm(&mut self) -> Result<Gemm, String> {
        let formats = Format::ALL.map(|format| (format_name(format), format));
        Ok(Gemm {
            format: self.named("format", &formats)?,
            pass: self.named("pass", &PASSES)?,
            m: self.size("m")?,
            n: self.size("n")?,
            k: self.size("k")?,
            batch: self.size("batch")?,
            output_bytes: self.size("out")?,
        })
    }
}

/// Name of a format, as in data files.
pub const fn format_name(format: Format) -> &'static str {
    match format {
        Format::Bf16 => "bf16",
        Format::Fp8 => "fp8",
        Format::Fp8Block => "fp8-block",
        Format::Mxfp8 => "mxfp8",
        Format::Nvfp4 => "nvfp4",
    }
}

fn parse(text: &str) -> Result<Kernel, String> {
    let mut words = Words(text.split_whitespace());
    let kernel = match words.next("its kind")? {
        "gemm" => Kernel::Gemm(words.gemm()?),
        "contended" => Kernel::Contended(words.gemm()?),
        "sustained" => Kernel::Sustained(words.gemm()?),
        "attention" => Kernel::Attention(Attention {
            kernel: words.named("attention kernel", &ATTENTION_KERNELS)?,
            pass: words.named("pass", &PASSES[..2])?,
            sequences: words.size("sequences")?,
            heads: words.size("heads")?,
            queries: words.size("queries")?,
            keys: words.size("keys")?,
            qk_dim: words.size("qk")?,
            v_dim: words.size("v")?,
            mask: match words.text("mask")? {
                "full" => Mask::Full,
                "causal" => Mask::Causal,
                width => Mask::Window(
                    width
                        .parse()
                        .ok()
                        .filter(|width| *width > 0)
                        .ok_or_else(|| format!("`mask={width}` is not full, causal or a window"))?,
                ),
            },
        }),
        "stream" => Kernel::Stream {
            op: words.named("streaming kernel", &StreamOp::NAMED)?,
            rows: words.size("rows")?,
            columns: words.size("columns")?,
        },
        "to-device" => Kernel::Transfer { direction: Direction::ToDevice, bytes: words.size("bytes")? },
        "to-host" => Kernel::Transfer { direction: Direction::ToHost, bytes: words.size("bytes")? },
        "launch" => Kernel::Launch,
        "collective" => Kernel::Collective {
            op: words.named("collective", &COLLECTIVES)?,
            ranks: words.size("ranks")?,
            nodes: words.size("nodes")?,
            bytes: words.size("bytes")?,
        },
        other => {
            return Err(format!(
                "`{other}` is no kind: there are gemm, contended, sustained, attention, stream, to-device, to-host, launch \
                 and collective"
            ));
        }
    };
    words.0.next().map_or(Ok(kernel), |more| Err(format!("`{more}` is one word too many")))
}

impl FromStr for Kernel {
    type Err = ParseKernelError;
    fn from_str(text: &str) -> Result<Self, ParseKernelError> {
        parse(text).map_err(|why| ParseKernelError { text: text.to_owned(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in [
            "gemm bf16 forward m=4096 n=8192 k=1024 batch=1 out=2",
            "contended fp8 dgrad m=1 n=2 k=3 batch=4 out=2",
            "sustained nvfp4 wgrad m=4096 n=8192 k=1024 batch=1 out=8",
            "attention cudnn dgrad sequences=1 heads=8 queries=4096 keys=4096 qk=192 v=128 mask=causal",
            "attention fa3 forward sequences=1 heads=8 queries=4096 keys=4096 qk=128 v=128 mask=1024",
            "attention own dgrad sequences=1 heads=8 queries=4096 keys=8192 qk=128 v=128 mask=causal",
            "stream swiglu-backward rows=4096 columns=14336",
            "to-host bytes=1048576",
            "launch",
            "collective all_to_all ranks=16 nodes=2 bytes=1048576",
        ] {
            assert_eq!(text.parse::<Kernel>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("gem bf16", "`gem` is no kind"),
            ("gemm bf17 forward m=1 n=1 k=1 batch=1 out=2", "`bf17` is no format"),
            ("gemm bf16 forward m=0 n=1 k=1 batch=1 out=2", "`m=0` is no size"),
            ("gemm bf16 forward m=1 n=1 k=1 batch=1", "out is missing"),
            ("launch twice", "one word too many"),
            ("attention fa2 wgrad sequences=1", "`wgrad` is no pass"),
        ] {
            let error = text.parse::<Kernel>().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

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
