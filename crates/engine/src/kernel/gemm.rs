//! GEMMs, alone and grouped by expert.

use std::sync::LazyLock;

use super::call::{Call, GemmShape};
use super::device::Device;
use crate::gpu::{Format, GemmCurve, Pass};
use crate::units::{Bytes, Flops, Seconds};

/// Output tiles that libraries choose from.
///
/// Source: specification §2.1 (set T).
const TILES: [(f64, f64); 8] = [
    (256.0, 128.0),
    (128.0, 256.0),
    (128.0, 128.0),
    (256.0, 64.0),
    (64.0, 256.0),
    (128.0, 64.0),
    (64.0, 128.0),
    (64.0, 64.0),
];

/// Output tile of a GEMM.
struct Tile {
    size: (f64, f64),
    /// Arithmetic intensity relative to the first tile's.
    intensity: f64,
    /// Logarithm of the relative intensity.
    logarithm: f64,
}

/// The tiles of [`TILES`] with their relative intensities.
static INTENSITIES: LazyLock<[Tile; 8]> = LazyLock::new(|| {
    let intensity_of = |(m, n): (f64, f64)| m * n / (m + n);
    TILES.map(|size| {
        let intensity = intensity_of(size) / intensity_of(TILES[0]);
        Tile { size, intensity, logarithm: libm::log(intensity) }
    })
});

/// Share of the HBM bandwidth that a GEMM's operands reach. Source: specification §2.1.
const OPERAND_BANDWIDTH: f64 = 0.85;

/// Tokens per expert at which a grouped GEMM runs at half its rate: forward and input gradients, weight gradients.
///
/// Source: specification §2.2 (M0); that of weight gradients also [meshwright-silicon].
mod ramp {
    pub const TOKENS: f64 = 150.0;
    pub const WGRAD: f64 = 80.0;
}

/// Constants of the GEMMs of experts where the stack says how they run (`stack.expert_streams`). Source:
/// [meshwright-silicon], section `grouped`.
mod apart {
    use crate::units::Seconds;

    /// Width of the output tile whose time each GEMM leaves processors idle for.
    pub const TILE: f64 = 128.0;
    /// Time of one grouped kernel beyond a batch of equal sizes: a kernel before it finds each expert's operands.
    pub const SETUP: Seconds = Seconds::new(9e-6);
}

/// Times of a linear map's three GEMMs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Linear {
    /// Forward, y = x·w.
    pub forward: Seconds,
    /// Input gradients, dx = dy·wᵀ.
    pub dgrad: Seconds,
    /// Weight gradients, dw = xᵀ·dy.
    pub wgrad: Seconds,
}

/// Shape of a linear map, y[tokens, output] = x[tokens, input]·w.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearShape {
    /// Tokens of one expert, or of the whole map.
    pub tokens: f64,
    /// Width of the input.
    pub input: f64,
    /// Width of the output.
    pub output: f64,
    /// Number of experts in one launch; 1 for a dense map.
    pub batch: f64,
}

impl LinearShape {
    /// Shape of a map that all tokens take.
    pub const fn dense(tokens: f64, input: f64, output: f64) -> Self {
        Self { tokens, input, output, batch: 1.0 }
    }
}

impl std::ops::AddAssign for Linear {
    fn add_assign(&mut self, other: Self) {
        let Self { forward, dgrad, wgrad } = other;
        self.forward += forward;
        self.dgrad += dgrad;
        self.wgrad += wgrad;
    }
}

/// Share of the peak rate that the best tiling of a GEMM reaches, before start-up.
///
/// ```text
/// q = max over tiles τ of  u(τ)^γ · (AI(τ)/AI(256×128))^ρ
/// u = m·n·batch / (waves·SM·τ_m·τ_n),   waves = ⌈tiles/SM⌉,   AI = τ_m·τ_n/(τ_m + τ_n)
/// ```
///
/// Tiles are compared by the logarithm, that of u only where it can matter: u ≤ 1, so no tile reaches more than its AI lets
/// it where γ ≥ 0.
///
/// Source: specification §2.1.
fn tiling(shape: &GemmShape, processors: f64, curve: &GemmCurve) -> f64 {
    let (wave, intensity) = (curve.wave_exponent, curve.intensity_exponent);
    let mut best = (f64::NEG_INFINITY, 0.0, 0.0);
    for tile in INTENSITIES.iter() {
        let ((tm, tn), most) = (tile.size, intensity * tile.logarithm);
        if wave >= 0.0 && most <= best.0 {
            continue;
        }
        let tiles = (shape.m / tm).ceil() * (shape.n / tn).ceil() * shape.batch;
        let waves = (tiles / processors).ceil();
        let filled = shape.m * shape.n * shape.batch / (waves * processors * tm * tn);
        let share = wave * libm::log(filled) + most;
        if share > best.0 {
            best = (share, filled, tile.intensity);
        }
    }
    libm::pow(best.1, wave) * libm::pow(best.2, intensity)
}

/// Slow-down of grouped GEMMs with few tokens per expert; where the stack says how experts run, of the mathematics of
/// weight gradients alone:
///
/// ```text
/// forward, dgrad 1 + 150/tokens     wgrad 1 + 80/tokens          specification §2.2
/// ```
fn grouped_ramp(shape: &GemmShape, pass: Pass) -> f64 {
    if shape.batch <= 1.0 {
        return 1.0;
    }
    match pass {
        Pass::Forward | Pass::Dgrad => 1.0 + ramp::TOKENS / shape.m,
        Pass::Wgrad => 1.0 + ramp::WGRAD / shape.k,
    }
}

/// Parts of a GEMM's time.
struct Parts {
    /// Mathematics, start-up and exposed sums.
    compute: Seconds,
    /// Operands and results.
    memory: Seconds,
    /// Mathematics of one tile on one processor.
    tile: Seconds,
}

impl Parts {
    fn longest(&self) -> Seconds {
        self.compute.max(self.memory)
    }
}

impl Device<'_> {
    /// Time of one GEMM.
    ///
    /// ```text
    /// T_flop = 2·m·n·k·(1 + K0/k) / (P·e_max·q·κ)
    /// T_mem  = (ε·(m·k + k·n) + ω·m·n) / (0.85·BW)
    /// T_acc  = x·(ω − 2)·m·n / (0.85·BW)
    /// T      = ϑ·(max(T_flop + T_acc, T_mem) + t_op)
    /// ```
    ///
    /// T_acc is the time in which a tile reads and writes its fp32 sum after its math, as far as no other tile's math runs
    /// meanwhile ([cutlass-efficient-gemm]; x = `stack.accumulate_exposed`): benchmarks write two bytes.
    ///
    /// ϑ is 1 but for shapes that a calibration timed on the device.
    ///
    /// Source: specification §2.1. A format without a curve (checked in `Problem::new`) runs as bf16.
    pub fn gemm(&self, shape: &GemmShape, format: Format) -> Seconds {
        self.gemm_pass(shape, format, Pass::Forward)
    }

    /// Time of one of a linear map's three GEMMs. A batch is one kernel of equal sizes where the stack says how its experts run
    /// (`stack.expert_streams`); else it has the ramp of grouped GEMMs.
    pub fn gemm_pass(&self, shape: &GemmShape, format: Format, pass: Pass) -> Seconds {
        if shape.m < 1.0 || shape.n < 1.0 || shape.k < 1.0 {
            return Seconds::ZERO;
        }
        let parts = self.parts(shape, format, pass);
        let ramp = if self.stack.expert_streams.is_some() { 1.0 } else { grouped_ramp(shape, pass) };
        let (format, _) = self.curve(format);
        let predicted = (parts.longest() + self.gpu.kernel_gap.value) * ramp * self.timed(shape, format, pass);
        self.metered(&Call::Gemm { shape: *shape, format, pass }, predicted)
    }

    /// Measured time of a GEMM in a loop over that of the curve, ϑ, where a calibration timed this very shape on the
    /// device; else 1.
    fn timed(&self, shape: &GemmShape, format: Format, pass: Pass) -> f64 {
        let GemmShape { m, n, k, batch, output_bytes } = *shape;
        if batch > 1.0 { 1.0 } else { self.gpu.timed_gemms.ratio(format, pass, [m, n, k, output_bytes]) }
    }

    /// Format that GEMMs run in, and its curve: a format without one runs as bf16.
    fn curve(&self, format: Format) -> (Format, &GemmCurve) {
        match self.gpu.gemm.get(&format) {
            Some(curve) => (format, curve),
            None => (Format::Bf16, &self.gpu.gemm[&Format::Bf16]),
        }
    }

    /// Parts of the time of one GEMM, or of a batch; of its ramp, that of weight gradients alone, and where the stack
    /// says how experts run.
    fn parts(&self, shape: &GemmShape, format: Format, pass: Pass) -> Parts {
        let (format, curve) = self.curve(format);
        let peak = self.gpu.peak_of(format).expect("every curve has its peak: Gpu::check");
        let GemmShape { m, n, k, batch, output_bytes } = *shape;
        let processors = f64::from(self.gpu.processors.value);
        let q = tiling(shape, processors, curve);
        let best = peak * (curve.efficiency * curve.sustained);
        let rate = best * q;
        let stated = self.stack.expert_streams.is_some() && batch > 1.0;
        let short = if stated && pass == Pass::Wgrad { grouped_ramp(shape, pass) } else { 1.0 };
        let compute = Flops::new(2.0 * m * n * k * batch * (1.0 + curve.half_depth / k)) / rate * short;
        let operands = format.element_bytes() * (m * k + k * n) + output_bytes * m * n;
        let bandwidth = self.gpu.hbm_bandwidth.value * OPERAND_BANDWIDTH;
        let memory = Bytes::new(batch * operands) / bandwidth;
        let sums = self.stack.accumulate_exposed * (output_bytes - 2.0).max(0.0) * m * n;
        let accumulated = Bytes::new(batch * sums) / bandwidth;
        let of_tile = 2.0 * m.min(apart::TILE) * n.min(apart::TILE) * k * (1.0 + curve.half_depth / k);
        let tile = Flops::new(of_tile * processors) / best;
        Parts { compute: compute + accumulated, memory, tile }
    }

    /// Time of the GEMMs of a batch of experts beyond that of one kernel of equal sizes, as the stack runs them: one
    /// grouped kernel, or one GEMM an expert, on S streams in turn.
    ///
    /// ```text
    /// grouped    T_set
    /// streams    E·( max(T_flop + T_tile/S, T_mem) − max(T_flop, T_mem) ) + (E/S − 1)·t_op
    /// T_tile   = 2·min(m, 128)·min(n, 128)·k·(1 + K0/k)·SM/(P·e_max·κ)
    /// ```
    ///
    /// T_flop and T_mem are an expert's. The last tiles of a GEMM leave the other processors to the S − 1 GEMMs beside it.
    ///
    /// Source: specification §2.2 ([meshwright-silicon]; [transformer-engine] `cublaslt_gemm.cu`, `nvte_multi_stream_cublas_gemm`).
    fn launch_overhead(&self, shape: &GemmShape, format: Format, pass: Pass) -> Seconds {
        let Some(streams) = self.stack.expert_streams else { return Seconds::ZERO };
        if shape.batch <= 1.0 || shape.m < 1.0 || shape.n < 1.0 || shape.k < 1.0 {
            return Seconds::ZERO;
        }
        if streams < 1.0 {
            return apart::SETUP;
        }
        let parts = self.parts(shape, format, pass);
        let last_tiles = parts.tile * (shape.batch / streams);
        let exposed = (parts.compute + last_tiles).max(parts.memory) - parts.longest();
        exposed + self.gpu.kernel_gap.value * (shape.batch / streams - 1.0).max(0.0)
    }

    /// Times of the three GEMMs of a linear map, with the casts of narrow formats.
    ///
    /// Weight gradients accumulate into the gradient buffer (read and write), or are written in bf16 and added by a
    /// separate kernel if the stack does not fuse that. Casts: `QF·q_B` bytes per input element (§2.5).
    pub fn linear(&self, shape: LinearShape, format: Format) -> Linear {
        self.linear_with_casts(shape, format, self.stack.casts)
    }

    /// [`Self::linear`] of experts, as the stack runs a batch of them; no producer fuses their casts where the stack says so.
    pub fn expert_linear(&self, shape: LinearShape, format: Format) -> Linear {
        let mut time = self.linear_with_casts(shape, format, self.stack.expert_casts.unwrap_or(self.stack.casts));
        let [forward, dgrad, wgrad] =
            self.gemms_of(shape).map(|(shape, pass)| self.launch_overhead(&shape, format, pass));
        time += Linear { forward, dgrad, wgrad };
        time
    }

    /// The three GEMMs of a linear map.
    fn gemms_of(&self, LinearShape { tokens, input, output, batch }: LinearShape) -> [(GemmShape, Pass); 3] {
        let shape = |m, n, k, output_bytes| GemmShape { m, n, k, batch, output_bytes };
        let accumulate = if self.stack.fused_wgrad { 2.0 * self.stack.reduce_bytes } else { 2.0 };
        [
            (shape(tokens, output, input, 2.0), Pass::Forward),
            (shape(tokens, input, output, 2.0), Pass::Dgrad),
            (shape(input, output, tokens, accumulate), Pass::Wgrad),
        ]
    }

    /// [`Self::linear`] with a share `casts` of casts that are kernels of their own.
    fn linear_with_casts(&self, shape: LinearShape, format: Format, casts: f64) -> Linear {
        let [forward, dgrad, wgrad] = self.gemms_of(shape).map(|(shape, pass)| self.gemm_pass(&shape, format, pass));
        let mut time = Linear { forward, dgrad, wgrad };
        let LinearShape { tokens, input, output, batch } = shape;
        if !self.stack.fused_wgrad {
            let add = input * output * batch * (2.0 + 2.0 * self.stack.reduce_bytes);
            time.wgrad += self.stream(Bytes::new(add), 1.0);
        }
        if format != Format::Bf16 {
            let cast = format.cast_bytes() * casts * self.stack.cast_passes * tokens * batch;
            time.forward += self.stream(Bytes::new(cast * input), 1.0);
            time.dgrad += self.stream(Bytes::new(cast * output), 1.0);
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation: the formula with its powers.
    fn tiling_by_formula(shape: &GemmShape, processors: f64, curve: &GemmCurve) -> f64 {
        let intensity = |(tm, tn): (f64, f64)| tm * tn / (tm + tn);
        let of_tile = |&(tm, tn): &(f64, f64)| {
            let waves = ((shape.m / tm).ceil() * (shape.n / tn).ceil() * shape.batch / processors).ceil();
            let filled = shape.m * shape.n * shape.batch / (waves * processors * tm * tn);
            libm::pow(filled, curve.wave_exponent)
                * libm::pow(intensity((tm, tn)) / intensity(TILES[0]), curve.intensity_exponent)
        };
        TILES.iter().map(of_tile).fold(0.0, f64::max)
    }

    #[test]
    fn the_best_tiling_is_that_of_the_formula() {
        let sizes = [1.0, 63.0, 64.0, 65.0, 128.0, 200.0, 512.0, 1000.0, 4096.0, 7168.0, 18_432.0];
        for (m, n, batch) in itertools::iproduct!(sizes, sizes, [1.0, 3.0, 16.0]) {
            let shape = GemmShape { m, n, k: 512.0, batch, output_bytes: 2.0 };
            for (intensity_exponent, wave_exponent) in
                itertools::iproduct!([-0.3, 0.0, 0.2, 1.1], [-0.2, 0.0, 0.3, 1.0])
            {
                let (efficiency, half_depth, sustained, source) = (0.9, 100.0, 1.0, String::new());
                let curve = GemmCurve { efficiency, half_depth, intensity_exponent, wave_exponent, sustained, source };
                let (found, plain) = (tiling(&shape, 132.0, &curve), tiling_by_formula(&shape, 132.0, &curve));
                assert!((found - plain).abs() <= 1e-12 * plain, "{shape:?} {curve:?}: {found} {plain}");
            }
        }
    }
}
