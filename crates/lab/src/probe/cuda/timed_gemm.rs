//! Timed GEMMs in a loop, after a sustained load and beside copies, with the algorithm that cuBLASLt proposes first, as frameworks
//! run them.

use std::time::{Duration, Instant};

use cudarc::cublaslt::sys as ltsys;
use cudarc::driver::{result as driver, sys as drv};

use super::cublas_gemm::{CublasGemm, WORKSPACE};
use super::failure::{failed, missing};
use super::memory::{Buffer, Events};
use super::{Cuda, Grid, MOST_SETS, Run};
use crate::probe::kernel::Gemm;
use crate::probe::sample::Sample;
use crate::probe::source::{Effort, ProbeError};
use meshwright_engine::gpu::Format;
use meshwright_engine::units::Seconds;

/// Blocks, and threads of each, of the copy that stands for communication beside a GEMM. Source: specification §5.1 (NCCL
/// uses 16 to 32 channels).
const CHANNELS: Grid = Grid { blocks: 24, threads: 512 };
/// GEMMs in a row beside such copies.
const IN_A_ROW: usize = 8;
/// Bytes of one such copy; larger than the caches.
const COPIED: usize = 64 << 20;

/// Number of copies that last a tenth longer than the GEMMs.
fn copies_beside(gemms: Seconds, copy: Seconds) -> u32 {
    (1.1 * gemms.get() / copy.get().max(1e-9)).ceil().clamp(1.0, 400.0) as u32
}

impl Cuda {
    /// Times a GEMM after seconds of sustained load.
    pub(super) fn sustained(&self, gemm: &Gemm, effort: Effort) -> Result<Sample, ProbeError> {
        let mut run = self.gemm(gemm, self.stream, MOST_SETS)?;
        let until = Instant::now() + Duration::from_secs(u64::from(effort.soak_seconds));
        while Instant::now() < until {
            for at in 0..50 {
                run(at)?;
            }
            self.synchronize()?;
        }
        self.sample(Effort { warm_up: 0, ..effort }, &mut |at| run(at))
    }

    /// Times a GEMM while copies with as many blocks as NCCL has channels run beside it.
    ///
    /// GEMMs in a row keep the device as busy as in a step. There are enough copies to last as long as the row; both streams are
    /// empty before the next row, since copies that queue up would hold back the launch of GEMMs.
    pub(super) fn contended(&self, gemm: &Gemm, effort: Effort) -> Result<Sample, ProbeError> {
        let mut run = self.gemm(gemm, self.stream, MOST_SETS)?;
        let (from, to) = (self.random(COPIED, "fill")?, Buffer::new(COPIED)?);
        let size = [1, COPIED as u64 / 2];
        let copy = |stream| self.launch_on(stream, CHANNELS, "copy", [from.at, from.at, to.at], size);
        let (events, beside) = (Events::new()?, Events::new()?);
        run(0)?;
        let gemm_time = self.window(&events, 3, &mut run)?;
        let copy_time = self.window(&events, 3, &mut |_| copy(self.stream))?;
        let (mut copies, heat) =
            (copies_beside(gemm_time * IN_A_ROW as f64, copy_time), f64::from(effort.heat_ms) * 1e-3);
        let (mut times, mut heated) = (Vec::new(), 0.0);
        while times.len() < effort.repeats.max(1) as usize {
            self.synchronize()?;
            beside.start(self.beside)?;
            (0..copies).try_for_each(|_| copy(self.beside))?;
            beside.end(self.beside)?;
            let time = self.window(&events, IN_A_ROW, &mut run)?;
            if heated >= heat {
                times.push(time);
                continue;
            }
            heated += time.get() * IN_A_ROW as f64;
            self.synchronize()?;
            copies = copies_beside(time * IN_A_ROW as f64, beside.elapsed()? / f64::from(copies));
        }
        self.synchronize()?;
        Sample::new(times).map_err(|why| failed("cuEventElapsedTime", why))
    }

    /// Launch of a GEMM with the first algorithm that cuBLASLt proposes, on a stream.
    ///
    /// PyTorch and Transformer Engine run that one ([transformer-engine] `cublaslt_gemm.cu` asks for one algorithm). Which of
    /// several is the fastest in short loops varies from run to run: at rest the clocks are higher than under the power limit.
    pub(super) fn gemm(&self, gemm: &Gemm, stream: drv::CUstream, most_sets: usize) -> Result<Run<'_>, ProbeError> {
        let Some(handle) = self.cublas_lt else {
            return Err(missing(
                "libcublasLt.so was not found: GEMMs cannot run",
                "pip install nvidia-cublas-cu12, and put its lib folder on LD_LIBRARY_PATH",
            ));
        };
        let wide = match gemm.format {
            Format::Bf16 => 2,
            Format::Fp8 => 1,
            Format::Fp8Block | Format::Mxfp8 | Format::Nvfp4 => {
                return Err(ProbeError::Unsupported {
                    kernel: gemm.to_string(),
                    why: "block-scaled GEMMs are not supported: bf16 and fp8 are".into(),
                });
            }
        };
        let fill = if wide == 2 { "fill" } else { "fill_bytes" };
        let Gemm { m, n, k, batch, output_bytes, .. } = *gemm;
        let bytes = |rows: u64, columns: u64, each: usize| (rows * columns * batch) as usize * each;
        let stored = if output_bytes >= 8 { 4 } else { 2 };
        let all = bytes(m, k, wide) + bytes(n, k, wide) + bytes(m, n, stored);
        // [m, k], [n, k] and the output, in as many copies as rotation through the cache needs.
        let sets: Vec<[Buffer; 3]> = (0..self.sets(all).min(most_sets))
            .map(|_| {
                let (a, b) = (self.random(bytes(m, k, wide), fill)?, self.random(bytes(n, k, wide), fill)?);
                Ok([a, b, self.random(bytes(m, n, stored), "fill")?])
            })
            .collect::<Result<_, ProbeError>>()?;
        let scale = self.random(16, "fill")?;
        let one = [1.0_f32];
        // SAFETY: four bytes into a buffer of sixteen.
        unsafe { driver::memcpy_htod_sync(scale.at, &one) }.map_err(|error| failed("cuMemcpyHtoD", error))?;
        let workspace = Buffer::new(WORKSPACE)?;
        let cublas = CublasGemm::new(gemm, handle, &scale)?;
        let first =
            |algorithm: &ltsys::cublasLtMatmulAlgo_t| cublas.run(algorithm, &sets[0], &workspace, stream).is_ok();
        // A proposed algorithm that fails is skipped.
        let Some(algorithm) = cublas.algorithms()?.into_iter().find(first) else {
            return Err(ProbeError::Unsupported {
                kernel: gemm.to_string(),
                why: "cuBLASLt has no algorithm for it".into(),
            });
        };
        Ok(Box::new(move |at| {
            let _kept = &scale;
            cublas.run(&algorithm, &sets[at % sets.len()], &workspace, stream)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_outlast_the_gemm_and_fit_the_queue() {
        for (gemm, copy, count) in [(1400.0, 250.0, 7), (10.0, 250.0, 1), (1e6, 1.0, 400)] {
            assert_eq!(copies_beside(Seconds::micros(gemm), Seconds::micros(copy)), count);
        }
    }
}
