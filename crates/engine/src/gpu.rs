//! Device: peaks, memory, and the curves of its kernels and scale-up links.

mod curves;
mod format;
mod pass;
mod ranges;
mod scale_up;
mod superchip;
mod timed;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sources::{Basis, OWN_SOURCE, SET_SOURCE, Sourced, own_source};
use crate::units::{Bytes, BytesPerSec, FlopsPerSec, Seconds, Usd, UsdPerHour, Watts};

pub use curves::{AttentionCurve, AttentionKernel, AttentionOccupancy, Collective, CollectiveCurve, Figure, GemmCurve};
pub use format::{Format, PeakKind};
pub use pass::Pass;
pub use scale_up::{ScaleUp, Topology};
pub use superchip::{Host, Superchip};
pub use timed::TimedGemms;

/// Year of NVIDIA's first devices of the generation Turing.
const TURING: u32 = 2018;
/// Year of NVIDIA's first devices of the generation Ampere.
const AMPERE: u32 = 2020;
/// Year of NVIDIA's first devices of the generation Blackwell.
const BLACKWELL: u32 = 2024;
/// GPUs of the largest scale-up domain on one board.
const BOARD: u32 = 8;

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
    /// Memory that the runtime takes beyond the tensors, on devices without CUDA and NCCL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_memory: Option<Sourced<Bytes>>,
    /// Bandwidth of the memory.
    pub hbm_bandwidth: Sourced<BytesPerSec>,
    /// Share of the memory bandwidth that streaming kernels reach (`e_mem`).
    pub hbm_efficiency: Sourced<f64>,
    /// Bandwidth of the link to the host, one direction.
    pub host_link: Sourced<BytesPerSec>,
    /// Measured bandwidth of copies, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<HostCopies>,
    /// Host on the device's own board, if it is sold with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superchip: Option<Superchip>,
    /// Bandwidth of the network interface, one direction, as usually built.
    pub nic: Sourced<BytesPerSec>,
    /// Board power limit (TDP).
    pub tdp: Sourced<Watts>,
    /// Exposed gap between dependent kernels (`t_op`).
    pub kernel_gap: Sourced<Seconds>,
    /// Slow-down of compute by a concurrent communication kernel (σ).
    pub contention: Sourced<f64>,
    /// Time of a 16-bit GEMM whose rows are no multiple of 16 bytes, against one whose rows are; 1 where not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaligned_gemm: Option<Sourced<f64>>,
    /// Basis of the kernel curves.
    pub basis: Basis,
    /// Dense peak rates.
    pub peak: BTreeMap<PeakKind, Sourced<FlopsPerSec>>,
    /// GEMM curves by format.
    pub gemm: BTreeMap<Format, GemmCurve>,
    /// Curves of the fused attention kernels; none on devices that run none of them.
    #[serde(default)]
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
    /// GEMMs that a calibration timed.
    #[serde(skip)]
    pub timed_gemms: TimedGemms,
}

/// Bandwidth of copies between one GPU and pinned host memory by copy engines.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// From the device to the host.
    pub out: BytesPerSec,
    /// From the host to the device.
    pub back: BytesPerSec,
}

/// Bandwidth of one GPU's copies while all GPUs of its node copy.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostCopies {
    /// In one direction at a time.
    pub one_way: Copies,
    /// In both directions at once.
    pub both_ways: Copies,
    /// Key of the source.
    #[serde(default = "own_source")]
    pub source: String,
}

/// Measured copies of eight GPUs on PCIe 5 x16, whose link has 64 GB/s: 45 out or 55 back, 22 and 24 with both at once. Source:
/// [nvbandwidth-h800].
mod shares {
    pub const LINK: f64 = 64.0;
    pub const OUT: f64 = 45.0;
    pub const BACK: f64 = 55.0;
    pub const OUT_OF_BOTH: f64 = 22.0;
    pub const BACK_OF_BOTH: f64 = 24.0;
}

/// Idle power relative to the board's limit. Source: specification §2.1, version 1.1.
pub(crate) const IDLE_POWER: f64 = 0.12;

impl Gpu {
    /// Whether the user states the rate of the adapter, in a file or by a setting; the catalogue has the usual one of the device.
    pub fn states_nic(&self) -> bool {
        [OWN_SOURCE, SET_SOURCE].contains(&self.nic.source.as_str())
    }

    /// Bandwidth of copies in one direction at a time while all GPUs of a node copy: measured, or the link's bandwidth times what
    /// eight GPUs on PCIe 5 reach of theirs.
    pub(crate) fn copies_one_way(&self) -> Copies {
        self.copies.as_ref().map_or_else(|| self.share_of_link(shares::OUT, shares::BACK), |measured| measured.one_way)
    }

    /// [`Self::copies_one_way`] in both directions at once.
    pub(crate) fn copies_both_ways(&self) -> Copies {
        self.copies.as_ref().map_or_else(
            || self.share_of_link(shares::OUT_OF_BOTH, shares::BACK_OF_BOTH),
            |measured| measured.both_ways,
        )
    }

    fn share_of_link(&self, out: f64, back: f64) -> Copies {
        let share = |of_link: f64| self.host_link.value * (of_link / shares::LINK);
        Copies { out: share(out), back: share(back) }
    }

    /// Bytes of one weight in the copies that the GEMMs of all passes need. A device that has no MXFP8 multiplies 8-bit matrices in
    /// one layout, and needs the transposed matrix beside the matrix. Blocks have scales along one dimension, so both
    /// are needed everywhere.
    ///
    /// Source: [transformer-engine] docs, performance considerations.
    pub(crate) fn weight_bytes(&self, format: Format) -> f64 {
        match format {
            Format::Fp8 if self.gemm.contains_key(&Format::Mxfp8) => 1.0,
            Format::Bf16 | Format::Fp8 | Format::Fp8Block | Format::Mxfp8 => 2.0,
            Format::Nvfp4 => 2.0 * format.element_bytes(),
        }
    }

    /// Basis of a figure.
    pub fn basis_of(&self, figure: Figure) -> Basis {
        self.calibrated.get(&figure).copied().unwrap_or(self.basis)
    }

    /// Whether tokens reach experts by `HybridEP` where their exchange is fused, else by `DeepEP`: on NVIDIA's devices of racks, whose
    /// links join more than a board of 8, however many of them a cluster joins. Megatron-Bridge chooses by the device too, and refuses
    /// DeepEP on GB200 and GB300.
    ///
    /// Source: [megatron-bridge] `training/flex_dispatcher_backend.py`.
    pub fn fuses_by_hybrid_ep(&self) -> bool {
        self.vendor == "NVIDIA" && self.year >= BLACKWELL && self.scale_up.gpus > BOARD
    }

    /// Whether its matrix units multiply bf16: NVIDIA's do from Ampere (2020) on; Volta and Turing have fp16 alone.
    ///
    /// Source: NVIDIA A100 Tensor Core GPU Architecture, 2020, table of data types by generation.
    pub fn multiplies_bf16(&self) -> bool {
        self.vendor != "NVIDIA" || self.year >= AMPERE
    }

    /// Whether an attention kernel runs on it. On NVIDIA's devices `FlashAttention` 1 needs Turing, 2 and cuDNN's fused attention need
    /// Ampere, and 3 needs a curve of its own, which those of Ampere and Ada do not have; other vendors bring kernels of their own
    /// under these names.
    ///
    /// Source: [flashattention2], the requirements in its repository and its issue 148 (no V100); [pytorch-sdpa], `check_sm_version`.
    pub fn runs(&self, kernel: AttentionKernel) -> bool {
        let has_it = match kernel {
            AttentionKernel::Unfused | AttentionKernel::Efficient => true,
            AttentionKernel::Fa1 => self.year >= TURING,
            AttentionKernel::Fa2 | AttentionKernel::Cudnn => self.year >= AMPERE,
            AttentionKernel::Fa3 => self.attention.contains_key(&kernel),
        };
        self.vendor != "NVIDIA" || has_it
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
                curve.sustained *= libm::cbrt(share);
            }
            self.tdp.value = limit;
        }
        self
    }

    /// Curve of an attention kernel, or of the nearest older one, else of the nearest newer one.
    pub(crate) fn attention_curve(&self, wanted: AttentionKernel) -> Option<&AttentionCurve> {
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
        self.check_ranges().map_err(|why| why.to_string())?;
        if !self.gemm.contains_key(&Format::Bf16) {
            return Err("there is no [gemm.bf16]".into());
        }
        if let Some(format) = self.gemm.keys().find(|format| self.peak_of(**format).is_none()) {
            return Err(format!("[gemm.{format}] needs a [peak] of its width"));
        }
        for op in [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll] {
            let curves = self.collectives.get(&op).map_or(&[][..], Vec::as_slice);
            if curves.is_empty() || curves.iter().any(|c| c.ranks < 2) {
                return Err(format!("[collectives] needs curves of {op:?} with 2 ranks or more"));
            }
            if curves.windows(2).any(|pair| pair[0].ranks >= pair[1].ranks) {
                return Err(format!("the curves of {op:?} must be by ascending ranks"));
            }
        }
        let is_fused = |kernel: &AttentionKernel| *kernel > AttentionKernel::Efficient;
        if self.runs(AttentionKernel::Fa1) && !self.attention.keys().any(is_fused) {
            return Err("there is no fused [attention] kernel".into());
        }
        if self.scale_up.topology == Topology::Torus && self.scale_up.axes.is_empty() {
            return Err("a torus needs its `axes`".into());
        }
        Ok(())
    }
}
