//! The GPU probe where no GPU is: a stub driver for its error paths, and NVRTC, which needs none, for its kernels.
#![cfg(all(feature = "cuda", feature = "cli", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A folder with a stub `libcuda.so` of these definitions.
fn stub(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stub-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/stub_cuda.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.join("libcuda.so"))
        .args(definitions.iter().map(|definition| format!("-D{definition}")))
        .arg(source)
        .status()
        .unwrap();
    assert!(built.success());
    folder
}

fn measure(libraries: &Path) -> (Output, Duration) {
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["measure", "--gpu", "h100-sxm", "--quick", "--out"])
        .arg(libraries.join("samples.toml"))
        .env("LD_LIBRARY_PATH", libraries)
        .env_remove("WORLD_SIZE")
        .output()
        .unwrap();
    (output, start.elapsed())
}

/// Exit code 3, these words, and no panic's.
fn says(output: &Output, words: &str) {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{talk}");
    assert!(talk.contains(words), "{talk}");
    assert!(!talk.contains("panicked"), "{talk}");
}

#[test]
fn no_driver_is_said_within_a_second() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-driver");
    std::fs::create_dir_all(&folder).unwrap();
    let (output, time) = measure(&folder);
    if Path::new("/proc/driver/nvidia").exists() {
        return; // a machine with a driver has another story to tell
    }
    says(&output, "there is no NVIDIA driver on this host");
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[test]
fn a_driver_without_a_device_is_told_from_none() {
    let (output, _) = measure(&stub("no-device", &["INIT=100", "DEVICES=0"]));
    says(&output, "CUDA_ERROR_NO_DEVICE");
    let (output, _) = measure(&stub("none-visible", &["INIT=0", "DEVICES=0"]));
    says(&output, "there is no GPU 0: the driver shows 0");
}

#[test]
fn an_old_driver_is_no_panic() {
    let (output, _) = measure(&stub("old", &["INIT=0", "DEVICES=1", "LEAST"]));
    says(&output, "lacks functions of CUDA 12.8");
}

#[test]
fn a_device_without_the_compiler_says_what_to_install() {
    let (output, _) = measure(&stub("no-nvrtc", &["INIT=0", "DEVICES=1"]));
    says(&output, "pip install nvidia-cuda-nvrtc-cu12");
}

#[test]
#[ignore = "needs libnvrtc.so on LD_LIBRARY_PATH; .ci/run gets it"]
fn every_kernel_compiles_for_every_architecture() {
    use meshwright::probe::cuda::compile;
    use meshwright::probe::kernel::StreamOp;
    for arch in ["compute_80", "compute_90a", "compute_100a"] {
        let ptx = compile(arch).unwrap_or_else(|error| panic!("{error}")).to_src();
        for (name, _) in StreamOp::NAMED {
            let entry = format!(".entry {}_kernel", name.replace('-', "_"));
            assert!(ptx.contains(&entry), "{arch}: no {entry}");
        }
    }
}
