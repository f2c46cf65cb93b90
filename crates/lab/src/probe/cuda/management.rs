//! Versions of the libraries, and clocks, power and ECC of the GPU from NVML, as text for the samples.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, DriverError};
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

/// PCI address of a device, as NVML takes it: its own numbers count GPUs that CUDA_VISIBLE_DEVICES hides.
#[derive(Clone, Copy, Debug)]
pub struct PciAddress {
    domain: i32,
    bus: i32,
    slot: i32,
}

impl PciAddress {
    /// Reads the address of a context's device.
    pub fn of(context: &CudaContext) -> Result<Self, DriverError> {
        Ok(Self {
            domain: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            bus: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            slot: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        })
    }

    fn read<T>(self, read: impl Fn(&Device) -> T) -> Option<T> {
        let nvml = Nvml::init().ok()?;
        let Self { domain, bus, slot } = self;
        let device = nvml.device_by_pci_bus_id(format!("{domain:08x}:{bus:02x}:{slot:02x}.0")).ok()?;
        Some(read(&device))
    }

    /// Clocks, power limit and ECC.
    pub fn state(self) -> Vec<String> {
        let read = |device: &Device| {
            let most = |name: &str, clock| Some(format!("{name} up to {} MHz", device.max_clock_info(clock).ok()?));
            let power = device.power_management_limit().ok().map(|limit| format!("power limit {} W", limit / 1000));
            let ecc = device.is_ecc_enabled().ok();
            let ecc = ecc.map(|ecc| format!("ECC {}", if ecc.currently_enabled { "on" } else { "off" }));
            let clocks = [most("SM clock", Clock::SM), most("memory clock", Clock::Memory)];
            clocks.into_iter().chain([power, ecc]).flatten().collect()
        };
        self.read(read).unwrap_or_default()
    }

    /// SM clock and power at this moment.
    pub fn under_load(self) -> Option<String> {
        self.read(|device| {
            let (clock, power) = (device.clock_info(Clock::SM).ok()?, device.power_usage().ok()?);
            Some(format!("SM clock {clock} MHz at {} W", power / 1000))
        })
        .flatten()
    }
}
