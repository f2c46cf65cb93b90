//! Dynamic libraries that are present, and compilation of the probe's kernels with NVRTC.

use std::ffi::CString;

use cudarc::driver::{result as driver, sys as drv};
use cudarc::{cublaslt, cudnn, nccl, nvrtc};

use super::failure::{failed, missing};
use crate::probe::source::ProbeError;

/// Source text of the streaming kernels.
const STREAM: &str = include_str!("../kernels/stream.cu");
/// Source text of the attention kernels and of the warp-wide PTX primitives that they use [ptx-isa].
const ATTENTION: [&str; 2] = [include_str!("../kernels/warp.cu"), include_str!("../kernels/attention.cu")];
/// Head dimensions (of queries and keys, of values) for which the attention kernels are compiled.
pub const HEADS: [(u64, u64); 4] = [(64, 64), (96, 96), (128, 128), (192, 128)];

/// Libraries that the loader finds.
#[derive(Clone, Copy, Debug)]
pub struct Libraries {
    /// CUDA driver, without which nothing runs.
    pub driver: bool,
    /// NVRTC, the compiler of the probe's kernels.
    pub nvrtc: bool,
    /// cuBLASLt, for GEMMs.
    pub cublas_lt: bool,
    /// cuDNN, for attention as frameworks run it.
    pub cudnn: bool,
    /// NCCL, for collectives.
    pub nccl: bool,
}

/// Tries to open each library.
pub fn libraries() -> Libraries {
    // SAFETY: each call tries to open shared libraries by name, which runs their initialisers and nothing of ours.
    unsafe {
        Libraries {
            driver: drv::is_culib_present(),
            nvrtc: nvrtc::sys::is_culib_present(),
            cublas_lt: cublaslt::sys::is_culib_present(),
            cudnn: cudnn::sys::is_culib_present(),
            nccl: nccl::sys::is_culib_present(),
        }
    }
}

/// Source to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory-bound streaming kernels.
    Stream,
    /// Attention kernels for these head dimensions: queries and keys, and values.
    Attention(u64, u64),
}

/// Compiles for an architecture such as `compute_90a`; needs NVRTC, but no GPU.
///
/// # Errors
///
/// NVRTC is missing, or compilation fails, with the compiler's log.
pub fn compile(source: Source, arch: &str) -> Result<nvrtc::Ptx, ProbeError> {
    if !libraries().nvrtc {
        return Err(missing(
            "libnvrtc.so was not found: kernels cannot be compiled",
            "pip install nvidia-cuda-nvrtc-cu12, and put its lib folder (with a link libnvrtc.so to libnvrtc.so.12) on \
             LD_LIBRARY_PATH",
        ));
    }
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    let (name, text) = match source {
        Source::Stream => ("kernels/stream.cu", STREAM.to_owned()),
        Source::Attention(qk, v) => {
            options.extend([format!("--define-macro=QK={qk}"), format!("--define-macro=DV={v}")]);
            ("kernels/attention.cu", ATTENTION.concat())
        }
    };
    let options = nvrtc::CompileOptions { options, ..nvrtc::CompileOptions::default() };
    nvrtc::compile_ptx_with_opts(text, options).map_err(|error| match error {
        nvrtc::CompileError::CompileError { log, .. } => {
            ProbeError::Failed { call: format!("compiling {name} for {arch}"), why: log.to_string_lossy().into_owned() }
        }
        other => failed("nvrtcCompileProgram", other),
    })
}

/// Loads a compiled module; `name` is for messages. It is never unloaded.
pub fn module(ptx: &nvrtc::Ptx, name: &str) -> Result<drv::CUmodule, ProbeError> {
    let image = ptx.as_bytes().unwrap_or_default().as_ptr().cast();
    // SAFETY: NVRTC's image ends in a zero byte.
    let module = unsafe { driver::module::load_data(image) };
    module.map_err(|error| failed(&format!("cuModuleLoadData of {name}"), error))
}

/// Kernel of a module by name (`swiglu-backward` is `swiglu_backward_kernel`).
pub fn function(module: drv::CUmodule, name: &str) -> Result<drv::CUfunction, ProbeError> {
    let symbol = CString::new(name.replace('-', "_") + "_kernel").map_err(|error| failed(name, error))?;
    // SAFETY: the module is never unloaded.
    let function = unsafe { driver::module::get_function(module, symbol) };
    function.map_err(|error| failed(&format!("cuModuleGetFunction {name}"), error))
}
