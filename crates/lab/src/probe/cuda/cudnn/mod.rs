//! Attention through cuDNN, as frameworks run it: executes the graph of [`crate::probe::sdpa`] on the library's backend.

mod descriptor;
mod execute;
mod plan;

use cudarc::cudnn::sys;

use super::compile::libraries;

use crate::probe::kernel::{Attention, Kernel};
use crate::probe::sdpa::{self, Graph};
use crate::probe::source::ProbeError;
use descriptor::check_status;
use meshwright_engine::kernel::Pass;
use plan::{ExecutionPlan, PlanDevice};

/// Oldest release that is used. The two releases before it compute attention incorrectly. Source: [cudnn-frontend],
/// `sdpa_support_surface.h`.
pub const LEAST_VERSION: usize = 91_002;
/// Last release in which backward reads past the keys unless their number is a multiple of the second value. Source:
/// [cudnn-frontend], the padding that it works around with.
const PADDED: (usize, u64) = (91_500, 128);
/// Instruction for a missing or outdated library.
const REMEDY: &str = "pip install nvidia-cudnn-cu12, and put its lib folder on LD_LIBRARY_PATH";

/// Version that the loader finds, as 92800 for 9.28.0; `None` without the library.
pub fn version() -> Option<usize> {
    // SAFETY: the library is there, and the function only answers.
    libraries().cudnn.then(|| unsafe { sys::cudnnGetVersion() })
}

/// Version in its usual form, such as 9.28.0.
pub fn release(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// Reason why this version cannot run a core, if any.
fn unsupported(core: &Attention, version: Option<usize>) -> Option<String> {
    let Attention { kernel: _, pass, sequences: _, heads, kv_heads, queries: _, keys, qk_dim: _, v_dim: _, mask: _ } =
        *core;
    let Some(version) = version else {
        return Some(format!("libcudnn.so.9 was not found ({REMEDY}); the probe's own attention bounds it"));
    };
    if version < LEAST_VERSION {
        let (is, least) = (release(version), release(LEAST_VERSION));
        Some(format!("cuDNN {is} is older than {least} ({REMEDY}); the probe's own attention bounds it"))
    } else if pass == Pass::Wgrad {
        Some("attention has no weights".into())
    } else if !heads.is_multiple_of(kv_heads) {
        Some(format!("{heads} query heads do not share {kv_heads} heads of keys evenly"))
    } else if pass == Pass::Dgrad && version <= PADDED.0 && !keys.is_multiple_of(PADDED.1) {
        Some(format!("cuDNN {} runs backward of a multiple of {} keys only", release(version), PADDED.1))
    } else {
        None
    }
}

/// Error of a core that cannot run.
fn refused(core: &Attention, why: String) -> ProbeError {
    ProbeError::Unsupported { kernel: Kernel::Attention(*core).to_string(), why }
}

/// Kernels of a core, if this version supports them.
fn kernels(core: &Attention) -> Result<Vec<Attention>, ProbeError> {
    let uneven =
        "cuDNN runs a share of the queries as two whole chunks of the keys; the probe's own attention bounds it";
    let kernels = sdpa::kernels(core).ok_or_else(|| refused(core, uneven.into()))?;
    let version = version();
    match kernels.iter().find_map(|kernel| unsupported(kernel, version)) {
        Some(why) => Err(refused(core, why)),
        None => Ok(kernels),
    }
}

/// Execution plan for a device that need not be present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Engine number of the library.
    pub engine: i64,
    /// Workspace of the engine in bytes.
    pub workspace: usize,
}

/// Builds the plans of a core for a device described by its properties (JSON, as the library writes them), up to execution.
///
/// # Errors
///
/// The library is missing, or has no engine for the core.
pub fn planned(core: &Attention, properties: &str) -> Result<Vec<Planned>, ProbeError> {
    let kernels = kernels(core)?;
    let device = PlanDevice::described(properties)?;
    let planned = |kernel: &Attention| {
        let ExecutionPlan { engine, workspace, .. } = ExecutionPlan::new(&Graph::of(kernel), &device)?;
        Ok(Planned { engine, workspace })
    };
    kernels.iter().map(planned).collect()
}

/// Library handle for a device.
pub(super) struct Cudnn(sys::cudnnHandle_t);

impl Cudnn {
    fn open(stream: cudarc::driver::sys::CUstream) -> Result<Self, ProbeError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library writes one pointer; the context is current on this thread.
        check_status("cudnnCreate", unsafe { sys::cudnnCreate(&raw mut handle) })?;
        let opened = Self(handle);
        // SAFETY: the handle and the stream live, and are of one context.
        check_status("cudnnSetStream", unsafe { sys::cudnnSetStream(handle, stream.cast()) })?;
        Ok(opened)
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        // SAFETY: made by `open`, destroyed once.
        let _ = unsafe { sys::cudnnDestroy(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_version_runs_is_told_from_what_an_old_one_cannot() {
        let text =
            "attention cudnn dgrad sequences=1 heads=6 kv_heads=2 queries=4000 keys=4000 qk=128 v=128 mask=causal";
        let Kernel::Attention(core) = text.parse().unwrap() else { unreachable!() };
        let says = |core: &Attention, version| unsupported(core, version).unwrap_or_default();
        assert!(says(&core, None).contains("pip install nvidia-cudnn-cu12"));
        assert!(says(&core, Some(90_100)).contains("cuDNN 9.1.0 is older than 9.10.2"));
        assert!(says(&core, Some(91_002)).contains("cuDNN 9.10.2 runs backward of a multiple of 128 keys only"));
        assert_eq!(says(&core, Some(91_600)), "");
        assert_eq!(says(&Attention { pass: Pass::Forward, ..core }, Some(91_002)), "");
        assert!(says(&Attention { kv_heads: 4, ..core }, Some(92_800)).contains("do not share"));
    }
}
