//! Owned device memory and events, freed on drop.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys as drv};

use super::failure::failed;
use crate::probe::source::ProbeError;
use meshwright_engine::units::Seconds;

/// Owned device memory.
pub struct Buffer {
    /// Address on the device.
    pub at: drv::CUdeviceptr,
    /// Size in bytes.
    pub bytes: usize,
}

impl Buffer {
    /// Allocates uninitialised memory of at least 16 bytes.
    pub fn new(bytes: usize) -> Result<Self, ProbeError> {
        // SAFETY: the context is current on this thread; the memory is written before it is read.
        let at = unsafe { driver::malloc_sync(bytes.max(16)) };
        let at = at.map_err(|error| failed(&format!("cuMemAlloc of {bytes} bytes"), error))?;
        Ok(Self { at, bytes: bytes.max(16) })
    }

    /// Address as a pointer for library calls.
    pub const fn pointer(&self) -> *mut c_void {
        self.at as *mut c_void
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once; cuMemFree waits for work that uses it.
        let _ = unsafe { driver::free_sync(self.at) };
    }
}

/// Owned pair of events.
pub struct Events {
    /// Event recorded before the work.
    pub start: drv::CUevent,
    /// Event recorded after the work.
    pub end: drv::CUevent,
}

impl Events {
    /// Creates events with timing.
    pub fn new() -> Result<Self, ProbeError> {
        // cudarc's default flag disables timing.
        let new = || driver::event::create(drv::CUevent_flags::CU_EVENT_DEFAULT);
        let start = new().map_err(|error| failed("cuEventCreate", error))?;
        let end = new().map_err(|error| failed("cuEventCreate", error))?;
        Ok(Self { start, end })
    }

    /// Records the first event on a stream.
    pub fn start(&self, stream: drv::CUstream) -> Result<(), ProbeError> {
        // SAFETY: the event and the stream are of the current context and alive.
        unsafe { driver::event::record(self.start, stream) }.map_err(|error| failed("cuEventRecord", error))
    }

    /// Records the second event on a stream.
    pub fn end(&self, stream: drv::CUstream) -> Result<(), ProbeError> {
        // SAFETY: as for `start`.
        unsafe { driver::event::record(self.end, stream) }.map_err(|error| failed("cuEventRecord", error))
    }

    /// Time between both events; waits for the second.
    pub fn elapsed(&self) -> Result<Seconds, ProbeError> {
        // SAFETY: both events live and are recorded.
        let ms =
            unsafe { driver::event::synchronize(self.end).and_then(|()| driver::event::elapsed(self.start, self.end)) };
        ms.map(|ms| Seconds::micros(f64::from(ms) * 1e3)).map_err(|error| failed("cuEventElapsedTime", error))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = driver::event::destroy(self.start);
            let _ = driver::event::destroy(self.end);
        }
    }
}
