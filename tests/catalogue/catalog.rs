//! The catalogue loads, says what the published tables say, and names what is wrong with a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use meshwright::catalog::{self, CatalogError, Overrides};
use meshwright::cluster::Cluster;
use meshwright::gpu::{Format, GpuNames, PeakKind};
use meshwright::units::Bytes;

fn none() -> Overrides {
    Overrides::default()
}

#[test]
fn everything_built_in_loads() {
    for name in catalog::gpu_names() {
        catalog::gpu(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in catalog::cluster_names() {
        catalog::cluster(name, &none()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in catalog::stack_names() {
        catalog::stack(name, &none()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A number of GPUs of any kind is a cluster: the catalogue's where it has one of full bisection, else a fat tree with its NIC.
#[test]
fn a_number_of_gpus_is_a_cluster() {
    for gpu in catalog::gpu_names() {
        for gpus in [1, 8, 2048, 5000] {
            let cluster = catalog::cluster(&format!("{gpus}x{gpu}"), &none()).unwrap();
            assert_eq!((cluster.gpus, &cluster.gpu.name), (gpus, &catalog::gpu(gpu).unwrap().name), "{gpu}");
            assert!(cluster.gpu == catalog::gpu(gpu).unwrap(), "{gpus}x{gpu} is another device");
            assert!(cluster.levels.iter().all(|level| level.bandwidth.value == cluster.gpu.nic.value), "{gpu}");
        }
    }
    let (mut named, counted) =
        (catalog::cluster("h200-1k", &none()).unwrap(), catalog::cluster("1_024xH200", &none()).unwrap());
    assert_eq!(counted.name, "1024 x H200 SXM 141GB");
    named.levels[1].gpus = counted.levels[1].gpus;
    named.levels.iter_mut().for_each(|level| level.assumed = true);
    assert_eq!(
        (named.machine_gpus.take(), counted.machine_gpus),
        (Some(1024), None),
        "of what it is a part is not known"
    );
    assert_eq!(Cluster { name: counted.name.clone(), source: counted.source.clone(), ..named }, counted);
    let set = |item: &str| catalog::cluster("512xmi325x", &Overrides::parse([item]).unwrap());
    assert!((set("cluster.level.0.efficiency=0.7").unwrap().levels[0].efficiency - 0.7).abs() < 1e-12);
    assert!((set("cluster.nic=\"200 Gb/s\"").unwrap().levels[1].bandwidth.value.get() - 25e9).abs() < 1.0);
    assert!(set("cluster.nic=\"200 Gb/s\"").unwrap().levels.iter().all(|level| !level.assumed));
    assert!(set("gpu.nic=\"200 Gb/s\"").unwrap().levels.iter().all(|level| !level.assumed));
    assert!(set("cluster.level.7.efficiency=0.7").is_err());
}

/// A number of a GPU file's GPUs is a cluster too, unless a file has the whole name.
#[test]
fn a_number_of_the_users_gpus_is_a_cluster() {
    let root = env!("CARGO_MANIFEST_DIR");
    let cluster = catalog::cluster(&format!("512x{root}/docs/examples/gpu.toml"), &none()).unwrap();
    let gpu = catalog::gpu_with(&format!("{root}/docs/examples/gpu.toml"), &none()).unwrap();
    assert_eq!((cluster.gpus, &cluster.gpu), (512, &gpu));
    assert!(cluster.levels.iter().all(|level| level.bandwidth.value == gpu.nic.value));
    let absent = catalog::cluster(&format!("512x{root}/absent.toml"), &none()).unwrap_err().to_string();
    assert!(absent.contains("512x") && absent.contains("absent.toml"), "{absent}");
}

#[test]
fn a_misspelt_number_of_gpus_is_told_the_form() {
    let refusal = |name: &str| catalog::cluster(name, &none()).unwrap_err().to_string();
    for (name, meant) in [("h100-sxm", "8xh100-sxm"), ("mi300x", "8xmi300x"), ("64xh100-smx", "64xh100-sxm")] {
        assert!(refusal(name).contains(&format!("did you mean `{meant}`?")), "{}", refusal(name));
    }
    assert!(refusal("0xh100-sxm").contains("`gpus` is 0"), "{}", refusal("0xh100-sxm"));
    assert!(refusal("nonsense").contains("as `512xh100-sxm`"), "{}", refusal("nonsense"));
}

#[test]
fn lists_hold_every_file_once_and_in_order() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let lists = [
        ("clusters/gpus", catalog::gpu_names()),
        ("clusters", catalog::cluster_names()),
        ("clusters/stacks", catalog::stack_names()),
    ];
    for (folder, names) in lists {
        let files: BTreeSet<String> = std::fs::read_dir(root.join(folder))
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
            .collect();
        assert_eq!(names, files.iter().map(String::as_str).collect::<Vec<_>>(), "{folder}");
    }
}

#[test]
fn printed_names_are_unique() {
    let unique = |names: Vec<String>| names.len() == names.iter().collect::<BTreeSet<_>>().len();
    assert!(unique(catalog::gpu_names().into_iter().map(|name| catalog::gpu(name).unwrap().name).collect()));
    let clusters = catalog::cluster_names();
    assert!(unique(clusters.into_iter().map(|name| catalog::cluster(name, &none()).unwrap().name).collect()));
    let stacks = catalog::stack_names();
    assert!(unique(stacks.into_iter().map(|name| catalog::stack(name, &none()).unwrap().name).collect()));
}

/// A file that was copied needs `names` of its own: runs, drivers and logs would else be taken for either device.
#[test]
fn names_in_runs_drivers_and_logs_belong_to_one_device() {
    type Names = fn(&GpuNames) -> &[String];
    let lists: [(&str, Names); 3] =
        [("runs", |names| &names.runs), ("driver", |names| &names.driver), ("log", |names| &names.log)];
    for (key, list) in lists {
        let mut owners = BTreeMap::new();
        for gpu in catalog::gpu_names() {
            for name in list(&catalog::gpu(gpu).unwrap().names) {
                let other = owners.insert(name.clone(), gpu);
                assert_eq!(other, None, "`{name}` is in names.{key} of {gpu} too");
            }
        }
    }
}

/// Capacity of a host: from the file with its source or one of its own; a setting replaces either.
#[test]
fn host_memory_has_the_source_of_its_file_or_its_own() {
    let of = |name: &str, set: &[&str]| {
        let cluster = catalog::cluster(name, &Overrides::parse(set).unwrap());
        cluster.map(|cluster| cluster.host_memory.map(Bytes::get))
    };
    assert_eq!(of("dgx-h100-1k", &[]).unwrap(), Some(2e12));
    assert_eq!(of("mi300x-512", &[]).unwrap(), Some(1850.0 * f64::from(1 << 30)));
    for name in ["dgx-h100-1k", "mi300x-512", "h800-2048"] {
        assert_eq!(of(name, &["cluster.host_memory=4 TB"]).unwrap(), Some(4e12), "{name}");
        let bad = of(name, &["cluster.host_memory=much"]).unwrap_err().to_string();
        assert!(bad.contains("bytes such as \"2 TB\""), "{name}: {bad}");
    }
}

/// Largest difference from the table: datasheets round twice a peak up (2 x 1,307 is printed as 2,615).
const ROUNDING: f64 = 0.001;

#[test]
fn devices_agree_with_the_table() {
    let mut reader = csv::Reader::from_reader(include_str!("../data/gpus.csv").as_bytes());
    let columns = reader.headers().unwrap().clone();
    let mut rows = 0;
    for row in reader.records() {
        let row = row.unwrap();
        let text = |column: &str| &row[columns.iter().position(|name| name == column).expect(column)];
        let number = |column: &str| text(column).parse::<f64>().ok();
        let name = text("name").to_lowercase();
        let gpu = catalog::gpu(&name).unwrap();
        let check = |what: &str, value: f64, column: &str| {
            let expected = number(column).expect(column);
            assert!((value / expected - 1.0).abs() <= ROUNDING, "{name}: {what} is {value}, the table has {expected}");
        };
        let peak = |kind| gpu.peak.get(&kind).map(|peak| peak.value.as_tflops());
        check("bf16", peak(PeakKind::Bf16).unwrap(), "peak_bf16_tflops_dense");
        for (kind, column) in [(PeakKind::Fp8, "peak_fp8_tflops_dense"), (PeakKind::Fp4, "peak_fp4_tflops_dense")] {
            match peak(kind) {
                Some(value) => check("peak", value, column),
                None => assert_eq!(number(column), None, "{name}: {column}"),
            }
        }
        check("processors", f64::from(gpu.processors.value), "sms");
        // The table has the vendor's figure, the catalogue the driver's: between as many 10^9 bytes and as many GiB.
        let (hbm, nominal) = (gpu.hbm.value, number("hbm_gb").unwrap());
        assert!(hbm.get() >= nominal * 1e9 && hbm.as_gib() <= nominal * 1.02, "{name}: {hbm}");
        check("hbm_bandwidth", gpu.hbm_bandwidth.value.get() / 1e12, "hbm_tb_s");
        check("tdp", gpu.tdp.value.get(), "tdp_w");
        check("host_link", gpu.host_link.value.get() / 1e9, "host_link_uni_gb_s");
        check("nic", gpu.nic.value.get() / 1e9, "nic_uni_gb_s_per_gpu");
        check("price", gpu.price.as_ref().unwrap().typical.get(), "usd_h_typ");
        check("pair", gpu.scale_up.pair_bandwidth.get() / 1e9, "scaleup_pair_uni_gb_s");
        if name.ends_with("-pcie") {
            // The table counts these boards alone; here the domain is the box, whose root complex halves the rate.
            let halved = gpu.scale_up.bandwidth.get() / 1e9 / number("scaleup_uni_gb_s_per_gpu").unwrap();
            assert!(gpu.scale_up.gpus == 8 && (halved - 0.5).abs() < 0.02, "{name}: {halved}");
        } else {
            check("domain", f64::from(gpu.scale_up.gpus), "scaleup_domain");
            check("scale-up", gpu.scale_up.bandwidth.get() / 1e9, "scaleup_uni_gb_s_per_gpu");
        }
        rows += 1;
    }
    assert_eq!(rows, 25);
}

#[test]
fn a_weaker_host_sustains_less() {
    let sustained = |name| catalog::gpu_with(name, &Overrides::specification()).unwrap().gemm[&Format::Bf16].sustained;
    assert!(sustained("b200-power-capped") < sustained("b200-sxm"));
    // 500 W of 700 W, idle 84 W: the cube root of the power above idle
    let expected = sustained("h100-sxm") * (416.0_f64 / 616.0).cbrt();
    assert!((sustained("h100-96gb-hbm2e") - expected).abs() < 1e-6);
}

fn gpu_error(text: &str) -> String {
    let path = scratch("gpu", text.as_bytes());
    let error = catalog::gpu(path.to_str().unwrap()).unwrap_err().to_string();
    std::fs::remove_file(path).unwrap();
    error
}

/// A file of this test, in the build's own folder.
pub fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}.toml", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn h100() -> &'static str {
    catalog::files::GPUS.iter().find(|(name, _)| *name == "h100-sxm").unwrap().1
}

#[test]
fn an_unknown_name_suggests_the_nearest() {
    let error = catalog::gpu("h100-smx").unwrap_err().to_string();
    assert!(error.starts_with("there is no GPU `h100-smx`; did you mean `h100-sxm`?"), "{error}");
    let error = catalog::cluster("dgx-h100-1024", &none()).unwrap_err().to_string();
    assert!(error.contains("did you mean `dgx-h100-") && error.contains("h100-24576, "), "{error}");
    assert!(catalog::stack("zzz", &none()).unwrap_err().to_string().starts_with("there is no stack `zzz`\n\nhint: "));
    let error = catalog::market("market-2025", &none()).unwrap_err().to_string();
    assert!(error.contains("`market-2025`; did you mean `market-2026`?"), "{error}");
    let error = catalog::model("llama3-8", &none()).unwrap_err().to_string();
    assert!(error.starts_with("there is no model `llama3-8`; did you mean `llama3-8b`?"), "{error}");
}

#[test]
fn a_wrong_unit_is_named_with_its_line() {
    let error = gpu_error(&h100().replace("\"81559 MiB\"", "\"80 Gb\""));
    assert!(error.contains("`80 Gb` is not a size") && error.contains("`GB`"), "{error}");
    assert!(error.contains(".toml: ") && error.contains("line "), "{error}");
}

#[test]
fn an_unknown_key_shows_its_line_and_the_nearest() {
    let error = gpu_error(&h100().replace("hbm_bandwidth ", "hbm_bandwith "));
    assert!(error.contains("line ") && error.contains("column ") && error.contains("hbm_bandwith"), "{error}");
    assert!(error.ends_with("hint: did you mean `hbm_bandwidth`?"), "{error}");
}

/// A name of two lines would leave its comment in a launch script, and its second line would run.
#[test]
fn texts_of_several_lines_are_refused() {
    let named = |name: &str| h100().replace("\"H100 SXM5 80GB\"", &format!("\"{name}\""));
    for name in ["H100\\ntouch PWNED\\n#", "H100\\r#", "H100\\u0085#", "H100\\u2028#", "H100\\u0000"] {
        let error = gpu_error(&named(name));
        assert!(error.contains("`name` holds a line break or another control character"), "{name}: {error}");
    }
    let sets = Overrides::parse([r#"model.name="L\ntouch PWNED""#]).unwrap();
    let error = catalog::model("llama3-8b", &sets).unwrap_err().to_string();
    assert!(error.contains("`name` holds a line break"), "{error}");
    let error = Overrides::parse(["stack.name=a\nb"]).unwrap_err().to_string();
    assert!(error.contains("must be one line"), "{error}");
    let config = include_str!("../hf/llama-3.1-8b.json");
    let error = catalog::hf::from_config(config, "L\ntouch PWNED\n#/config.json").unwrap_err().to_string();
    assert!(error.contains("the name of its folder") && !error.contains('\n'), "{error}");
}

#[test]
fn values_that_cannot_be_are_refused() {
    assert!(gpu_error(&h100().replace("0.793", "nan")).contains("gemm.bf16.efficiency"));
    assert!(gpu_error(&h100().replace("0.793", "-0.1")).contains("must be"));
    assert!(
        gpu_error(&h100().replace("989.4 TFLOP/s", "0 TFLOP/s"))
            .contains("`peak.bf16.value` is 0 TFLOP/s, and must be from")
    );
}

#[test]
fn files_that_are_none_are_told_apart() {
    let of = |bytes: &[u8]| {
        let path = scratch("odd", bytes);
        let error = catalog::cluster(path.to_str().unwrap(), &none()).unwrap_err().to_string();
        std::fs::remove_file(path).unwrap();
        error
    };
    assert!(of(b"").ends_with("is empty") && of(b" \n").ends_with("is empty"));
    assert!(of(b"name = \"\xff\xfe\"").ends_with("is not UTF-8 text"));
    assert!(of(&vec![b'#'; (16 << 20) + 1]).contains("over 16 MiB"));
    assert!(of(b"name = ").contains("line 1"));
    assert!(catalog::gpu(env!("CARGO_TARGET_TMPDIR")).unwrap_err().to_string().ends_with("is a folder, not a file"));
    let missing = catalog::gpu("./there-is-no-such-file.toml").unwrap_err();
    assert!(matches!(missing, CatalogError::Unreadable { .. }), "{missing}");
}

#[test]
fn a_cluster_file_may_name_a_gpu_file_beside_it() {
    let gpu = scratch("own-gpu", h100().replace("H100 SXM5 80GB", "My H100").as_bytes());
    let beside = gpu.file_name().unwrap().to_str().unwrap();
    let text = "name = \"mine\"\ngpu = \"GPU\"\ngpus = 8\ngpus_per_node = 8\nhost = \"x86\"\nsource = \"mine\"\n";
    let cluster = scratch("own-cluster", text.replace("GPU", beside).as_bytes());
    let loaded = catalog::cluster(cluster.to_str().unwrap(), &none()).unwrap();
    assert_eq!(loaded.gpu.name, "My H100");
    let other = scratch("own-cluster", text.replace("GPU", "h200-sxm").as_bytes());
    assert_eq!(catalog::cluster(other.to_str().unwrap(), &none()).unwrap().gpu, catalog::gpu("h200-sxm").unwrap());
    for path in [gpu, cluster, other] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_with_slices_too_large_to_count_is_refused() {
    let text = "name = \"x\"\ngpu = \"tpu-v4\"\ngpus = 8\ngpus_per_node = 4\nhost = \"x86\"\nsource \
    = \"x\"\nscale_up_axes = [65536, 65536, 2]\n";
    let path = scratch("axes", text.as_bytes());
    assert!(catalog::cluster(path.to_str().unwrap(), &none()).unwrap_err().to_string().contains("scale_up_axes"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn every_fit_fits() {
    for name in catalog::fit_names() {
        let sets = catalog::fits::over(none(), name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let fit = Arc::new(sets.fit().unwrap().clone());
        fit.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(fit.name, name);
        assert!(
            fit.constants.iter().all(|constant| !constant.from.is_empty()),
            "{name}: a constant without provenance"
        );
    }
    assert!(catalog::fits::over(Overrides::default(), "none").unwrap().fit().is_none());
    let error = catalog::fits::over(none(), "2026-1").unwrap_err().to_string();
    assert!(error.contains("did you mean `2026-11`?"), "{error}");
}

fn fit_of(constants: &str) -> Result<Overrides, CatalogError> {
    let head = "name = \"f\"\ndate = \"2026-11-21\"\nsource = \"published-runs\"\n";
    let path = scratch("fit", format!("{head}{constants}").as_bytes());
    let sets = catalog::fits::over(Overrides::default(), path.to_str().unwrap());
    std::fs::remove_file(path).unwrap();
    sets
}

fn constant(key: &str, value: &str) -> String {
    format!("[[constant]]\nkey = \"{key}\"\nvalue = {value}\nsource = \"published-runs\"\nfrom = \"a test\"\n")
}

#[test]
fn a_fit_lies_over_the_entries_it_names() {
    let constants = [
        constant("gpu.h100-*.gemm.bf16.sustained", "0.5"),
        constant("gpu.h100-sxm.gemm.bf16.sustained", "0.6"),
        constant("gpu.h100-sxm.hbm_efficiency", "0.7"),
        constant("stack.nemo-25.quirks.sync_per_layer", "\"2 ms\""),
    ];
    let sets = fit_of(&constants.concat()).unwrap();
    let sustained = |name| catalog::gpu_with(name, &sets).unwrap().gemm[&Format::Bf16].sustained;
    assert_eq!((sustained("h100-sxm"), sustained("h100-pcie")), (0.6, 0.5));
    let specification = catalog::gpu_with("h200-sxm", &Overrides::specification()).unwrap();
    assert_eq!(catalog::gpu_with("h200-sxm", &sets).unwrap(), specification);
    let gpu = catalog::gpu_with("h100-sxm", &sets).unwrap();
    assert_eq!((gpu.hbm_efficiency.value, gpu.hbm_efficiency.source.as_str()), (0.7, "published-runs"));
    let quirks = catalog::stack("nemo-25", &sets).unwrap().quirks;
    assert_eq!(quirks.sync_per_layer, meshwright::units::Seconds::new(2e-3));
    let cluster = catalog::cluster("dgx-h100-8", &sets).unwrap();
    assert_eq!(cluster.gpu.hbm_efficiency, gpu.hbm_efficiency);
    let set = Overrides::parse(["gpu.hbm_efficiency=0.9"]).unwrap().with_fit(sets.fit().cloned().map(Into::into));
    let over_fit = catalog::gpu_with("h100-sxm", &set).unwrap().hbm_efficiency;
    assert_eq!((over_fit.value, over_fit.source.as_str()), (0.9, "set-on-the-command-line"));
}

#[test]
fn a_fit_that_does_not_fit_says_where() {
    for (key, value, part) in [
        ("gpu.h100-smx.hbm_efficiency", "0.7", "did you mean `h100-sxm`?"),
        ("gpu.h100-sxm.hbm_eficiency", "0.7", "unknown field `hbm_eficiency`"),
        ("gpu.h100-sxm.hbm_efficiency", "7.0", "from 0.001 to 1"),
        ("gpu.h100-sxm.hbm_efficiency", "-0.5", "0 or more"),
        ("cluster.x.y", "1", "must start with `gpu.`, `stack.` or `transport.`"),
        ("stack.nemo-25", "1", "must name a value"),
    ] {
        let error = fit_of(&constant(key, value)).unwrap_err().to_string();
        assert!(error.contains(part), "{key}: {error}");
    }
}
