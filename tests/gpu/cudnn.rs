//! cuDNN where no GPU is: the library itself takes the probe's graphs, picks its engines for devices that are described to it,
//! and compiles their kernels. Left out are the launch, and what a launch gives.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::Command;

use meshwright::probe::Kernel;
use meshwright::probe::cuda::{LEAST_CUDNN, Planned, cudnn_version, planned, release};
use meshwright::probe::kernel::Attention;

/// Properties of a device as cuDNN writes them: compute capability, processors, shared memory of a block, level 2 cache.
/// Source of the numbers: [cuda-guide], and the catalogue for processors.
fn properties(capability: u32, processors: u32, shared: u32, cache: u32) -> String {
    format!(
        r#"{{"deviceVer":{capability},"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":85899345920,
        "maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,
        "multiProcessorCount":{processors},"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,
        "maxSharedMemoryPerBlockOptin":{shared},"oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,
        "maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,
        "isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"memoryBusWidth":5120,
        "l2CacheSize":{cache},"deviceName":"described"}}"#
    )
}

/// The devices, by their architectures.
fn devices() -> [(&'static str, String); 3] {
    [
        ("sm_80", properties(800, 108, 166_912, 41_943_040)),
        ("sm_90", properties(900, 132, 232_448, 52_428_800)),
        ("sm_100", properties(1000, 148, 232_448, 132_644_864)),
    ]
}

fn core(text: &str) -> Attention {
    match text.parse().unwrap() {
        Kernel::Attention(core) => core,
        other => panic!("{other}"),
    }
}

/// A process of this test with a driver that does nothing, beside the libraries that are there.
#[test]
#[ignore = "needs cuDNN and NVRTC on LD_LIBRARY_PATH; .ci/run gets them"]
fn cudnn_has_engines_for_the_graphs_of_attention() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stub-described");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/stub_cudnn.c");
    for name in ["libcuda.so.1", "libcublasLt.so.12"] {
        let soname = format!("-Wl,-soname,{name}");
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", &soname, "-o"]).arg(folder.join(name)).arg(&source);
        assert!(build.status().unwrap().success());
    }
    let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cudnn::inside", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", format!("{}:{path}", folder.display()))
        .env("STUB", "1")
        .output()
        .unwrap();
    let talk = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && talk.contains("1 passed"), "{talk}");
    println!("{talk}");
}

#[test]
#[ignore = "runs in the process that the test above starts"]
fn inside() {
    if std::env::var_os("STUB").is_none() {
        return;
    }
    let version = cudnn_version().unwrap();
    println!("cuDNN {}", release(version));
    assert!(version >= LEAST_CUDNN);
    let mut refused = Vec::new();
    for (arch, properties) in devices() {
        for sizes in [
            "heads=32 kv_heads=8 queries=8192 keys=8192 qk=128 v=128 mask=causal",
            "heads=32 kv_heads=32 queries=8192 keys=8192 qk=128 v=128 mask=causal",
            "heads=8 kv_heads=1 queries=8192 keys=8192 qk=128 v=128 mask=1024",
            "heads=16 kv_heads=4 queries=1024 keys=4096 qk=64 v=64 mask=full",
            "heads=8 kv_heads=2 queries=2048 keys=8192 qk=128 v=128 mask=causal",
            "heads=8 kv_heads=2 queries=2048 keys=8192 qk=128 v=128 mask=1024",
            "heads=16 kv_heads=16 queries=4096 keys=4096 qk=192 v=128 mask=causal",
        ] {
            for pass in ["forward", "dgrad"] {
                let text = format!("attention cudnn {pass} sequences=1 {sizes}");
                match planned(&core(&text), &properties) {
                    Ok(plans) => {
                        for Planned { engine, workspace } in plans {
                            println!("{arch} {pass} {sizes}: engine {engine}, {workspace} bytes");
                        }
                    }
                    Err(error) => {
                        println!("{arch} {pass} {sizes}: {error}");
                        refused.push(format!("{arch} {pass} {sizes}"));
                    }
                }
            }
        }
    }
    // The library's own limit: backward of heads wider than 128 on Ampere.
    assert_eq!(refused, ["sm_80 dgrad heads=16 kv_heads=16 queries=4096 keys=4096 qk=192 v=128 mask=causal"]);
}
