//! Probe of an NVIDIA GPU, through cudarc, which loads driver and libraries on first use.
//!
//! This folder has the only `unsafe` code of the crate. It allocates, fills memory with random data, warms up, and times
//! with device events. Each sample is the mean of as many launches as fill a window, so that the resolution of events does
//! not matter; operands rotate through more memory than the caches hold.
#![allow(unsafe_code)]

mod attention;
mod collective;
mod compile;
mod cublas_gemm;
mod cudnn;
mod failure;
mod management;
mod memory;
mod timed_gemm;
mod transfer;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compile::libraries;
use cudarc::cublaslt::{result as lt, sys as ltsys};
use cudarc::driver::{CudaContext, result as driver, sys as drv};
use cudarc::nvrtc;
use management::PciAddress;
use memory::{Buffer, Events};

use super::kernel::{Fused, Kernel, StreamOp, name_of};
use super::sample::{Machine, Sample};
use super::source::{Effort, Probe, ProbeError};
use crate::probe::cuda::failure::{failed, missing};
use meshwright_engine::gpu::AttentionKernel;
use meshwright_engine::units::{Bytes, Seconds};

pub use compile::{HEADS, Source, compile};
pub use cudnn::{LEAST_VERSION as LEAST_CUDNN, Planned, planned, release, version as cudnn_version};

/// Shortest window between two events.
const WINDOW: Duration = Duration::from_micros(200);
/// Largest number of operand sets to rotate.
const MOST_SETS: usize = 16;
/// Largest number of operand sets of each kernel of a layer: launches of one kernel in a row do not find their operands in the
/// cache, and the layers of large models still fit in memory.
const SETS_TOGETHER: usize = 4;
/// Number of launches of an empty kernel to time together; the driver queues about a thousand.
const LAUNCHES: u32 = 500;

/// Launch function of one kernel; its argument is the number of the launch.
type Run<'a> = Box<dyn FnMut(usize) -> Result<(), ProbeError> + 'a>;

/// Opened GPU of this host.
pub struct Cuda {
    // Declared first, so that it is destroyed before its context is released.
    cudnn: Option<cudnn::Cudnn>,
    context: Arc<CudaContext>,
    stream: drv::CUstream,
    beside: drv::CUstream,
    functions: BTreeMap<&'static str, drv::CUfunction>,
    arch: String,
    attention: BTreeMap<(u64, u64), attention::Functions>,
    cublas_lt: Option<ltsys::cublasLtHandle_t>,
    processors: u32,
    cache: usize,
    address: PciAddress,
    machine: Machine,
    ranks: Option<collective::Communicators>,
}

/// Blocks of a launch, and threads of each.
#[derive(Clone, Copy)]
struct Grid {
    blocks: u32,
    threads: u32,
}

impl Cuda {
    /// Opens a device and compiles the kernels for it.
    ///
    /// # Errors
    ///
    /// The driver, device or NVRTC is missing.
    pub fn open(ordinal: usize, mut machine: Machine) -> Result<Self, ProbeError> {
        if !libraries().driver {
            return Err(missing(
                "libcuda.so was not found: there is no NVIDIA driver on this host",
                "install the NVIDIA driver, or give samples that were taken elsewhere with --probe FILE",
            ));
        }
        // cudarc panics if the driver lacks a function, which means that the driver is too old.
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let opened = std::panic::catch_unwind(|| Self::context(ordinal));
        std::panic::set_hook(quiet);
        let (context, version) = opened.map_err(|_| {
            missing("the NVIDIA driver lacks functions of CUDA 12.8", "install a driver of version 570 or later")
        })??;
        let attribute = |which| context.attribute(which).map_err(|error| failed("cuDeviceGetAttribute", error));
        let processors = attribute(drv::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let cache = attribute(drv::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let (major, minor) = context.compute_capability().map_err(|error| failed("cuDeviceGetAttribute", error))?;
        machine.device = context.name().map_err(|error| failed("cuDeviceGetName", error))?;
        let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        machine.driver = management::driver().map_or_else(|| cuda.clone(), |driver| format!("{driver} ({cuda})"));
        machine.libraries = management::versions();
        let address = PciAddress::of(&context).map_err(|error| failed("cuDeviceGetAttribute", error))?;
        machine.state = address.state();
        let arch = format!("compute_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let functions = Self::load(&compile(Source::Stream, &arch)?)?;
        let stream =
            |what| driver::stream::create(driver::stream::StreamKind::NonBlocking).map_err(|error| failed(what, error));
        let cublas_lt = if libraries().cublas_lt {
            Some(lt::create_handle().map_err(|error| failed("cublasLtCreate", error))?)
        } else {
            None
        };
        Ok(Self {
            stream: stream("cuStreamCreate")?,
            beside: stream("cuStreamCreate")?,
            context,
            functions,
            arch,
            attention: BTreeMap::new(),
            cublas_lt,
            cudnn: None,
            processors: processors.unsigned_abs(),
            cache: usize::try_from(cache).unwrap_or(0),
            address,
            machine,
            ranks: None,
        })
    }

    fn context(ordinal: usize) -> Result<(Arc<CudaContext>, i32), ProbeError> {
        let no_device = |error: driver::DriverError| {
            let why = format!("the driver finds no GPU: {error:?}");
            missing(why, "see what `nvidia-smi` says; in a container, pass the GPUs in (--gpus all)")
        };
        driver::init().map_err(no_device)?;
        let devices = driver::device::get_count().map_err(no_device)?;
        if ordinal >= usize::try_from(devices).unwrap_or(0) {
            return Err(missing(
                format!("there is no GPU {ordinal}: the driver shows {devices}"),
                "--device N, and see CUDA_VISIBLE_DEVICES",
            ));
        }
        let mut version = 0;
        // SAFETY: writes one integer.
        let status = unsafe { drv::cuDriverGetVersion(&raw mut version) };
        status.result().map_err(|error| failed("cuDriverGetVersion", error))?;
        let context = CudaContext::new(ordinal).map_err(|error| failed("cuDevicePrimaryCtxRetain", error))?;
        Ok((context, version))
    }

    fn load(ptx: &nvrtc::Ptx) -> Result<BTreeMap<&'static str, drv::CUfunction>, ProbeError> {
        let names = ["empty", "fill", "fill_bytes"].into_iter().chain(StreamOp::NAMED.map(|(name, _)| name));
        let module = compile::module(ptx, "kernels/stream.cu")?;
        names.map(|name| Ok((name, compile::function(module, name)?))).collect()
    }

    /// Device memory in use by all processes.
    fn memory_in_use(&self) -> Result<usize, ProbeError> {
        let (free, total) = self.context.mem_get_info().map_err(|error| failed("cuMemGetInfo", error))?;
        Ok(total - free)
    }

    fn synchronize(&self) -> Result<(), ProbeError> {
        self.context.synchronize().map_err(|error| failed("cuCtxSynchronize", error))
    }

    /// Launches a kernel of `kernels/stream.cu` over `rows` × `columns`.
    fn launch(&self, name: &str, operands: [u64; 3], rows: u64, columns: u64) -> Result<(), ProbeError> {
        let blocks = if name == "empty" { 1 } else { self.processors * 8 };
        self.launch_on(self.stream, Grid { blocks, threads: 256 }, name, operands, [rows, columns])
    }

    /// Launches a kernel on a stream.
    fn launch_on(
        &self,
        stream: drv::CUstream,
        grid: Grid,
        name: &str,
        [mut a, mut b, mut out]: [u64; 3],
        [mut rows, mut columns]: [u64; 2],
    ) -> Result<(), ProbeError> {
        let Some(&function) = self.functions.get(name) else {
            return Err(failed(name, "no such kernel"));
        };
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut a).cast(),
            (&raw mut b).cast(),
            (&raw mut out).cast(),
            (&raw mut rows).cast(),
            (&raw mut columns).cast(),
        ];
        // SAFETY: the five arguments are those of every kernel of the file; the callers size the operands by the kernel.
        let (blocks, threads) = ((grid.blocks, 1, 1), (grid.threads, 1, 1));
        let launched = unsafe { driver::launch_kernel(function, blocks, threads, 0, stream, &mut arguments) };
        launched.map_err(|error| failed(&format!("launch of {name}"), error))
    }

    /// Allocates random bf16 data (or bytes that are finite in 8-bit formats).
    fn random(&self, bytes: usize, fill: &str) -> Result<Buffer, ProbeError> {
        let buffer = Buffer::new(bytes.next_multiple_of(16))?;
        let elements = if fill == "fill" { buffer.bytes / 2 } else { buffer.bytes };
        self.launch(fill, [buffer.at, buffer.at, buffer.at], 1, elements as u64)?;
        Ok(buffer)
    }

    /// Number of operand sets of `bytes` that evict the first set from the cache before it is used again.
    fn sets(&self, bytes: usize) -> usize {
        (self.cache * 3).div_ceil(bytes.max(1)).clamp(1, MOST_SETS)
    }

    /// Times `run`, whose argument is the number of the launch.
    fn sample(
        &self,
        effort: Effort,
        run: &mut dyn FnMut(usize) -> Result<(), ProbeError>,
    ) -> Result<Sample, ProbeError> {
        let events = Events::new()?;
        for at in 0..effort.warm_up as usize {
            run(at)?;
        }
        let mut once = self.window(&events, 1, run)?;
        let (mut heated, heat) = (once, Seconds::new(f64::from(effort.heat_ms) * 1e-3));
        while heated < heat {
            let each = ((heat - heated) / once / 4.0).ceil().clamp(1.0, 1000.0) as usize;
            once = self.window(&events, each, run)?;
            heated += once * each as f64;
        }
        let each = (WINDOW.as_secs_f64() / once.get().max(1e-7)).ceil().clamp(1.0, 1000.0) as usize;
        let times: Vec<Seconds> =
            (0..effort.repeats.max(1)).map(|_| self.window(&events, each, run)).collect::<Result<_, _>>()?;
        Sample::new(times).map_err(|why| failed("cuEventElapsedTime", why))
    }

    /// Mean time of `each` launches between two events.
    fn window(
        &self,
        events: &Events,
        each: usize,
        run: &mut dyn FnMut(usize) -> Result<(), ProbeError>,
    ) -> Result<Seconds, ProbeError> {
        events.start(self.stream)?;
        for at in 0..each {
            run(at)?;
        }
        events.end(self.stream)?;
        Ok(events.elapsed()? / each as f64)
    }

    fn stream_op(&self, op: StreamOp, rows: u64, columns: u64, most_sets: usize) -> Result<Run<'_>, ProbeError> {
        let elements = (rows * columns) as usize;
        // Bytes of the three operands, as `StreamOp::bytes_per_element` adds them up.
        let [a, b, out] = match op {
            StreamOp::Copy | StreamOp::Norm => [2 * elements, 0, 2 * elements],
            StreamOp::NormBackward => [2 * elements, 2 * elements, 2 * elements],
            StreamOp::SwiGlu => [4 * elements, 0, 2 * elements],
            StreamOp::SwiGluBackward => [4 * elements, 2 * elements, 4 * elements],
            StreamOp::CrossEntropy => [2 * elements, 0, 4 * rows as usize],
            StreamOp::CrossEntropyBackward => [2 * elements, 4 * rows as usize, 2 * elements],
            StreamOp::Adam => [16 * elements, 0, 2 * elements],
        };
        let sets: Vec<[Buffer; 3]> = (0..self.sets(a + b + out).min(most_sets))
            .map(|_| Ok([self.random(a, "fill")?, self.random(b, "fill")?, self.random(out, "fill")?]))
            .collect::<Result<_, ProbeError>>()?;
        let name = name_of(&StreamOp::NAMED, &op);
        Ok(Box::new(move |at| {
            let [a, b, out] = &sets[at % sets.len()];
            self.launch(name, [a.at, b.at, out.at], rows, columns)
        }))
    }

    /// Opens and compiles the libraries of a kernel.
    fn make_ready(&mut self, kernel: &Kernel) -> Result<(), ProbeError> {
        let Kernel::Attention(core) = kernel else { return Ok(()) };
        if core.kernel == Fused::Library(AttentionKernel::Cudnn) { self.open_cudnn(core) } else { self.compile(core) }
    }

    /// Launch of a kernel that [`make_ready`](Self::make_ready) has seen, with operands in at most `most_sets` sets.
    fn launch_of(&self, kernel: &Kernel, most_sets: usize) -> Result<Run<'_>, ProbeError> {
        match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm, self.stream, most_sets),
            Kernel::Attention(core) if core.kernel == Fused::Library(AttentionKernel::Cudnn) => {
                self.library_attention(core, most_sets)
            }
            Kernel::Attention(core) => self.own_attention(core, most_sets),
            Kernel::Stream { op, rows, columns } => self.stream_op(*op, *rows, *columns, most_sets),
            Kernel::Contended(_)
            | Kernel::Sustained(_)
            | Kernel::Transfer(_)
            | Kernel::Launch
            | Kernel::Collective { .. } => Err(ProbeError::Unsupported {
                kernel: kernel.to_string(),
                why: "it is no single kernel of one GPU".into(),
            }),
        }
    }

    /// Host time of a launch that does not wait for the device.
    fn launches(&self, effort: Effort) -> Result<Sample, ProbeError> {
        let mut times = Vec::new();
        for _ in 0..effort.repeats.max(1) {
            self.synchronize()?;
            let start = Instant::now();
            for _ in 0..LAUNCHES {
                self.launch("empty", [0; 3], 0, 0)?;
            }
            times.push(Seconds::new(start.elapsed().as_secs_f64() / f64::from(LAUNCHES)));
        }
        Sample::new(times).map_err(|why| failed("launches", why))
    }
}

impl Probe for Cuda {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn time(&mut self, kernel: &Kernel, effort: Effort) -> Result<Sample, ProbeError> {
        match kernel {
            Kernel::Gemm(_) | Kernel::Attention(_) | Kernel::Stream { .. } => {
                self.make_ready(kernel)?;
                let mut run = self.launch_of(kernel, MOST_SETS)?;
                self.sample(effort, &mut run)
            }
            Kernel::Sustained(gemm) => {
                let sample = self.sustained(gemm, effort)?;
                let after = format!("after {} s of {} GEMMs", effort.soak_seconds, gemm.format);
                self.machine.state.extend(self.address.under_load().map(|load| format!("{load} {after}")));
                Ok(sample)
            }
            Kernel::Contended(gemm) => self.contended(gemm, effort),
            Kernel::Transfer(transfer) => self.transfer(transfer, effort),
            Kernel::Launch => self.launches(effort),
            Kernel::Collective { .. } => self.collective(kernel, effort),
        }
    }

    fn together(&mut self, kernels: &[Kernel], effort: Effort) -> Result<Sample, ProbeError> {
        kernels.iter().try_for_each(|kernel| self.make_ready(kernel))?;
        let mut runs: BTreeMap<Kernel, (usize, Run<'_>)> = BTreeMap::new();
        for kernel in kernels {
            if !runs.contains_key(kernel) {
                runs.insert(*kernel, (0, self.launch_of(kernel, SETS_TOGETHER)?));
            }
        }
        self.sample(effort, &mut |_| {
            kernels.iter().try_for_each(|kernel| {
                let Some((launches, run)) = runs.get_mut(kernel) else { return Ok(()) };
                *launches += 1;
                run(*launches)
            })
        })
    }

    fn hold(&mut self, sizes: &[u64]) -> Result<Bytes, ProbeError> {
        let before = self.memory_in_use()?;
        let held: Vec<Buffer> = sizes.iter().map(|&bytes| Buffer::new(bytes as usize)).collect::<Result<_, _>>()?;
        let with = self.memory_in_use()?;
        drop(held);
        Ok(Bytes::new(with.saturating_sub(before) as f64))
    }
}
