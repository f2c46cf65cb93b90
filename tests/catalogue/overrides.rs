//! `--set` changes what it names, and says what it cannot.

use meshwright::catalog::{self, Overrides};
use meshwright::gpu::{Gpu, PeakKind};
use meshwright::stack::Dispatcher;
use meshwright::units::{Bytes, BytesPerSec, FlopsPerSec, Seconds, Watts};

fn sets(items: &[&str]) -> Overrides {
    Overrides::parse(items).unwrap()
}

#[test]
fn set_changes_single_values_and_their_source() {
    let set = sets(&[
        "gpu.hbm=96 GB",
        "gpu.hbm_bandwidth=\"4 TB/s\"",
        "gpu.peak.bf16=1000 TFLOP/s",
        "gpu.scale_up.bandwidth=900 GB/s",
        "gpu.peak.fp4=2 PFLOP/s",
    ]);
    let gpu: Gpu = catalog::gpu_with("h100-sxm", &set).unwrap();
    assert_eq!(gpu.hbm.value, Bytes::new(96e9));
    assert_eq!(gpu.hbm.source, "set-on-the-command-line");
    assert_eq!(gpu.hbm_bandwidth.value, BytesPerSec::new(4e12));
    assert_eq!(gpu.peak[&PeakKind::Bf16].value, FlopsPerSec::new(1e15));
    assert_eq!(gpu.peak[&PeakKind::Fp4].value, FlopsPerSec::new(2e15));
    assert_eq!(gpu.scale_up.bandwidth, BytesPerSec::gbytes(900.0));
    assert_eq!(gpu.tdp.value, Watts::new(700.0));

    let set = sets(&[
        "stack.traffic=1",
        "stack.overlap.tp = 0.25",
        "stack.dispatcher=deepep",
        "stack.quirks.tp_floor=1 ms",
        "stack.cuda_graphs=true",
        "stack.name=2026",
    ]);
    let stack = catalog::stack("nemo-24", &set).unwrap();
    assert_eq!((stack.traffic, stack.overlap.tp, stack.dispatcher), (1.0, 0.25, Dispatcher::DeepEp));
    assert!(stack.cuda_graphs && stack.quirks.tp_floor == Seconds::new(1e-3) && stack.name == "2026");
}

#[test]
fn set_changes_a_cluster_as_a_whole() {
    let set = sets(&[
        "cluster.nic=\"800 Gb/s\"",
        "cluster.oversubscription=3",
        "cluster.gpus=4096",
        "gpu.hbm=96 GB",
        "cluster.level.leaf.efficiency=0.75",
        "cluster.level.0.hop_latency=1",
    ]);
    let cluster = catalog::cluster("dgx-h100-1k", &set).unwrap();
    assert_eq!((cluster.gpus, cluster.levels[1].gpus, cluster.gpu.hbm.value), (4096, 4096, Bytes::new(96e9)));
    assert!(cluster.levels.iter().all(|level| level.bandwidth.value == BytesPerSec::gbytes(100.0)));
    assert_eq!(cluster.levels.iter().map(|level| level.oversubscription).collect::<Vec<_>>(), [1.0, 3.0]);
    assert_eq!((cluster.levels[0].efficiency, cluster.levels[0].hop_latency), (0.75, 1.0));
    let swapped = catalog::cluster("dgx-h100-8", &sets(&["cluster.gpu=h200-sxm", "cluster.gpus=64"])).unwrap();
    assert_eq!((swapped.gpu.name.as_str(), swapped.levels[0].gpus), ("H200 SXM 141GB", 64));
}

#[test]
fn a_set_that_does_not_fit_is_refused() {
    let stack = |item: &str| catalog::stack("nemo-24", &sets(&[item])).unwrap_err().to_string();
    let cluster = |item: &str| catalog::cluster("dgx-h100-1k", &sets(&[item])).unwrap_err().to_string();
    let error = stack("stack.trafic=1.2");
    assert!(error.starts_with("--set stack.trafic=1.2: ") && error.ends_with("did you mean `traffic`?"), "{error}");
    assert!(stack("stack.overlap.tpp=1").ends_with("did you mean `tp`?"));
    assert!(stack("stack.attention=fa33").ends_with("did you mean `fa3`?"));
    assert!(stack("stack.traffic=-1").contains("0 or more") && stack("stack.traffic=nan").contains("finite"));
    assert!(stack("stack.traffic=fast").contains("f64") && stack("stack.overlap.tp=1.5").contains("from 0 to 1"));
    assert!(stack("stack.traffic.x=1").contains("plain value"));
    let error = cluster("cluster.nix=800 Gb/s");
    assert!(error.ends_with("did you mean `nic`?"), "{error}");
    assert!(cluster("cluster.nic=800 GBps").contains("`800 GBps` is not a bandwidth"));
    assert!(cluster("cluster.gpus=many").contains("not a number of GPUs"));
    assert!(cluster("cluster.gpus=0").contains("`gpus` is 0, and must be from 1 to 1,048,576"));
    assert!(cluster("cluster.oversubscription=0.5").contains("from 1 to 1,000"));
    assert!(cluster("cluster.level.7.efficiency=1").contains("no element `7`"));
    assert!(cluster("gpu.hbm=96").contains("a size as text with its unit"));
    let parse = |item: &str| Overrides::parse([item]).unwrap_err().to_string();
    assert!(parse("clutser.nic=1").ends_with("did you mean `cluster`?"));
    assert!(parse("cluster.nic").contains("section.key=value") && parse("cluster=1").contains("missing"));
}
