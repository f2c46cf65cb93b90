//! CUDA kernels of the probe: attention on a processor, and their machine code for every architecture.
#![cfg(all(feature = "cuda", feature = "cli", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The attention kernels on a processor, lane by lane, against attention as the textbook has it (tests/probe/attention.cpp
/// has the bound): tiles, masks, fragments, barriers. PTX itself is left to NVRTC, and speed to a GPU.
#[test]
fn attention_computes_attention() {
    use meshwright::probe::cuda::HEADS;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let kernels = format!("-DATTENTION=\"{}\"", root.join("crates/lab/src/probe/kernels/attention.cu").display());
    for (qk, v) in HEADS {
        let program = folder.join(format!("attention-{qk}-{v}"));
        let built = Command::new("c++")
            .args(["-std=c++17", "-O1", "-w", &kernels, &format!("-DQK={qk}"), &format!("-DDV={v}"), "-o"])
            .args([&program, &root.join("tests/probe/attention.cpp")])
            .status()
            .unwrap();
        assert!(built.success());
        let output = Command::new(&program).output().unwrap();
        assert!(output.status.success(), "heads of {qk}/{v}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "needs libnvrtc.so on LD_LIBRARY_PATH; .ci/run gets it"]
fn every_kernel_compiles_for_every_architecture() {
    use meshwright::probe::cuda::{HEADS, Source, compile};
    use meshwright::probe::kernel::StreamOp;
    let streaming: Vec<String> = StreamOp::NAMED.iter().map(|(name, _)| name.replace('-', "_")).collect();
    let attention = ["attention_forward", "attention_delta", "attention_backward", "attention_narrow"];
    // To machine code, so that the assembler has its say too.
    for arch in ["sm_80", "sm_90a", "sm_100a"] {
        let has = |source, kernels: &[&str]| {
            let ptx = compile(source, arch).unwrap_or_else(|error| panic!("{error}")).to_src();
            for name in kernels {
                assert!(ptx.contains(&format!(".entry {name}_kernel")), "{arch}: no {name} of {source:?}");
            }
            ptx
        };
        has(Source::Stream, &streaming.iter().map(String::as_str).collect::<Vec<_>>());
        for (qk, v) in HEADS {
            let ptx = has(Source::Attention(qk, v), &attention);
            assert!(ptx.contains("mma.sync.aligned.m16n8k16") && ptx.contains("cp.async.cg"), "{arch}");
            assert!(!ptx.contains(".local "), "{arch}: arrays of heads of {qk}/{v} are not in registers");
        }
    }
}
