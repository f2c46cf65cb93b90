//! Probe of an NVIDIA GPU, through cudarc, which loads driver and libraries on first use.
//!
//! This folder has the only `unsafe` code of the crate. It allocates, fills memory with random data, warms up, and times
//! with device events. Each sample is the mean of as many launches as fill a window, so that the resolution of events does
//! not matter; operands rotate through more memory than the caches hold.
#![allow(unsafe_code)]

mod attention;
mod collective;
mod compile;
mod cudnn;
mod failure;
mod memory;
mod product;
mod timed_product;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compile::libraries;
use cudarc::cublaslt::{result as lt, sys as ltsys};
use cudarc::driver::{CudaContext, result as driver, sys as drv};
use cudarc::nvrtc;
use memory::{Buffer, Events};

use super::kernel::{Direction, Kernel, StreamOp, name_of};
use super::sample::{Machine, Sample};
use super::source::{Effort, Probe, ProbeError};
use crate::probe::cuda::failure::{failed, missing};
use meshwright_engine::units::{Bytes, Seconds};

pub use compile::{HEADS, Source, compile};
pub use cudnn::{LEAST_VERSION as LEAST_CUDNN, Planned, planned, release, version as cudnn_version};

/// Shortest window between two events.
const WINDOW: Duration = Duration::from_micros(200);
/// Largest number of operand sets to rotate.
const MOST_SETS: usize = 16;
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
    products: Option<ltsys::cublasLtHandle_t>,
    processors: u32,
    cache: usize,
    machine: Machine,
    ranks: Option<collective::Communicators>,
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
        if machine.driver.is_empty() {
            machine.driver = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        }
        let arch = format!("compute_{major}{minor}{}", if major >= 9 { "a" } else { "" });
        let functions = Self::load(&compile(Source::Stream, &arch)?)?;
        let stream =
            |what| driver::stream::create(driver::stream::StreamKind::NonBlocking).map_err(|error| failed(what, error));
        let products = if libraries().cublas_lt {
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
            products,
            cudnn: None,
            processors: processors.unsigned_abs(),
            cache: usize::try_from(cache).unwrap_or(0),
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
        self.launch_on(self.stream, (blocks, 256), name, operands, [rows, columns])
    }

    /// Launches a kernel on a stream with a given number of blocks and threads.
    fn launch_on(
        &self,
        stream: drv::CUstream,
        (blocks, threads): (u32, u32),
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
        let launched =
            unsafe { driver::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, stream, &mut arguments) };
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
        let once = self.window(&events, 1, run)?;
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
        // SAFETY: events and stream are of this context and alive.
        unsafe { driver::event::record(events.start, self.stream) }.map_err(|error| failed("cuEventRecord", error))?;
        for at in 0..each {
            run(at)?;
        }
        // SAFETY: as above; both events are recorded when their distance is asked for.
        let ms = unsafe {
            driver::event::record(events.end, self.stream)
                .and_then(|()| driver::event::synchronize(events.end))
                .and_then(|()| driver::event::elapsed(events.start, events.end))
        };
        let ms = ms.map_err(|error| failed("cuEventElapsedTime", error))?;
        Ok(Seconds::micros(f64::from(ms) * 1e3 / each as f64))
    }

    fn stream_op(&self, op: StreamOp, rows: u64, columns: u64, effort: Effort) -> Result<Sample, ProbeError> {
        let elements = (rows * columns) as usize;
        // Bytes of the three operands: what `StreamOp::bytes_per_element` adds up.
        let [a, b, out] = match op {
            StreamOp::Copy | StreamOp::Norm => [2 * elements, 0, 2 * elements],
            StreamOp::NormBackward => [2 * elements, 2 * elements, 2 * elements],
            StreamOp::SwiGlu => [4 * elements, 0, 2 * elements],
            StreamOp::SwiGluBackward => [4 * elements, 2 * elements, 4 * elements],
            StreamOp::CrossEntropy => [2 * elements, 0, 4 * rows as usize],
            StreamOp::CrossEntropyBackward => [2 * elements, 4 * rows as usize, 2 * elements],
            StreamOp::Adam => [16 * elements, 0, 2 * elements],
        };
        let sets: Vec<[Buffer; 3]> = (0..self.sets(a + b + out))
            .map(|_| Ok([self.random(a, "fill")?, self.random(b, "fill")?, self.random(out, "fill")?]))
            .collect::<Result<_, ProbeError>>()?;
        let name = name_of(&StreamOp::NAMED, &op);
        self.sample(effort, &mut |at| {
            let [a, b, out] = &sets[at % sets.len()];
            self.launch(name, [a.at, b.at, out.at], rows, columns)
        })
    }

    fn transfer(&self, direction: Direction, bytes: u64, effort: Effort) -> Result<Sample, ProbeError> {
        let bytes = bytes as usize;
        let device = self.random(bytes, "fill")?;
        // SAFETY: pinned memory of this size, freed below after the last copy; written before it is read.
        let pinned = unsafe { driver::malloc_host(bytes, 0) };
        let host = pinned.map_err(|error| failed(&format!("cuMemHostAlloc of {bytes} bytes"), error))?;
        // SAFETY: the allocation holds `bytes` bytes and lives until `free_host`.
        let view = unsafe {
            std::ptr::write_bytes(host.cast::<u8>(), 0x3c, bytes);
            std::slice::from_raw_parts_mut(host.cast::<u8>(), bytes)
        };
        let sample = self.sample(effort, &mut |_| {
            // SAFETY: both sides hold `bytes` bytes and outlive the copies, which `sample` waits for.
            let copied = unsafe {
                match direction {
                    Direction::ToDevice => driver::memcpy_htod_async(device.at, view, self.stream),
                    Direction::ToHost => driver::memcpy_dtoh_async(view, device.at, self.stream),
                }
            };
            copied.map_err(|error| failed("cuMemcpyAsync", error))
        });
        // SAFETY: the copies are over.
        unsafe { driver::free_host(host) }.map_err(|error| failed("cuMemFreeHost", error))?;
        sample
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
            Kernel::Gemm(gemm) => self.product(gemm, effort),
            Kernel::Sustained(gemm) => self.sustained(gemm, effort),
            Kernel::Contended(gemm) => self.contended(gemm, effort),
            Kernel::Attention(core) => self.attention(core, effort),
            Kernel::Stream { op, rows, columns } => self.stream_op(*op, *rows, *columns, effort),
            Kernel::Transfer { direction, bytes } => self.transfer(*direction, *bytes, effort),
            Kernel::Launch => self.launches(effort),
            Kernel::Collective { .. } => self.collective(kernel, effort),
        }
    }
    fn hold(&mut self, sizes: &[u64]) -> Result<Bytes, ProbeError> {
        let before = self.memory_in_use()?;
        let held: Vec<Buffer> = sizes.iter().map(|&bytes| Buffer::new(bytes as usize)).collect::<Result<_, _>>()?;
        let with = self.memory_in_use()?;
        drop(held);
        Ok(Bytes::new(with.saturating_sub(before) as f64))
    }
}
