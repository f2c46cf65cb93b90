//! Device: peaks, memory, and the curves of its kernels and scale-up links.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sources::{Basis, Sourced, own_source};
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Seconds, Usd, UsdPerHour, Watts};

/// Number format of most GEMMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// bfloat16, and fp16, which runs at the same rate.
    Bf16,
    /// 8-bit floats with one scale per tensor.
    Fp8,
    /// 8-bit floats with a scale per 1×128 block (DeepSeek).
    Fp8Block,
    /// 8-bit floats with a shared exponent per 32 elements.
    Mxfp8,
    /// 4-bit floats with an E4M3 scale per 16 elements.
    Nvfp4,
}

impl Format {
    /// All formats, widest first.
    pub const ALL: [Self; 5] = [Self::Bf16, Self::Fp8, Self::Fp8Block, Self::Mxfp8, Self::Nvfp4];

    /// Bytes of one operand element in a GEMM.
    ///
    /// Source: specification §1.5 (NVFP4: 0.5 + 1/16; the scales of the 8-bit formats are below 4 % and left out).
    pub const fn element_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp8 => 1.0,
            Self::Nvfp4 => 0.5625,
        }
    }

    /// Bytes moved to cast one element to this format: read, write, and transposed write.
    ///
    /// Source: specification §2.5.
    pub const fn cast_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 0.0,
            Self::Fp8 => 4.0,
            Self::Fp8Block | Self::Mxfp8 => 4.5,
            Self::Nvfp4 => 5.0,
        }
    }

    /// Peak that this format's curve and MFU refer to.
    pub const fn peak(self) -> PeakKind {
        match self {
            Self::Bf16 => PeakKind::Bf16,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp8 => PeakKind::Fp8,
            Self::Nvfp4 => PeakKind::Fp4,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8-block",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        })
    }
}

/// Kind of tensor-core peak in a datasheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PeakKind {
    /// 16-bit peak (bf16, fp16).
    Bf16,
    /// 8-bit peak (FP8).
    Fp8,
    /// 4-bit peak (FP4).
    Fp4,
}

/// Efficiency curve of GEMMs in one format (specification §2.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GemmCurve {
    /// Share of the peak that the best large GEMM reaches (`e_max`).
    pub efficiency: f64,
    /// Inner dimension K at which half the time is start-up (`K0`).
    pub half_depth: f64,
    /// Loss of smaller tiles (ρ): exponent of their arithmetic intensity.
    pub intensity_exponent: f64,
    /// Loss of a partly filled last wave (γ): exponent of the filled share.
    pub wave_exponent: f64,
    /// Share of that rate that a whole training step sustains under power and heat limits (κ).
    pub sustained: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Attention kernel of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKernel {
    /// Batched GEMMs with the scores written to memory (2021–22).
    Unfused,
    /// `FlashAttention` version 1.
    Fa1,
    /// `FlashAttention` version 2.
    Fa2,
    /// Fused attention of cuDNN.
    Cudnn,
    /// `FlashAttention` version 3.
    Fa3,
}

/// Rates of one fused attention kernel (specification §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionCurve {
    /// Asymptotic forward rate.
    pub forward: FlopsPerSec,
    /// Asymptotic backward rate.
    pub backward: FlopsPerSec,
    /// Sequence length at which half the rate is reached (`s0`).
    pub half_sequence: f64,
    /// Speed with head dimension 64 relative to 128.
    #[serde(default = "narrow_heads")]
    pub narrow_heads: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Default of kernels that were not measured with head dimension 64. Source: specification §2.3 (`H_f`, `H_b`).
const fn narrow_heads() -> f64 {
    0.76
}

/// Number of blocks per processor that half-fill the device (χ of specification §2.3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionOccupancy {
    /// Value for forward.
    pub forward: f64,
    /// Value for backward.
    pub backward: f64,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Collective communication operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Sum of all buffers, to every rank.
    AllReduce,
    /// Concatenation of all shares, to every rank.
    AllGather,
    /// Sum of all buffers, one share to each rank.
    ReduceScatter,
    /// One share from each rank to each rank.
    AllToAll,
}

/// Figure of a device or its surroundings that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// GEMM curve of a format.
    Gemm(Format),
    /// Share of the GEMM rate that a whole step sustains (κ).
    Sustained(Format),
    /// Curve of an attention kernel.
    Attention(AttentionKernel),
    /// Efficiency of streaming kernels on HBM, and the gap between kernels.
    Hbm,
    /// Bandwidth of the link to the host.
    HostLink,
    /// Slow-down of compute by concurrent communication (σ).
    Contention,
    /// Host time of one kernel launch.
    Launch,
    /// Curve of a collective over this number of GPUs in one scale-up domain.
    Collective(Collective, u32),
    /// Efficiency of collectives on the network.
    Network,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Gemm(format) => write!(f, "products in {format}"),
            Self::Sustained(format) => write!(f, "sustained clocks in {format}"),
            Self::Attention(kernel) => write!(f, "attention {}", format!("{kernel:?}").to_lowercase()),
            Self::Hbm => f.write_str("HBM"),
            Self::HostLink => f.write_str("host link"),
            Self::Contention => f.write_str("contention"),
            Self::Launch => f.write_str("kernel launch"),
            Self::Collective(op, ranks) => {
                let op = match op {
                    Collective::AllReduce => "all-reduce",
                    Collective::AllGather => "all-gather",
                    Collective::ReduceScatter => "reduce-scatter",
                    Collective::AllToAll => "all-to-all",
                };
                write!(f, "{op} over {ranks}")
            }
            Self::Network => f.write_str("network"),
        }
    }
}

/// Saturation curve of a collective over `ranks` GPUs of one scale-up domain (specification §3.2).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveCurve {
    /// Number of GPUs in the group.
    pub ranks: u32,
    /// Fixed latency (α).
    pub latency: Seconds,
    /// Bus bandwidth of very large buffers (B∞).
    pub bandwidth: BytesPerSec,
    /// Buffer size at which half of it is reached (S½).
    pub half_size: Bytes,
    /// Sharpness of the curve (β).
    pub exponent: f64,
}

/// Wiring of the scale-up domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Switched: any subset of devices has the full bandwidth.
    Switch,
    /// Direct links: a group of n sees n−1 of them (xGMI, Gaudi).
    Mesh,
    /// Torus of chips (TPU, Trainium).
    Torus,
    /// PCI Express tree through the host.
    Pcie,
}

/// Scale-up domain in which the device is sold.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleUp {
    /// Number of devices in one domain.
    pub gpus: u32,
    /// Wiring of the domain.
    pub topology: Topology,
    /// Bandwidth of one device, one direction.
    pub bandwidth: BytesPerSec,
    /// Bandwidth between one pair, one direction.
    pub pair_bandwidth: BytesPerSec,
    /// Chips along each axis of a torus.
    #[serde(default)]
    pub axes: Vec<u32>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Rental price of a GPU-hour, and purchase price.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RentPrice {
    /// Price under a favourable contract.
    pub low: UsdPerHour,
    /// Typical price under a contract.
    pub typical: UsdPerHour,
    /// Price on demand from a large cloud.
    pub high: UsdPerHour,
    /// Purchase price: the device with its share of the server, without network and building.
    pub buy: Option<Sourced<Usd>>,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Names of a device outside the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuNames {
    /// Names in the column `gpu` of tables of runs and of timed kernels; the first is the one that is written.
    pub runs: Vec<String>,
    /// Parts of the name that the driver reports.
    pub driver: Vec<String>,
    /// Parts of the name that training logs print.
    pub log: Vec<String>,
}

/// GPU or other accelerator.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Name as printed.
    pub name: String,
    /// Names outside the catalogue.
    #[serde(default, skip_serializing)]
    pub names: GpuNames,
    /// Name of the manufacturer.
    pub vendor: String,
    /// Year of release.
    pub year: u32,
    /// Streaming multiprocessors (compute units, tensor cores).
    pub processors: Sourced<u32>,
    /// Memory capacity.
    pub hbm: Sourced<Bytes>,
    /// Memory that the runtime takes beside the tensors, where it is not that of CUDA and NCCL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_memory: Option<Sourced<Bytes>>,
    /// Bandwidth of the memory.
    pub hbm_bandwidth: Sourced<BytesPerSec>,
    /// Share of the memory bandwidth that streaming kernels reach (`e_mem`).
    pub hbm_efficiency: Sourced<f64>,
    /// Bandwidth of the link to the host, one direction.
    pub host_link: Sourced<BytesPerSec>,
    /// Bandwidth of the network interface, one direction, as usually built.
    pub nic: Sourced<BytesPerSec>,
    /// Board power limit (TDP).
    pub tdp: Sourced<Watts>,
    /// Exposed gap between dependent kernels (`t_op`).
    pub kernel_gap: Sourced<Seconds>,
    /// Slow-down of compute by a concurrent communication kernel (σ).
    pub contention: Sourced<f64>,
    /// Basis of the kernel curves.
    pub basis: Basis,
    /// Dense peak rates.
    pub peak: BTreeMap<PeakKind, Sourced<FlopsPerSec>>,
    /// GEMM curves by format.
    pub gemm: BTreeMap<Format, GemmCurve>,
    /// Curves of the fused attention kernels.
    pub attention: BTreeMap<AttentionKernel, AttentionCurve>,
    /// Occupancy of attention kernels.
    pub attention_occupancy: AttentionOccupancy,
    /// Scale-up domain of the device.
    pub scale_up: ScaleUp,
    /// Curves of collectives inside the domain, by ascending group size.
    pub collectives: BTreeMap<Collective, Vec<CollectiveCurve>>,
    /// Key of the source of `collectives`.
    #[serde(default = "own_source")]
    pub collectives_source: String,
    /// Rental and purchase price.
    pub price: Option<RentPrice>,
    /// Figures that a calibration replaced, with their basis; the others have `basis`.
    #[serde(skip)]
    pub calibrated: BTreeMap<Figure, Basis>,
}

/// Idle power relative to the board's limit. Source: specification §2.1, version 1.1.
pub const IDLE_POWER: f64 = 0.12;

impl Gpu {
    /// Basis of a figure.
    pub fn basis_of(&self, figure: Figure) -> Basis {
        self.calibrated.get(&figure).copied().unwrap_or(self.basis)
    }

    /// Dense peak rate of a format.
    pub fn peak_of(&self, format: Format) -> Option<FlopsPerSec> {
        self.peak.get(&format.peak()).map(|peak| peak.value)
    }

    /// Device under the power limit `limit`: sustained clocks fall with the cube root of the power above idle.
    ///
    /// ```text
    /// κ(P) = κ(P_ref)·((P − P_idle)/(P_ref − P_idle))^(1/3)          P_idle = 0.12·P_ref
    /// ```
    ///
    /// A limit at or above the board's own changes nothing. Source: specification §2.1, version 1.1.
    #[must_use]
    pub fn limited_to(mut self, limit: Watts) -> Self {
        let board = self.tdp.value;
        let idle = board * IDLE_POWER;
        if limit < board {
            let share = (limit - idle).or_zero() / (board - idle);
            for curve in self.gemm.values_mut() {
                curve.sustained *= share.cbrt();
            }
            self.tdp.value = limit;
        }
        self
    }

    /// Curve of an attention kernel, or of the nearest older one, else of the nearest newer one.
    pub fn attention_curve(&self, wanted: AttentionKernel) -> Option<&AttentionCurve> {
        self.attention
            .range(..=wanted)
            .next_back()
            .or_else(|| self.attention.range(wanted..).next())
            .map(|(_, curve)| curve)
    }

    /// Validates the device.
    ///
    /// # Errors
    ///
    /// Names the field that is missing, zero or out of its range.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("processors", f64::from(self.processors.value)),
            ("hbm", self.hbm.value.get()),
            ("hbm_bandwidth", self.hbm_bandwidth.value.get()),
            ("host_link", self.host_link.value.get()),
            ("nic", self.nic.value.get()),
            ("scale_up.gpus", f64::from(self.scale_up.gpus)),
            ("scale_up.bandwidth", self.scale_up.bandwidth.get()),
            ("scale_up.pair_bandwidth", self.scale_up.pair_bandwidth.get()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value <= 0.0) {
            return Err(format!("`{name}` must be above 0"));
        }
        if !(0.0..=1.0).contains(&self.hbm_efficiency.value) || self.hbm_efficiency.value == 0.0 {
            return Err("`hbm_efficiency` must be above 0 and at most 1".into());
        }
        if !self.gemm.contains_key(&Format::Bf16) {
            return Err("there is no [gemm.bf16]".into());
        }
        for (format, curve) in &self.gemm {
            let Some(peak) = self.peak_of(*format) else {
                return Err(format!("[gemm.{format}] needs a [peak] of its width"));
            };
            if peak.get() <= 0.0 || curve.efficiency <= 0.0 || curve.sustained <= 0.0 {
                return Err(format!("the peak, efficiency and sustained share of {format} must be above 0"));
            }
        }
        for op in [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll] {
            let curves = self.collectives.get(&op).map_or(&[][..], Vec::as_slice);
            if curves.is_empty() || curves.iter().any(|c| c.bandwidth.get() <= 0.0 || c.ranks < 2) {
                return Err(format!("[collectives] needs curves of {op:?} with 2 ranks or more and a bandwidth"));
            }
            if curves.windows(2).any(|pair| pair[0].ranks >= pair[1].ranks) {
                return Err(format!("the curves of {op:?} must be by ascending ranks"));
            }
        }
        if self.attention.keys().all(|kernel| *kernel == AttentionKernel::Unfused) {
            return Err("there is no fused [attention] kernel".into());
        }
        if self.scale_up.topology == Topology::Torus && self.scale_up.axes.is_empty() {
            return Err("a torus needs its `axes`".into());
        }
        Ok(())
    }
}
