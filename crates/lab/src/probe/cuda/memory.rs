//! Device memory and events that free themselves.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys as drv};

use super::failed;
use crate::probe::ProbeError;

/// Device memory that frees itself.
pub struct Buffer {
    /// Address.
    pub at: drv::CUdeviceptr,
    /// Size.
    pub bytes: usize,
}

impl Buffer {
    /// At least 16 bytes, unwritten.
    pub fn new(bytes: usize) -> Result<Self, ProbeError> {
        // SAFETY: the context is current on this thread; the memory is written before it is read.
        let at = unsafe { driver::malloc_sync(bytes.max(16)) };
        let at = at.map_err(|error| failed(&format!("cuMemAlloc of {bytes} bytes"), error))?;
        Ok(Self { at, bytes: bytes.max(16) })
    }

    /// As the libraries want it.
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

/// A pair of events that frees itself.
pub struct Events {
    /// Recorded before.
    pub start: drv::CUevent,
    /// Recorded after.
    pub end: drv::CUevent,
}

impl Events {
    /// Events that keep time.
    pub fn new() -> Result<Self, ProbeError> {
        // Without the flag cudarc's events would not keep time.
        let new = || driver::event::create(drv::CUevent_flags::CU_EVENT_DEFAULT);
        let start = new().map_err(|error| failed("cuEventCreate", error))?;
        let end = new().map_err(|error| failed("cuEventCreate", error))?;
        Ok(Self { start, end })
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
