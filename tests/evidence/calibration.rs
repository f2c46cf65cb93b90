//! Samples to curves and back: published tables, nccl-tests, traces, and files that are made again byte for byte.

use crate::random::workload;
use meshwright::catalog;
use meshwright::cluster::Cluster;
use meshwright::gpu::{Figure, Format, Gpu};
use meshwright::probe::import::{Import, kineto, nccl_tests, tables};
use meshwright::probe::{Analytic, Calibration, Kernel, Machine, ProbeError, Sample, Samples, fit};
use meshwright::sources::Basis;
use meshwright::stack::Stack;
use meshwright::units::{BytesPerSec, Seconds};

fn bench(gpu: &str) -> (Cluster, Stack) {
    let stack = catalog::stack("nemo-25", &catalog::Overrides::default()).unwrap();
    (Cluster::of_one_domain(catalog::gpu(gpu).unwrap()), stack)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/probe/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn samples(imports: impl IntoIterator<Item = Import>, basis: Basis) -> Samples {
    let machine = Machine { date: "2026-09-01".into(), command: "test".into(), ..Machine::default() };
    let mut samples = Samples::new("h100-sxm", basis, machine);
    for import in imports {
        import.into_samples(&mut samples);
    }
    samples
}

fn from_tables() -> Samples {
    let names = ["h100_gemm.csv", "h100_nccl.csv", "h100_attention.csv"];
    samples(names.map(|name| tables::read(&text(name), "H100").unwrap()), Basis::Calibrated)
}

fn mean_error(samples: &Samples, model: &Analytic, of: impl Fn(&Kernel) -> bool) -> f64 {
    let errors: Vec<f64> = samples
        .of
        .iter()
        .filter(|(kernel, _)| of(kernel))
        .map(|(kernel, sample)| (model.predict(kernel) / sample.median() - 1.0).abs())
        .collect();
    assert!(!errors.is_empty());
    errors.iter().sum::<f64>() / errors.len() as f64
}

#[test]
fn the_silicon_tables_make_the_curves_better() {
    let (cluster, stack) = bench("h100-sxm");
    let samples = from_tables();
    let calibration = Calibration::new(samples.clone(), "aiconfigurator", "test", &cluster, &stack).unwrap();
    let (mut known, mut driven) = (cluster.clone(), stack.clone());
    calibration.apply_curves(&cluster.gpu.name, &mut known, &mut driven).unwrap();
    let (before, after) = (fit::analytic(&cluster, &stack), fit::analytic(&known, &driven));
    // Bounds: what the specification reports of its own fits to these tables (§2.1: 4.4 %, §3.2: 3 to 9 %).
    let gemm = |kernel: &Kernel| matches!(kernel, Kernel::Gemm(_));
    assert!(mean_error(&samples, &after, gemm) < 0.044);
    assert!(mean_error(&samples, &after, gemm) < mean_error(&samples, &before, gemm));
    let attention = |kernel: &Kernel| matches!(kernel, Kernel::Attention(_));
    assert!(mean_error(&samples, &after, attention) < 0.5 * mean_error(&samples, &before, attention));
    let collective = |kernel: &Kernel| matches!(kernel, Kernel::Collective { .. });
    assert!(mean_error(&samples, &after, collective) < 0.06);
    assert_eq!(known.gpu.basis_of(Figure::Gemm(Format::Bf16)), Basis::Calibrated);
    assert_eq!(known.gpu.basis_of(Figure::HostLink), cluster.gpu.basis);
}

/// Half of the shapes fit the curve, the other half judge it.
#[test]
fn the_curve_holds_for_shapes_that_were_not_timed() {
    let (cluster, stack) = bench("h100-sxm");
    let all = from_tables();
    let half = |odd: bool| {
        let mut half = all.clone();
        half.of =
            all.of.clone().into_iter().enumerate().filter(|(at, _)| (at % 2 == 1) == odd).map(|(_, s)| s).collect();
        half
    };
    let calibration = Calibration::new(half(true), "aiconfigurator", "test", &cluster, &stack).unwrap();
    let (mut known, mut driven) = (cluster.clone(), stack.clone());
    calibration.apply(&cluster.gpu.name, &mut known, &mut driven).unwrap();
    let gemm = |kernel: &Kernel| matches!(kernel, Kernel::Gemm(_));
    let unseen = mean_error(&half(false), &fit::analytic(&known, &driven), gemm);
    assert!(unseen < 0.05, "{unseen}");
}

#[test]
fn a_calibration_made_again_is_the_same_file() {
    let (cluster, stack) = bench("h100-sxm");
    let first = Calibration::new(from_tables(), "aiconfigurator", "test", &cluster, &stack).unwrap();
    let written = first.to_toml(&cluster, &stack);
    let read = Calibration::parse(&written).unwrap();
    assert_eq!(read.samples, first.samples);
    let again = Calibration::new(Samples::parse(&written).unwrap(), &read.source, &read.command, &cluster, &stack);
    assert_eq!(again.unwrap().to_toml(&cluster, &stack), written);
}

/// A device that differs from the catalogue's in every figure is found again from what it would measure.
#[test]
fn every_figure_is_found_again() {
    let (cluster, stack) = bench("h100-sxm");
    let (mut truth, mut driven) = (cluster.clone(), stack.clone());
    let Gpu { gemm, hbm_efficiency, host_link, contention, .. } = &mut truth.gpu;
    let curve = gemm.get_mut(&Format::Bf16).unwrap();
    (curve.efficiency, curve.sustained) = (0.7, 0.9);
    hbm_efficiency.value = 0.9;
    host_link.value = BytesPerSec::gbytes(50.0);
    contention.value = 0.2;
    driven.launches.x86 = Seconds::micros(4.0);
    let measured = fit::analytic(&truth, &driven);
    let mut samples = samples([], Basis::Measured);
    let mut names: Vec<String> =
        ["launch", "to-device bytes=268435456", "to-host bytes=268435456"].map(ToOwned::to_owned).to_vec();
    for rows in [64, 1024, 8192, 65536] {
        names.push(format!("stream copy rows={rows} columns=8192"));
    }
    for (at, m) in [1024, 2048, 4096, 8192].into_iter().enumerate() {
        for n in [1024, 6144, 28672] {
            for k in [512, 2048, 8192] {
                names.push(format!("gemm bf16 forward m={m} n={n} k={k} batch=1 out=2"));
                if at == 3 {
                    names.push(format!("sustained bf16 forward m={m} n={n} k={k} batch=1 out=2"));
                    names.push(format!("contended bf16 forward m={m} n={n} k={k} batch=1 out=2"));
                }
            }
        }
    }
    for name in &names {
        let kernel: Kernel = name.parse().unwrap();
        samples.add(kernel, Sample::new([measured.predict(&kernel)]).unwrap());
    }
    let calibration = Calibration::new(samples, "measured", "test", &cluster, &stack).unwrap();
    let curves = &calibration.curves;
    let near = |found: f64, truth: f64| assert!((found / truth - 1.0).abs() < 0.01, "{found} is not {truth}");
    near(curves.gemm[&Format::Bf16].efficiency, 0.7);
    near(curves.gemm[&Format::Bf16].sustained, 0.9);
    near(curves.hbm_efficiency.unwrap(), 0.9);
    near(curves.host_link.unwrap().get(), 50e9);
    near(curves.contention.unwrap(), 0.2);
    near(curves.launch.unwrap().get(), 0.63 * 4e-6); // an empty launch, of a framework's 4 us
    calibration.apply(&cluster.gpu.name, &mut truth, &mut driven).unwrap();
    assert_eq!(truth.gpu.basis_of(Figure::Gemm(Format::Bf16)), Basis::Measured);
}

#[test]
fn a_time_that_beats_physics_is_refused() {
    let (cluster, stack) = bench("h100-sxm");
    let mut samples = samples([], Basis::Measured);
    let kernel: Kernel = "gemm bf16 forward m=8192 n=8192 k=8192 batch=1 out=2".parse().unwrap();
    samples.add(kernel, Sample::from_micros([900.0]).unwrap());
    let error = Calibration::new(samples, "measured", "test", &cluster, &stack).unwrap_err();
    assert!(matches!(error, ProbeError::BeatsPhysics { .. }), "{error}");
}

#[test]
fn a_calibration_of_another_device_does_not_apply() {
    let (cluster, stack) = bench("h100-sxm");
    let calibration = Calibration::new(from_tables(), "aiconfigurator", "test", &cluster, &stack).unwrap();
    let (mut other, mut driven) = bench("a100-80-sxm");
    let error = calibration.apply(&cluster.gpu.name, &mut other, &mut driven).unwrap_err().to_string();
    assert!(error.contains("H100") && error.contains("A100"), "{error}");
}

#[test]
fn nccl_tests_are_read() {
    let import = nccl_tests::read(&text("all_reduce_perf.txt"), "logs/all_reduce_perf.txt").unwrap();
    let names: Vec<String> = import.samples.iter().map(|(kernel, _)| kernel.to_string()).collect();
    assert_eq!(names.len(), 3);
    assert_eq!(names[1], "collective all_reduce ranks=4 nodes=2 bytes=1048576");
    assert!((import.samples[2].1.median().get() - 16880.4e-6).abs() < 1e-12);
    assert_eq!(import.device.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(import.driver.as_deref(), Some("NCCL 2.29.2+cuda12.9"));
    assert_eq!(import.left.values().sum::<usize>(), 1);
    for (wrong, says) in [
        (text("all_reduce_perf.txt").replace("25.70      0", "25.70      7"), "corrupt data"),
        (text("all_reduce_perf.txt").replace("Rank", "Tank"), "Rank"),
        (String::new(), "no lines of figures"),
    ] {
        let error = nccl_tests::read(&wrong, "all_reduce_perf.txt").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = nccl_tests::read(&text("all_reduce_perf.txt"), "log.txt").unwrap_err().to_string();
    assert!(error.contains("which collective ran"), "{error}");
}

#[test]
fn traces_are_read() {
    let import = kineto::read(&text("trace.json"), 8).unwrap();
    let names: Vec<String> = import.samples.iter().map(|(kernel, _)| kernel.to_string()).collect();
    assert_eq!(
        names,
        [
            "sustained bf16 forward m=8192 n=6144 k=4096 batch=1 out=2",
            "attention fa2 forward sequences=1 heads=32 kv_heads=8 queries=8192 keys=8192 qk=128 v=128 mask=causal",
            "collective all_gather ranks=8 nodes=1 bytes=67108864",
        ]
    );
    assert_eq!(import.samples[0].1.times().len(), 2);
    // The collective that waited for its peers does not count.
    assert!((import.samples[2].1.median().get() - 410e-6).abs() < 1e-12);
    assert_eq!(import.left.keys().map(String::as_str).collect::<Vec<_>>(), ["kernels of no operator with shapes"]);
    for wrong in ["{}", "{\"traceEvents\": []}", "traceEvents"] {
        assert!(kineto::read(wrong, 8).is_err(), "{wrong}");
    }
}

#[test]
fn tables_say_what_is_wrong_with_them() {
    let gemm = text("h100_gemm.csv");
    for (wrong, device, says) in [
        (gemm.clone(), "H1000", "there are H100"),
        (gemm.replace("gpu,dtype", "card,dtype"), "H100", "no known kind"),
        (gemm.replacen(",1024,1024,1024,", ",1024,x,1024,", 1), "H100", "row 2: `n` is `x`"),
    ] {
        let error = tables::read(&wrong, device).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A device that no published run speaks of is one once its kernels were timed.
#[test]
fn a_measured_device_is_a_known_one() {
    use meshwright::confidence::{class, table};
    use meshwright::cost::Footprint;
    use meshwright::problem::{HbmProfile, Problem};
    let none = catalog::Overrides::default();
    let workload = workload(64, 4096, Format::Bf16);
    let known = |calibrated: &[Figure]| {
        let mut cluster = Cluster::of_one_domain(catalog::gpu("mi250x").unwrap());
        cluster.gpu.calibrated = calibrated.iter().map(|figure| (*figure, Basis::Measured)).collect();
        let model = catalog::model("llama3-8b", &none).unwrap();
        let stack = catalog::stack("nemo-25", &none).unwrap();
        let problem = Problem::new(model, cluster, workload.clone(), stack, HbmProfile::Normal).unwrap();
        class(&problem, &Footprint::default(), table()).known_gpu
    };
    let layer = [Figure::Gemm(Format::Bf16), Figure::Sustained(Format::Bf16), Figure::Hbm];
    assert!(!known(&[]) && !known(&layer[..2]) && known(&layer));
}

/// Dense runs of a stack say nothing of its mixtures: those of torchtitan in 2024 are dense.
#[test]
fn a_stack_is_known_by_runs_of_models_of_the_same_kind() {
    use meshwright::confidence::table;
    let stacks = &table().stacks;
    let known = |stack: &str| [false, true].map(|experts| stacks.include(stack, experts));
    assert_eq!([known("InternEvo 2023"), known("torchtitan 2024")], [[true, false]; 2]);
    assert_eq!([known("NeMo 25.x"), known("JAX 2025")], [[true, true]; 2]);
    assert_eq!(known("no such stack"), [false, false]);
}
