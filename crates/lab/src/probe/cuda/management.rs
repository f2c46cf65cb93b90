//! Versions of the libraries, and clocks, power and ECC of the GPU from NVML, as text for the samples.

use cudarc::{cublaslt, nvrtc};
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::{Device, Nvml};

use super::compile::{Libraries, libraries};
use super::cudnn;

/// Version of the kernel driver.
pub fn driver() -> Option<String> {
    Nvml::init().ok()?.sys_driver_version().ok()
}

/// Versions of the libraries that the loader finds.
pub fn versions() -> Vec<String> {
    let Libraries { driver: _, nvrtc, cublas_lt, cudnn, nccl: _ } = libraries();
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the libraries are there, and each function only answers.
    let (cublas, compiler) = unsafe {
        let cublas = cublas_lt.then(|| cublaslt::sys::cublasLtGetVersion());
        (cublas, nvrtc.then(|| nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor)))
    };
    let dotted = |version: usize| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
    let named = [
        compiler.map(|_| format!("NVRTC {major}.{minor}")),
        cublas.map(|version| format!("cuBLASLt {}", dotted(version))),
        cudnn.then(|| cudnn::version().map(|version| format!("cuDNN {}", cudnn::release(version)))).flatten(),
    ];
    named.into_iter().flatten().collect()
}

/// Clocks, power limit and ECC of a GPU.
pub fn state(ordinal: usize) -> Vec<String> {
    let read = |device: &Device| {
        let most = |name: &str, clock| Some(format!("{name} up to {} MHz", device.max_clock_info(clock).ok()?));
        let power = device.power_management_limit().ok().map(|limit| format!("power limit {} W", limit / 1000));
        let ecc = device.is_ecc_enabled().ok();
        let ecc = ecc.map(|ecc| format!("ECC {}", if ecc.currently_enabled { "on" } else { "off" }));
        [most("SM clock", Clock::SM), most("memory clock", Clock::Memory), power, ecc].into_iter().flatten().collect()
    };
    of(ordinal, read).unwrap_or_default()
}

/// SM clock and power at this moment.
pub fn under_load(ordinal: usize) -> Option<String> {
    of(ordinal, |device| {
        let (clock, power) = (device.clock_info(Clock::SM).ok()?, device.power_usage().ok()?);
        Some(format!("SM clock {clock} MHz at {} W", power / 1000))
    })
    .flatten()
}

fn of<T>(ordinal: usize, read: impl Fn(&Device) -> T) -> Option<T> {
    let nvml = Nvml::init().ok()?;
    let device = nvml.device_by_index(u32::try_from(ordinal).ok()?).ok()?;
    Some(read(&device))
}
