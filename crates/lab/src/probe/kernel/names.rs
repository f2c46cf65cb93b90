//! Names of kernels in files, and their parser.

use std::fmt;
use std::str::FromStr;

use super::kinds::{Alongside, Attention, Direction, Fused, Gemm, HostTransfer, Kernel, Mask, PageLock, StreamOp};
use meshwright_engine::gpu::{AttentionKernel, Collective, Format};
use meshwright_engine::kernel::Pass;

const ATTENTION_KERNELS: [(&str, Fused); 6] = [
    ("unfused", Fused::Library(AttentionKernel::Unfused)),
    ("fa1", Fused::Library(AttentionKernel::Fa1)),
    ("fa2", Fused::Library(AttentionKernel::Fa2)),
    ("cudnn", Fused::Library(AttentionKernel::Cudnn)),
    ("fa3", Fused::Library(AttentionKernel::Fa3)),
    ("own", Fused::Own),
];

/// Collectives, with their names in data files.
pub const COLLECTIVES: [(&str, Collective); 4] = [
    ("all_reduce", Collective::AllReduce),
    ("all_gather", Collective::AllGather),
    ("reduce_scatter", Collective::ReduceScatter),
    ("all_to_all", Collective::AllToAll),
];

const DIRECTIONS: [(&str, Direction); 2] = [("to-device", Direction::ToDevice), ("to-host", Direction::ToHost)];

/// Work beside a transfer, with its names; a transfer alone has no word for it.
const BESIDE: [(&str, Alongside); 2] = [("other-way", Alongside::OtherWay), ("gemm", Alongside::Gemm)];

/// Passes with their names; attention has no weights, and so only the first two.
const PASSES: [(&str, Pass); 3] = [("forward", Pass::Forward), ("dgrad", Pass::Dgrad), ("wgrad", Pass::Wgrad)];

/// Name of a value in a complete list of named values.
pub(in crate::probe) fn name_of<T: PartialEq>(list: &[(&'static str, T)], value: &T) -> &'static str {
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
                let Attention { kernel, pass, sequences, heads, kv_heads, queries, keys, qk_dim, v_dim, mask } = core;
                let kernel = name_of(&ATTENTION_KERNELS, kernel);
                write!(f, "attention {kernel} {pass} sequences={sequences} heads={heads} ")?;
                if kv_heads != heads {
                    write!(f, "kv_heads={kv_heads} ")?;
                }
                write!(f, "queries={queries} keys={keys} qk={qk_dim} v={v_dim} mask=")?;
                match mask {
                    Mask::Full => f.write_str("full"),
                    Mask::Causal => f.write_str("causal"),
                    Mask::Window(width) => write!(f, "{width}"),
                }
            }
            Self::Stream { op, rows, columns } => {
                write!(f, "stream {} rows={rows} columns={columns}", name_of(&StreamOp::NAMED, op))
            }
            Self::Transfer(HostTransfer { direction, bytes, memory, beside }) => {
                write!(f, "{} bytes={bytes}", name_of(&DIRECTIONS, direction))?;
                if *memory == PageLock::Pageable {
                    f.write_str(" memory=pageable")?;
                }
                if *beside != Alongside::Nothing {
                    write!(f, " beside={}", name_of(&BESIDE, beside))?;
                }
                Ok(())
            }
            Self::Launch => f.write_str("launch"),
            Self::Collective { op, ranks, nodes, bytes } => {
                write!(f, "collective {} ranks={ranks} nodes={nodes} bytes={bytes}", name_of(&COLLECTIVES, op))
            }
        }
    }
}

/// Error of a text that names no kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a kernel: {why}")]
pub struct ParseKernelError {
    text: String,
    why: String,
}

/// Words of a kernel's name, consumed one by one.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn named<T: Copy>(&mut self, what: &str, list: &[(&'static str, T)]) -> Result<T, String> {
        let word = self.next(what)?;
        list.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
            format!("`{word}` is not a valid {what}: there are {}", names.join(", "))
        })
    }

    fn text(&mut self, key: &str) -> Result<&'a str, String> {
        let word = self.next(key)?;
        word.strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='))
            .ok_or_else(|| format!("`{word}` is in the place of `{key}=`"))
    }

    /// Size from 1 to 2^50, so that the product of a few fits a double.
    fn size(&mut self, key: &str) -> Result<u64, String> {
        let text = self.text(key)?;
        text.parse()
            .ok()
            .filter(|size| (1..=1 << 50).contains(size))
            .ok_or_else(|| format!("`{key}={text}` is not a size of 1 or more"))
    }

    /// Size with a default for older files that omit it.
    fn size_or(&mut self, key: &str, otherwise: u64) -> Result<u64, String> {
        let is_next = self.0.clone().next().is_some_and(|word| word.starts_with(&format!("{key}=")));
        if is_next { self.size(key) } else { Ok(otherwise) }
    }

    /// Text after `key=` if that is the next word.
    fn text_if(&mut self, key: &str) -> Option<&'a str> {
        let rest = self.0.clone().next()?.strip_prefix(key)?.strip_prefix('=')?;
        self.0.next();
        Some(rest)
    }

    fn transfer(&mut self, direction: Direction) -> Result<HostTransfer, String> {
        let bytes = self.size("bytes")?;
        let memory = match self.text_if("memory") {
            None => PageLock::Pinned,
            Some("pageable") => PageLock::Pageable,
            Some(other) => return Err(format!("`memory={other}` is not pageable")),
        };
        let beside = match self.text_if("beside") {
            None => Alongside::Nothing,
            Some(text) => Words(text.split_whitespace()).named("beside", &BESIDE)?,
        };
        Ok(HostTransfer { direction, bytes, memory, beside })
    }

    fn attention(&mut self) -> Result<Attention, String> {
        let kernel = self.named("attention kernel", &ATTENTION_KERNELS)?;
        let pass = self.named("pass", &PASSES[..2])?;
        let sequences = self.size("sequences")?;
        let heads = self.size("heads")?;
        Ok(Attention {
            kernel,
            pass,
            sequences,
            heads,
            kv_heads: self.size_or("kv_heads", heads)?,
            queries: self.size("queries")?,
            keys: self.size("keys")?,
            qk_dim: self.size("qk")?,
            v_dim: self.size("v")?,
            mask: match self.text("mask")? {
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
        })
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
        "attention" => Kernel::Attention(words.attention()?),
        "stream" => Kernel::Stream {
            op: words.named("streaming kernel", &StreamOp::NAMED)?,
            rows: words.size("rows")?,
            columns: words.size("columns")?,
        },
        "to-device" => Kernel::Transfer(words.transfer(Direction::ToDevice)?),
        "to-host" => Kernel::Transfer(words.transfer(Direction::ToHost)?),
        "launch" => Kernel::Launch,
        "collective" => Kernel::Collective {
            op: words.named("collective", &COLLECTIVES)?,
            ranks: words.size("ranks")?,
            nodes: words.size("nodes")?,
            bytes: words.size("bytes")?,
        },
        other => {
            return Err(format!(
                "`{other}` is not a kind of kernel: there are gemm, contended, sustained, attention, stream, \
                 to-device, to-host, launch and collective"
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
            "attention own forward sequences=1 heads=8 kv_heads=1 queries=4096 keys=4096 qk=128 v=128 mask=causal",
            "stream swiglu-backward rows=4096 columns=14336",
            "to-host bytes=1048576",
            "to-device bytes=1048576 memory=pageable",
            "to-host bytes=1048576 beside=other-way",
            "to-device bytes=1048576 memory=pageable beside=gemm",
            "launch",
            "collective all_to_all ranks=16 nodes=2 bytes=1048576",
        ] {
            assert_eq!(text.parse::<Kernel>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn files_without_heads_of_keys_have_one_for_each_query_head() {
        let text = "attention fa2 forward sequences=1 heads=8 queries=64 keys=64 qk=128 v=128 mask=full";
        let Kernel::Attention(core) = text.parse().unwrap() else { unreachable!() };
        assert_eq!(core.kv_heads, 8);
        assert_eq!(text.replace("heads=8", "heads=8 kv_heads=8").parse(), Ok(Kernel::Attention(core)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("gem bf16", "`gem` is not a kind"),
            ("gemm bf17 forward m=1 n=1 k=1 batch=1 out=2", "`bf17` is not a valid format"),
            ("gemm bf16 forward m=0 n=1 k=1 batch=1 out=2", "`m=0` is not a size"),
            ("gemm bf16 forward m=1 n=1 k=1 batch=1", "out is missing"),
            ("launch twice", "one word too many"),
            ("to-host bytes=1 memory=slow", "`memory=slow` is not pageable"),
            ("to-host bytes=1 beside=launch", "`launch` is not a valid beside: there are other-way, gemm"),
            ("attention fa2 wgrad sequences=1", "`wgrad` is not a valid pass"),
        ] {
            let error = text.parse::<Kernel>().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
