//! The GPU probe where no GPU is: a stub driver for its error paths.
#![cfg(all(feature = "cuda", feature = "cli", target_os = "linux"))]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::random::{Spec, spec};
use itertools::Itertools as _;
use meshwright::catalog;
use meshwright::gpu::Format;
use meshwright::probe::cuda::Cuda;
use meshwright::probe::verify::{MOST_MEMORY_ERROR, memory};
use meshwright::probe::{Effort, Machine, Probe, ProbeError, Sample, Samples, roofline};
use meshwright::problem::Problem;
use meshwright::sources::Basis;
use meshwright::space::parse_plan;

/// A folder with a stub `libcuda.so` of these definitions.
fn stub(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stub-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    library(&folder.join("libcuda.so"), "stub_cuda.c", definitions);
    folder
}

/// Stub of a device that works, with a compiler.
fn device(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = stub(name, &[&["INIT=0", "DEVICES=1"], definitions].concat());
    if definitions.iter().any(|definition| definition.starts_with("COMPILER")) {
        std::fs::copy(folder.join("libcuda.so"), folder.join("libnvrtc.so")).unwrap();
    }
    folder
}

/// The stub's folder before those where libraries are looked for already: a binary with feature `highs` needs its own.
fn before(libraries: &Path) -> OsString {
    let known = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let known = std::env::split_paths(&known).filter(|folder| !folder.as_os_str().is_empty());
    let folders = std::iter::once(libraries.to_owned()).chain(known);
    std::env::join_paths(folders).unwrap()
}

fn run(libraries: &Path, args: &[&str]) -> Output {
    let out = libraries.join("samples.toml");
    let _ = std::fs::remove_file(&out);
    Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(args)
        .args(["--quick", "--out"])
        .arg(out)
        .env("LD_LIBRARY_PATH", before(libraries))
        .env_remove("WORLD_SIZE")
        .output()
        .unwrap()
}

fn measure(libraries: &Path) -> (Output, Duration) {
    let start = Instant::now();
    let output = run(libraries, &["measure", "--gpu", "h100-sxm"]);
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
fn a_kernel_that_does_not_compile_shows_the_log() {
    let (output, _) = measure(&device("no-compile", &["MEMORY=80000000000ull", "MS=1000", "COMPILER=6"]));
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{talk}");
    assert!(talk.contains("line 1: no such word") && !talk.contains("panicked"), "{talk}");
}

#[test]
fn a_device_without_cublas_says_what_to_install() {
    let (output, _) = measure(&device("no-cublas", &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]));
    says(&output, "libcublasLt.so was not found");
}

/// Runs the part of this file that is named, in a process that has this stub for a driver.
fn inside(libraries: &Path, part: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("cuda::{part}"), "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", before(libraries))
        .env("STUB", "1")
        .output()
        .unwrap();
    let talk = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && talk.contains("1 passed"), "{talk}");
}

/// The stub as a probe; none where the driver may be a real one.
fn opened() -> Option<Cuda> {
    std::env::var_os("STUB")?;
    Some(Cuda::open(0, Machine::default()).unwrap())
}

const FORWARD: &str = "attention own forward sequences=2 heads=8 queries=4096 keys=4096 qk=128 v=128 mask=causal";
const BACKWARD: &str =
    "attention own dgrad sequences=1 heads=16 kv_heads=4 queries=1024 keys=4096 qk=192 v=128 mask=causal";

fn time(probe: &mut Cuda, kernel: &str) -> Result<Sample, ProbeError> {
    probe.time(&kernel.parse().unwrap(), Effort::QUICK)
}

#[test]
fn attention_is_launched_and_its_limits_are_named() {
    inside(&device("works", &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]), "inside_attention");
    let fast = ["MEMORY=80000000000ull", "MS=0.01f", "COMPILER=0"];
    inside(&device("fast", &fast), "inside_attention_beats_physics");
    let fails = ["MEMORY=80000000000ull", "MS=1000", "COMPILER=0", "FAILS=\"attention_backward_kernel\""];
    inside(&device("fails", &fails), "inside_attention_fails");
    inside(&device("small", &["MEMORY=40000000ull", "MS=1000", "COMPILER=0"]), "inside_attention_without_memory");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_attention() {
    let Some(mut probe) = opened() else { return };
    for kernel in [FORWARD, BACKWARD] {
        assert!((time(&mut probe, kernel).unwrap().median().get() - 1.0).abs() < 1e-9);
    }
    for (from, to, says) in [
        ("qk=128", "qk=256", "heads of 64/64, 96/96, 128/128, 192/128"),
        ("heads=8", "heads=8 kv_heads=3", "8 query heads do not share 3 heads of keys evenly"),
        ("queries=4096", "queries=8192", "no more queries than keys"),
        ("heads=8", "heads=40000", "at most 65535 heads"),
        ("own", "fa3", "no library's attention but cuDNN's"),
    ] {
        let error = time(&mut probe, &FORWARD.replace(from, to)).unwrap_err();
        assert!(matches!(error, ProbeError::Unsupported { .. }) && error.to_string().contains(says), "{error}");
    }
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_attention_beats_physics() {
    let Some(mut probe) = opened() else { return };
    let gpu = catalog::gpu("h100-sxm").unwrap();
    for kernel in [FORWARD, BACKWARD] {
        let sample = time(&mut probe, kernel).unwrap();
        let error = roofline::check(&kernel.parse().unwrap(), &sample, &gpu).unwrap_err();
        assert!(matches!(error, ProbeError::BeatsPhysics { .. }), "{error}");
    }
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_attention_fails() {
    let Some(mut probe) = opened() else { return };
    assert!(time(&mut probe, FORWARD).is_ok());
    let error = time(&mut probe, BACKWARD).unwrap_err().to_string();
    assert!(error.contains("launch of attention_backward failed"), "{error}");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_attention_without_memory() {
    let Some(mut probe) = opened() else { return };
    let error = time(&mut probe, BACKWARD).unwrap_err().to_string();
    assert!(error.contains("cuMemAlloc of"), "{error}");
    // What was held until then is free again.
    assert!(probe.hold(&[35_000_000]).is_ok());
}

/// A library from a source of `tests/probe`, with these definitions.
fn library(to: &Path, source: &str, definitions: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe").join(source);
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-o"]).arg(to).arg(source);
    assert!(build.args(definitions.iter().map(|text| format!("-D{text}"))).status().unwrap().success());
}

/// A device that works, with a cuDNN of these definitions.
fn device_with_cudnn(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = device(name, &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]);
    library(&folder.join("libcudnn.so.9"), "stub_cudnn_api.c", definitions);
    folder
}

/// NVML numbers GPUs that CUDA_VISIBLE_DEVICES hides; the address is that of the device which is measured.
#[test]
fn clocks_are_those_of_the_device_at_its_address() {
    let folder = device("nvml", &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]);
    library(&folder.join("libnvidia-ml.so.1"), "stub_nvml.c", &[]);
    inside(&folder, "inside_nvml");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_nvml() {
    let Some(probe) = opened() else { return };
    assert_eq!(probe.machine().state, ["SM clock up to 1980 MHz", "memory clock up to 2619 MHz", "power limit 700 W"]);
}

#[test]
fn attention_of_cudnn_is_run_and_what_stops_it_is_named() {
    let with = |name, version: u32, engines: u32, runs: u32| {
        let definitions = [format!("VERSION={version}"), format!("ENGINES={engines}"), format!("RUNS={runs}")];
        device_with_cudnn(name, &definitions.each_ref().map(String::as_str))
    };
    inside(&with("cudnn-works", 92_800, 2, 0), "inside_cudnn");
    inside(&with("cudnn-old", 90_100, 2, 0), "inside_old_cudnn");
    inside(&with("cudnn-engines", 92_800, 0, 0), "inside_cudnn_without_engines");
    inside(&with("cudnn-fails", 92_800, 2, 5000), "inside_cudnn_that_fails");
    inside(&device("cudnn-none", &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]), "inside_without_cudnn");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_cudnn() {
    let Some(mut probe) = opened() else { return };
    for kernel in [FORWARD, BACKWARD] {
        assert!((time(&mut probe, &kernel.replace("own", "cudnn")).unwrap().median().get() - 1.0).abs() < 1e-9);
    }
    let error = time(&mut probe, &BACKWARD.replace("own", "cudnn").replace("1024", "1000")).unwrap_err();
    assert!(error.to_string().contains("two whole chunks of the keys"), "{error}");
}

/// Is left out with these words, so that the rest is measured.
fn leaves_out(says: &str) {
    let Some(mut probe) = opened() else { return };
    let error = time(&mut probe, &FORWARD.replace("own", "cudnn")).unwrap_err();
    assert!(matches!(error, ProbeError::Unsupported { .. }) && error.to_string().contains(says), "{error}");
    assert!(time(&mut probe, FORWARD).is_ok());
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_old_cudnn() {
    leaves_out("cuDNN 9.1.0 is older than 9.10.2");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_without_cudnn() {
    leaves_out("libcudnn.so.9 was not found (pip install nvidia-cudnn-cu12");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_cudnn_without_engines() {
    leaves_out("cuDNN has no engine for it");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_cudnn_that_fails() {
    let Some(mut probe) = opened() else { return };
    let error = time(&mut probe, &FORWARD.replace("own", "cudnn")).unwrap_err().to_string();
    assert!(error.contains("cudnnBackendExecute failed") && error.contains("the stub says so"), "{error}");
}

/// A device that works, with a cuBLASLt of these definitions.
fn device_with_products(name: &str, definitions: &[&str]) -> PathBuf {
    let folder = device(name, &["MEMORY=80000000000ull", "MS=1000", "COMPILER=0"]);
    library(&folder.join("libcublasLt.so"), "stub_cublas.c", definitions);
    folder
}

#[test]
fn products_copies_and_launches_are_timed_and_what_stops_them_is_named() {
    inside(&device_with_products("products", &["ALGORITHMS=4", "REFUSED=2"]), "inside_products");
    inside(&device_with_products("no-products", &["ALGORITHMS=4", "REFUSED=4"]), "inside_no_products");
}

const LIGHT: Effort = Effort { warm_up: 1, repeats: 2, heat_ms: 0, soak_seconds: 0 };

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_products() {
    let Some(mut probe) = opened() else { return };
    for kernel in [
        "gemm bf16 forward m=4096 n=8192 k=1024 batch=1 out=2",
        "gemm bf16 dgrad m=4096 n=8192 k=1024 batch=8 out=2",
        "gemm bf16 wgrad m=4096 n=8192 k=1024 batch=1 out=8",
        "gemm fp8 forward m=4096 n=8192 k=1024 batch=1 out=2",
        "sustained bf16 forward m=4096 n=8192 k=1024 batch=1 out=2",
        "contended bf16 forward m=4096 n=8192 k=1024 batch=1 out=2",
        "stream adam rows=4096 columns=8192",
        "to-device bytes=268435456",
        "to-host bytes=268435456",
        "to-host bytes=268435456 beside=other-way",
        "to-device bytes=268435456 memory=pageable beside=gemm",
    ] {
        let sample = probe.time(&kernel.parse().unwrap(), LIGHT).unwrap_or_else(|error| panic!("{kernel}: {error}"));
        // GEMMs beside copies run eight in a row between two events.
        let expected = if kernel.starts_with("contended") { 0.125 } else { 1.0 };
        assert!((sample.median().get() - expected).abs() < 1e-9, "{kernel}: {:?}", sample.median());
    }
    // A layer: kernels one after another between two events, a repeated one with an operand set of its own.
    let layer = ["gemm bf16 forward m=4096 n=8192 k=1024 batch=1 out=2", "stream copy rows=4096 columns=1024", FORWARD];
    let layer: Vec<_> = layer.iter().chain([&layer[1]]).map(|kernel| kernel.parse().unwrap()).collect();
    assert!((probe.together(&layer, LIGHT).unwrap().median().get() - 1.0).abs() < 1e-9);
    let launch = probe.together(&["launch".parse().unwrap()], LIGHT).unwrap_err();
    assert!(launch.to_string().contains("no single kernel of one GPU"), "{launch}");
    assert!(probe.time(&"launch".parse().unwrap(), LIGHT).unwrap().median().get() < 1e-3);
    let error = time(&mut probe, "gemm mxfp8 forward m=64 n=64 k=64 batch=1 out=2").unwrap_err();
    assert!(
        matches!(error, ProbeError::Unsupported { .. }) && error.to_string().contains("block-scaled GEMMs"),
        "{error}"
    );
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_no_products() {
    let Some(mut probe) = opened() else { return };
    let error = time(&mut probe, "gemm bf16 forward m=64 n=64 k=64 batch=1 out=2").unwrap_err();
    assert!(error.to_string().contains("cuBLASLt has no algorithm for it"), "{error}");
}

/// The bar of a verification, for the layers that it is about.
#[test]
fn a_layer_of_true_tensors_takes_what_is_predicted() {
    inside(&device("memory", &["MEMORY=400000000000ull", "MS=1000", "COMPILER=0"]), "inside_memory");
}

#[test]
#[ignore = "runs in the process that `inside` starts"]
fn inside_memory() {
    let Some(mut probe) = opened() else { return };
    let mut samples = Samples::new("h100-sxm", Basis::Measured, Machine::default());
    // Pages of 2 MiB, and all of them free again.
    assert!((probe.hold(&[1, (2 << 20) + 1]).unwrap().get() - f64::from(6 << 20)).abs() < 1.0);
    assert!(probe.hold(&[399_000_000_000]).is_ok());
    assert!(probe.hold(&[401_000_000_000]).unwrap_err().to_string().contains("cuMemAlloc of 401000000000 bytes"));
    for (model, plans) in [
        ("llama3-8b", &["tp=1 zero=1", "tp=2 sp=on zero=1", "tp=8 sp=on zero=1"][..]),
        ("llama3-70b", &["tp=1 zero=1", "tp=4 sp=on zero=1", "tp=8 sp=on zero=3"]),
        ("llama3-405b", &["tp=8 sp=on pp=2 zero=1"]),
        ("deepseek-v3", &["tp=1 ep=8 zero=1", "tp=2 sp=on ep=8 zero=1"]),
    ] {
        for (format, text) in [Format::Bf16, Format::Fp8].into_iter().cartesian_product(plans) {
            let problem = problem(model, format);
            let plan = parse_plan(text, &problem).unwrap();
            let layers = memory(&problem, &plan, &mut probe, &mut samples).unwrap();
            assert_eq!(layers.len(), problem.model().kinds.len());
            for layer in layers {
                println!("{model} {format} {text}: kind {}, {:.2} %", layer.kind, 100.0 * layer.error());
                assert!(layer.error().abs() < MOST_MEMORY_ERROR, "{model} {format} {text}: {layer:?}");
            }
        }
    }
}

fn problem(model: &'static str, format: Format) -> Problem {
    Spec { format, ..spec(model, "dgx-h100-64", "nemo-25", 64, 8192) }.problem()
}
