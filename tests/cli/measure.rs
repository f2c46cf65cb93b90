//! measure → calibrate → plan → verify as a user runs them, on recorded samples and on the files of a made-up host.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use meshwright::probe::kernel::Kernel;
use meshwright::probe::{Sample, Samples};
use meshwright::sources::Basis;

pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(args)
        .current_dir(folder)
        .env_remove("WORLD_SIZE")
        .env_remove("SLURM_NTASKS")
        .env("LD_LIBRARY_PATH", "")
        .output()
        .unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", out(output), err(output));
}

const PLANS: [&str; 5] = ["--for", "llama3-8b", "dgx-h100-8", "--top", "2"];
pub const VERIFY: [&str; 5] = ["verify", "llama3-8b", "dgx-h100-8", "--top", "2"];

/// Samples of the top plans on an H100 whose GEMMs are slower by a factor.
pub fn record(folder: &Path, slower: f64) -> Samples {
    let rehearsal = [&["measure", "--quick", "--probe", "model", "--out", "rehearsal.toml"], &PLANS[..]].concat();
    code(&run(folder, &rehearsal), 0);
    let text = std::fs::read_to_string(folder.join("rehearsal.toml")).unwrap();
    let mut samples = Samples::parse(&text).unwrap();
    assert_eq!(samples.basis, Basis::Datasheet);
    samples.basis = Basis::Measured;
    for (kernel, sample) in &mut samples.of {
        if matches!(kernel, Kernel::Gemm(_) | Kernel::Sustained(_) | Kernel::Contended(_)) {
            *sample = Sample::new([sample.median() * slower]).unwrap();
        }
    }
    std::fs::write(folder.join("samples.toml"), samples.to_toml()).unwrap();
    samples
}

#[test]
fn without_a_gpu_it_is_said_at_once() {
    let folder = folder("measure-no-gpu");
    if Path::new("/proc/driver/nvidia").exists() {
        return; // a machine with a driver has another story to tell
    }
    let verify = VERIFY;
    for args in [&["measure", "--for", "llama3-405b", "h100-24576"][..], &["measure"], &verify] {
        let start = Instant::now();
        let output = run(&folder, args);
        code(&output, 3);
        assert!(err(&output).contains("hint:"), "{}", err(&output));
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// Experts are one launch of a product each, attention comes with the probe's own kernel, both ways.
#[test]
fn what_plans_run_is_listed() {
    let folder = folder("measure-list");
    let output = run(&folder, &["measure", "--list", "--quick", "--for", "qwen3-30b-a3b", "dgx-h100-8", "--top", "2"]);
    code(&output, 0);
    let kernels: Vec<Kernel> = out(&output).lines().map(|line| line.parse().unwrap()).collect();
    let batches =
        kernels.iter().filter_map(|kernel| if let Kernel::Gemm(gemm) = kernel { Some(gemm.batch) } else { None });
    let grouped: Vec<u64> = batches.filter(|batch| *batch > 1).collect();
    assert!(!grouped.is_empty() && grouped.iter().all(|batch| 128 % batch == 0), "{grouped:?}");
    let list = out(&output);
    for pass in ["forward", "dgrad"] {
        let of = |name: &str| list.lines().filter(|line| line.starts_with(&format!("attention {name} {pass}"))).count();
        assert!(of("own") > 0 && of("own") == of("cudnn") + of("fa2") + of("fa3"), "{list}");
    }
    assert!(!list.contains("collective"), "{list}");
}

/// Under a launcher the plans' groups are listed beside all ranks together.
#[test]
fn collectives_are_of_the_plans_groups() {
    let folder = folder("measure-groups");
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["measure", "--list", "--quick", "--for", "llama3-70b", "dgx-h100-64", "--top", "4"])
        .current_dir(&folder)
        .envs([("RANK", "0"), ("WORLD_SIZE", "16"), ("LOCAL_WORLD_SIZE", "8"), ("MASTER_ADDR", "localhost")])
        .output()
        .unwrap();
    code(&output, 0);
    let groups: std::collections::BTreeSet<(u64, u64)> = out(&output)
        .lines()
        .filter_map(|line| match line.parse() {
            Ok(Kernel::Collective { ranks, nodes, .. }) => Some((ranks, nodes)),
            _ => None,
        })
        .collect();
    assert!(groups.contains(&(16, 2)), "{groups:?}");
    assert!(groups.iter().any(|(ranks, nodes)| *nodes == 1 && (2..=8).contains(ranks)), "{groups:?}");
    assert!(groups.iter().all(|(ranks, nodes)| 16 % ranks == 0 && *nodes <= 2), "{groups:?}");
}

#[test]
fn a_run_that_was_cut_off_goes_on_and_ends_the_same() {
    let folder = folder("measure-resume");
    let whole = record(&folder, 1.0);
    let text = std::fs::read_to_string(folder.join("rehearsal.toml")).unwrap();
    let mut half = Samples::parse(&text).unwrap();
    half.of = half.of.into_iter().step_by(2).collect();
    std::fs::write(folder.join("half.toml"), half.to_toml()).unwrap();
    let again = [&["measure", "--quick", "--probe", "model", "--out", "half.toml"], &PLANS[..]].concat();
    let output = run(&folder, &again);
    code(&output, 0);
    assert!(err(&output).contains(&format!("{} kernels are there already", half.of.len())), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(folder.join("half.toml")).unwrap(), text);
    assert!(whole.of.keys().any(|kernel| matches!(kernel, Kernel::Attention(_))));
    // A rehearsal confirms nothing.
    let output = run(&folder, &[&VERIFY[..], &["--quick", "--probe", "rehearsal.toml"]].concat());
    code(&output, 1);
    assert!(err(&output).contains("the model's own"), "{}", err(&output));
    // Samples of another device are not mixed in.
    std::fs::write(folder.join("other.toml"), text.replace("h100-sxm", "a100-80-sxm")).unwrap();
    let output = run(&folder, &[&["measure", "--probe", "model", "--out", "other.toml"], &PLANS[..]].concat());
    code(&output, 2);
    assert!(err(&output).contains("another --out"), "{}", err(&output));
}

#[test]
fn what_was_measured_changes_the_prediction_and_says_so() {
    let folder = folder("measure-calibrate");
    record(&folder, 1.3);
    code(&run(&folder, &["calibrate", "samples.toml", "--out", "h100.toml"]), 0);
    code(&run(&folder, &["calibrate", "h100.toml", "--out", "again.toml"]), 0);
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(file("h100.toml"), file("again.toml"));
    // A folder of calibrations has one of each device and day.
    let calibrations = folder.join("calibrations");
    std::fs::create_dir_all(&calibrations).unwrap();
    code(&run(&folder, &["calibrate", "samples.toml", "--date", "2026-11-22", "--out", "calibrations"]), 0);
    assert!(calibrations.join("h100-sxm-2026-11-22.toml").exists());
    let plan = |more: &[&str]| {
        let output =
            run(&folder, &[&["plan", "llama3-8b", "dgx-h100-8", "--top", "1", "--format", "json"], more].concat());
        code(&output, 0);
        let json: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        (json["plans"][0].clone(), err(&output))
    };
    let (before, _) = plan(&[]);
    let (after, talk) = plan(&["--calibration", "h100.toml"]);
    assert!(talk.contains("measured on") && talk.contains("GEMMs in bf16"), "{talk}");
    assert_eq!(after["terms_basis"]["compute"], "measured");
    assert_eq!(before["terms_basis"]["compute"], "calibrated");
    let compute = |plan: &serde_json::Value| plan["terms"]["compute_s"].as_f64().unwrap();
    assert!(compute(&after) > 1.1 * compute(&before), "{} {}", compute(&after), compute(&before));
    let output = run(&folder, &["plan", "llama3-8b", "dgx-a100-1k", "--calibration", "h100.toml"]);
    code(&output, 2);
    assert!(err(&output).contains("the calibration is of H100"), "{}", err(&output));
}

#[test]
fn bad_input_is_named() {
    let folder = folder("measure-bad");
    std::fs::write(folder.join("empty.toml"), "").unwrap();
    for (args, says) in [
        (&["measure", "--probe", "cuda2", "--gpu", "h100-sxm"][..], "there are `cuda`, `model`, and files"),
        (&["measure", "--probe", "empty.toml", "--gpu", "h100-sxm"], "missing field"),
        (&["measure", "--probe", "model", "--gpu", "h100sxm"], "did you mean `h100-sxm`?"),
        (&["measure", "--for", "llama3-8b"], "2 values required"),
        (&["calibrate"], "no samples were given"),
        (&["calibrate", "absent.toml"], "absent.toml: cannot be read"),
        (&["calibrate", "--table", "x.csv"], "--table-device"),
        (&["plan", "llama3-8b", "dgx-h100-8", "--calibration", "empty.toml"], "--calibration empty.toml"),
    ] {
        let output = run(&folder, args);
        code(&output, 2);
        assert!(err(&output).contains(says), "{args:?}: {}", err(&output));
    }
}

/// A host of two H100s, one with half its lanes, two ports, one down, and an NCCL that only comes as libnccl.so.2.
pub fn host(name: &str) -> PathBuf {
    let root = folder(name);
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23\nGCC version:  12\n",
    );
    put("proc/meminfo", "MemTotal:       2113463856 kB\nMemFree: 1 kB\n");
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n");
    for (address, lanes, numa) in [("0000:1b:00.0", "16", "0"), ("0000:43:00.0", "8", "1")] {
        let pci = format!("sys/bus/pci/devices/{address}");
        for (file, text) in [
            ("vendor", "0x10de\n"),
            ("class", "0x030200\n"),
            ("current_link_speed", "32.0 GT/s PCIe\n"),
            ("current_link_width", lanes),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
            ("numa_node", numa),
        ] {
            put(&format!("{pci}/{file}"), text);
        }
        put(
            &format!("proc/driver/nvidia/gpus/{address}/information"),
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\n",
        );
    }
    put("sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n");
    put("sys/bus/pci/devices/0000:00:01.0/class", "0x060400\n");
    for (adapter, state) in [("mlx5_0", "4: ACTIVE\n"), ("mlx5_1", "4: ACTIVE\n"), ("mlx5_2", "1: DOWN\n")] {
        let port = format!("sys/class/infiniband/{adapter}/ports/1");
        put(&format!("{port}/state"), state);
        put(&format!("{port}/rate"), "400 Gb/sec (4X NDR)\n");
        put(&format!("{port}/link_layer"), "InfiniBand\n");
    }
    put("usr/lib64/libcuda.so.1", "");
    put("usr/lib64/libcudnn.so.9", "");
    put("usr/lib64/libnccl.so.2", "");
    root
}

#[test]
fn the_doctor_finds_what_is_wrong_with_a_host() {
    let root = host("doctor-host");
    let output = run(&root, &["doctor", "--root", root.to_str().unwrap(), "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let check = |what: &str| {
        let all = json["checks"].as_array().unwrap();
        all.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("no check of {what}: {json}")).clone()
    };
    assert_eq!(check("kernel driver")["found"], "570.86.15");
    assert_eq!(check("GPU 0000:1b:00.0")["state"], "good");
    assert_eq!(check("GPU 0000:43:00.0")["state"], "warning");
    assert_eq!(check("port mlx5_2/1")["state"], "warning");
    assert_eq!(check("libcuda")["state"], "good");
    assert_eq!(check("libcublasLt")["state"], "missing");
    let nccl = check("libnccl");
    assert_eq!(nccl["state"], "missing");
    assert!(
        nccl["remedy"].as_str().unwrap().starts_with("ln -s ")
            && nccl["found"].as_str().unwrap().contains("libnccl.so.2")
    );
    // With the link it is found.
    std::fs::write(root.join("usr/lib64/libnccl.so"), "").unwrap();
    let output = run(&root, &["doctor", "--root", root.to_str().unwrap(), "--format", "csv"]);
    assert!(out(&output).lines().any(|line| line.starts_with("libnccl,good")), "{}", out(&output));
    // A bare host cannot measure.
    let bare = folder("doctor-bare");
    let output = run(&bare, &["doctor", "--root", bare.to_str().unwrap()]);
    code(&output, 3);
    assert!(out(&output).contains("install the NVIDIA driver"), "{}", out(&output));
}

/// Libraries of the CUDA toolkit and of PyTorch lie where no loader looks: the doctor gives the command with which it does.
#[test]
fn the_doctor_finds_libraries_where_no_loader_looks() {
    let root = host("doctor-unsearched");
    let put = |path: &str| {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), "").unwrap();
    };
    put("usr/local/cuda/lib64/libnvrtc.so");
    put("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
    let output = Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["doctor", "--root", root.to_str().unwrap(), "--format", "json"])
        .env("LD_LIBRARY_PATH", "")
        .env("VIRTUAL_ENV", root.join("venv"))
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let remedy = |what: &str| {
        let all = json["checks"].as_array().unwrap();
        let check = all.iter().find(|check| check["what"] == what).unwrap();
        assert_eq!(check["state"], "missing");
        check["remedy"].as_str().unwrap().to_owned()
    };
    let folder = root.join("usr/local/cuda/lib64");
    assert!(remedy("libnvrtc").starts_with(&format!("export LD_LIBRARY_PATH={}:", folder.display())));
    let library = root.join("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
    assert!(remedy("libcublasLt").contains(&format!("ln -sf {} ", library.display())), "{}", remedy("libcublasLt"));
}

#[test]
fn a_cluster_file_of_this_host_plans() {
    let root = host("cluster-host");
    let at = root.to_str().unwrap();
    let output = run(&root, &["measure", "--write-cluster", "mine.toml", "--nodes", "4", "--root", at]);
    code(&output, 0);
    let text = std::fs::read_to_string(root.join("mine.toml")).unwrap();
    assert!(text.contains("gpu = \"h100-sxm\"") && text.contains("gpus = 8\n"), "{text}");
    assert!(text.contains("400 Gb/s") && text.contains("host = \"x86\""), "{text}");
    let output = run(&root, &["plan", "llama3-8b", "mine.toml", "--top", "1"]);
    code(&output, 0);
    assert!(out(&output).contains("8 × H100 SXM5 80GB"), "{}", out(&output));
    let bare = folder("cluster-bare");
    let output = run(&bare, &["measure", "--write-cluster", "x.toml", "--root", bare.to_str().unwrap()]);
    code(&output, 2);
    assert!(err(&output).contains("no NVIDIA GPU on the PCI bus"), "{}", err(&output));
}
