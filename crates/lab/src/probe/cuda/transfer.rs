//! Transfers over the host link: with pinned and pageable memory, alone and beside other work.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys as drv};

use super::failure::failed;
use super::memory::Buffer;
use super::{Cuda, Run};
use crate::probe::kernel::{Alongside, Direction, HostTransfer, PageLock};
use crate::probe::sample::Sample;
use crate::probe::shapes;
use crate::probe::source::{Effort, ProbeError};
use meshwright_engine::gpu::Format;

/// Memory of the host: page-locked by the driver, or the allocator's.
enum Host {
    Pinned(*mut c_void),
    Pageable(Vec<u8>),
}

impl Host {
    /// Allocates and writes memory: pages that were never written are not there yet.
    fn new(memory: PageLock, bytes: usize) -> Result<Self, ProbeError> {
        if memory == PageLock::Pageable {
            return Ok(Self::Pageable(vec![0x3c; bytes]));
        }
        // SAFETY: freed on drop, after the last copy.
        let pinned = unsafe { driver::malloc_host(bytes, 0) };
        let at = pinned.map_err(|error| failed(&format!("cuMemHostAlloc of {bytes} bytes"), error))?;
        // SAFETY: the allocation holds `bytes` bytes.
        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0x3c, bytes) };
        Ok(Self::Pinned(at))
    }

    const fn at(&mut self) -> *mut u8 {
        match self {
            Self::Pinned(at) => at.cast(),
            Self::Pageable(bytes) => bytes.as_mut_ptr(),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Self::Pinned(at) = *self {
            // SAFETY: allocated by `new`, freed once.
            let _ = unsafe { driver::free_host(at) };
        }
    }
}

/// One side of a transfer on the host, and the other on the device.
struct Sides {
    host: Host,
    device: Buffer,
}

impl Cuda {
    /// Times a transfer.
    pub(super) fn transfer(&self, transfer: &HostTransfer, effort: Effort) -> Result<Sample, ProbeError> {
        let HostTransfer { direction, bytes, memory, beside } = *transfer;
        let bytes = bytes as usize;
        let sides = |memory| Ok(Sides { host: Host::new(memory, bytes)?, device: self.random(bytes, "fill")? });
        let (mut main, mut other): (Sides, Sides) = (sides(memory)?, sides(PageLock::Pinned)?);
        let mut gemm: Option<Run<'_>> = match beside {
            Alongside::Gemm => Some(self.gemm(&shapes::large(Format::Bf16), self.beside, 1)?),
            Alongside::Nothing | Alongside::OtherWay => None,
        };
        let opposite = match direction {
            Direction::ToDevice => Direction::ToHost,
            Direction::ToHost => Direction::ToDevice,
        };
        let sample = self.sample(effort, &mut |at| {
            match beside {
                Alongside::Nothing => {}
                // Two, so that the other direction is busy to the end of the transfer.
                Alongside::OtherWay => {
                    for _ in 0..2 {
                        copy(opposite, &mut other, bytes, self.beside)?;
                    }
                }
                Alongside::Gemm => {
                    for _ in 0..BESIDE_GEMMS {
                        gemm.as_mut().map_or(Ok(()), |run| run(at))?;
                    }
                }
            }
            copy(direction, &mut main, bytes, self.stream)
        });
        // Memory must not be freed while a copy runs.
        self.synchronize()?;
        sample
    }
}

/// GEMMs beside one transfer: 256 MiB take 4.2 ms at 64 GB/s, and a large GEMM takes 1.1 ms at the peak of an H100.
const BESIDE_GEMMS: u32 = 6;

fn copy(direction: Direction, sides: &mut Sides, bytes: usize, stream: drv::CUstream) -> Result<(), ProbeError> {
    let Sides { host, device } = sides;
    // SAFETY: the host's memory holds `bytes` bytes and lives until the copies are over.
    let view = unsafe { std::slice::from_raw_parts_mut(host.at(), bytes) };
    // SAFETY: as above; so does the device's.
    let copied = unsafe {
        match direction {
            Direction::ToDevice => driver::memcpy_htod_async(device.at, view, stream),
            Direction::ToHost => driver::memcpy_dtoh_async(view, device.at, stream),
        }
    };
    copied.map_err(|error| failed("cuMemcpyAsync", error))
}
