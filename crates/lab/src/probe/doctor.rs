//! Checks of whether this host can run measurements: driver, libraries, links, clocks.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::device::{HostDescription, PciGpu, Port, entries};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The host is as it should be.
    Good,
    /// Measurements run, but may be slower than the machine allows.
    Warning,
    /// Some measurements cannot run.
    Missing,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Missing => "missing",
        })
    }
}

/// Check of one property of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Property that was checked.
    pub what: String,
    /// Result of the check.
    pub state: State,
    /// Finding, as text.
    pub found: String,
    /// Remedy; empty if none is needed.
    pub remedy: String,
}

impl Check {
    /// Creates a check.
    pub fn new(what: impl Into<String>, state: State, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), state, found: found.into(), remedy: remedy.into() }
    }
}

/// Library with the names that the probe's loader tries, the names of its packages' files, and the measurements that need
/// it.
struct Library {
    name: &'static str,
    loaded_as: &'static [&'static str],
    comes_as: &'static [&'static str],
    needed_for: &'static str,
    package: &'static str,
}

/// Source of the names that are tried: cudarc 0.19, `get_lib_name_candidates`, which does not try `libnccl.so.2`.
const LIBRARIES: [Library; 5] = [
    Library {
        name: "libcuda",
        loaded_as: &["libcuda.so", "libcuda.so.1"],
        comes_as: &[],
        needed_for: "everything",
        package: "the NVIDIA driver",
    },
    Library {
        name: "libnvrtc",
        loaded_as: &["libnvrtc.so", "libnvrtc.so.12"],
        comes_as: &["libnvrtc.so.13"],
        needed_for: "streaming kernels and attention",
        package: "nvidia-cuda-nvrtc-cu12",
    },
    Library {
        name: "libcublasLt",
        loaded_as: &["libcublasLt.so", "libcublasLt.so.12"],
        comes_as: &["libcublasLt.so.13"],
        needed_for: "GEMMs",
        package: "nvidia-cublas-cu12",
    },
    Library {
        name: "libcudnn",
        loaded_as: &["libcudnn.so", "libcudnn.so.9"],
        comes_as: &[],
        needed_for: "attention as frameworks run it (the probe's own only bounds it)",
        package: "nvidia-cudnn-cu12",
    },
    Library {
        name: "libnccl",
        loaded_as: &["libnccl.so"],
        comes_as: &["libnccl.so.2"],
        needed_for: "collectives",
        package: "nvidia-nccl-cu12",
    },
];

/// Folder for links to libraries, in the commands that are shown.
const LINKS: &str = "~/.cache/meshwright/lib";

/// Folders that the dynamic loader searches: those of LD_LIBRARY_PATH, and the usual ones below `root`.
pub fn library_folders(root: &Path, search_path: &str) -> Vec<PathBuf> {
    let usual = ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "lib64", "lib"];
    search_path
        .split(':')
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .chain(usual.iter().map(|folder| root.join(folder)))
        .collect()
}

/// Folders in which libraries lie that the loader does not search: the CUDA toolkit's below `root`, and those that came with
/// PyTorch in the environments of Python with these prefixes.
pub fn unsearched_folders(root: &Path, prefixes: &[PathBuf]) -> Vec<PathBuf> {
    let of_python = prefixes.iter().flat_map(|prefix| entries(&prefix.join("lib")));
    let packages = of_python.map(|python| python.join("site-packages/nvidia"));
    let of_packages = packages.flat_map(|packages| entries(&packages)).map(|package| package.join("lib"));
    std::iter::once(root.join("usr/local/cuda/lib64")).chain(of_packages).filter(|folder| folder.is_dir()).collect()
}

/// The first of these files in these folders.
fn find(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    let paths = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    paths.into_iter().find(|path| path.exists())
}

/// Checks whether the probe's loader finds each library in its `folders`; a library of the `unsearched` ones comes with the command
/// that lets the loader find it.
pub fn libraries(folders: &[PathBuf], unsearched: &[PathBuf]) -> Vec<Check> {
    let check = |library: &Library| {
        let Library { name, loaded_as, comes_as, .. } = *library;
        if let Some(path) = find(folders, loaded_as) {
            return Check::new(name, State::Good, path.display().to_string(), "");
        }
        let (found, remedy) = match find(folders, comes_as) {
            Some(path) => (
                format!("{}, and the loader asks for {} only", path.display(), loaded_as.join(" or ")),
                link(&path, loaded_as[0]),
            ),
            None => elsewhere(library, unsearched),
        };
        Check::new(name, State::Missing, found, remedy)
    };
    LIBRARIES.iter().map(check).collect()
}

/// Finding and remedy of a library that is in no folder of the loader's.
fn elsewhere(library: &Library, unsearched: &[PathBuf]) -> (String, String) {
    let Library { name, loaded_as, comes_as, needed_for, package } = *library;
    let unseen = |path: &Path| format!("{}, where no loader looks", path.display());
    let folder = |path: &Path| path.parent().unwrap_or(path).display().to_string();
    if let Some(path) = find(unsearched, loaded_as) {
        return (unseen(&path), format!("export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH, for {needed_for}", folder(&path)));
    }
    if let Some(path) = find(unsearched, comes_as) {
        let (at, folder) = (path.display(), folder(&path));
        let linked = format!("mkdir -p {LINKS}; ln -sf {at} {LINKS}/{}", loaded_as[0]);
        let searched = format!("export LD_LIBRARY_PATH={LINKS}:{folder}:$LD_LIBRARY_PATH");
        return (unseen(&path), format!("{linked}; {searched}, for {needed_for}"));
    }
    let remedy = if name == "libcuda" {
        format!("install {package}: nothing runs without it")
    } else {
        format!("pip install {package}, and put its lib folder on LD_LIBRARY_PATH, for {needed_for}")
    };
    ("not found".into(), remedy)
}

/// Command for the symbolic link that lets the loader find a versioned library.
fn link(path: &Path, name: &str) -> String {
    let folder = path.parent().map_or_else(String::new, |folder| folder.display().to_string());
    format!("ln -s {} {folder}/{name} (or the link in a folder of your own, first on LD_LIBRARY_PATH)", path.display())
}

/// Checks of driver, GPUs and adapters, from the host's own files.
pub fn hardware(host: &HostDescription) -> Vec<Check> {
    let mut checks = vec![match &host.driver {
        Some(version) => Check::new("kernel driver", State::Good, version.clone(), ""),
        None => Check::new(
            "kernel driver",
            State::Missing,
            "not loaded",
            "install the NVIDIA driver; in a container, pass the GPUs in (--gpus all)",
        ),
    }];
    if host.gpus.is_empty() {
        checks.push(Check::new("GPUs", State::Missing, "none of NVIDIA's on the PCI bus", "measure on another host"));
    }
    checks.extend(host.gpus.iter().map(pci_link));
    checks.extend(host.ports.iter().map(network_port));
    checks
}

/// Check of a GPU's PCI Express link: whether it has all its lanes.
fn pci_link(gpu: &PciGpu) -> Check {
    let name = if gpu.name.is_empty() { "a GPU without a driver" } else { &gpu.name };
    let what = format!("GPU {}", gpu.address);
    match (&gpu.link, &gpu.best_link) {
        (Some((_, lanes)), Some((_, most))) if lanes < most => Check::new(
            what,
            State::Warning,
            format!("{name}, PCI Express x{lanes} of x{most}"),
            "reseat the board or its riser: the host link is slower than it could be",
        ),
        (Some((speed, lanes)), _) => {
            Check::new(what, State::Good, format!("{name}, PCI Express {speed} x{lanes}, NUMA {}", gpu.numa), "")
        }
        (None, _) => Check::new(what, State::Good, name, ""),
    }
}

/// Check of a port of a network adapter: whether its link is up.
fn network_port(port: &Port) -> Check {
    let found = format!("{} {}, {}", port.layer, port.rate, if port.is_active { "active" } else { "down" });
    let (state, remedy) = if port.is_active {
        (State::Good, "")
    } else {
        (State::Warning, "this port carries nothing: check its cable and switch")
    };
    Check::new(format!("port {}", port.name), state, found, remedy)
}

/// Check of the cuDNN release that the loader finds, if it finds one.
#[cfg(feature = "cuda")]
pub fn cudnn() -> Option<Check> {
    use super::cuda::{LEAST_CUDNN, cudnn_version, release};
    let version = cudnn_version()?;
    let (state, remedy) = if version < LEAST_CUDNN {
        let least = release(LEAST_CUDNN);
        (State::Missing, format!("pip install nvidia-cudnn-cu12: attention is timed from {least} on"))
    } else {
        (State::Good, String::new())
    };
    Some(Check::new("cuDNN", state, release(version), remedy))
}

/// Checks of clocks, power limit, ECC and links of each GPU, from NVML.
#[cfg(feature = "cuda")]
pub fn management() -> Vec<Check> {
    let nvml = match nvml_wrapper::Nvml::init() {
        Ok(nvml) => nvml,
        Err(error) => {
            return vec![Check::new("NVML", State::Missing, error.to_string(), "install the NVIDIA driver")];
        }
    };
    let count = nvml.device_count().unwrap_or(0);
    (0..count).filter_map(|at| nvml.device_by_index(at).ok().map(|device| (at, device))).flat_map(of_device).collect()
}

/// Largest number of NVLinks of a GPU: those of Hopper and Blackwell.
#[cfg(feature = "cuda")]
const MOST_NVLINKS: u32 = 18;

/// Checks of one GPU, by its number.
#[cfg(feature = "cuda")]
fn of_device((at, device): (u32, nvml_wrapper::Device)) -> Vec<Check> {
    use nvml_wrapper::enum_wrappers::device::Clock;
    let mut checks = Vec::new();
    let what = |name: &str| format!("GPU {at} {name}");
    if let (Ok(now), Ok(most)) = (device.clock_info(Clock::SM), device.max_clock_info(Clock::SM)) {
        checks.push(Check::new(what("clock"), State::Good, format!("{now} of {most} MHz"), ""));
    }
    if let (Ok(limit), Ok(usual)) = (device.power_management_limit(), device.power_management_limit_default()) {
        let found = format!("{} of {} W", limit / 1000, usual / 1000);
        let (state, remedy) = if limit < usual {
            (State::Warning, "the board is held below its own limit (nvidia-smi -pl); figures are of this limit")
        } else {
            (State::Good, "")
        };
        checks.push(Check::new(what("power limit"), state, found, remedy));
    }
    if let Ok(ecc) = device.is_ecc_enabled() {
        let found = if ecc.currently_enabled { "on" } else { "off" };
        checks.push(Check::new(what("ECC"), State::Good, found, ""));
    }
    let links = (0..MOST_NVLINKS).filter(|&link| device.link_wrapper_for(link).is_active().unwrap_or(false)).count();
    checks.push(Check::new(what("NVLink"), State::Good, format!("{links} links active"), ""));
    if let Ok(running) = device.running_compute_processes()
        && !running.is_empty()
    {
        checks.push(Check::new(
            what("processes"),
            State::Warning,
            format!("{} run on it", running.len()),
            "stop them: they would distort the figures",
        ));
    }
    checks
}
