//! Files of pools, and the errors of bad ones.

use meshwright::catalog::{self, ClusterOrPools, Overrides};

fn read(text: &str) -> Result<ClusterOrPools, String> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("pools-{}.toml", FILES.fetch_add(1, Ordering::Relaxed));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    catalog::machine(path.to_str().unwrap(), &Overrides::default()).map_err(|error| error.to_string())
}

const POOLS: &str = r#"
name = "two"
source = "meshwright-estimates"
[[pool]]
name = "h100"
cluster = "h100-512"
[[pool]]
name = "h200"
cluster = "h200-1k"
gpus = 256
price = "2.6 $/h"
[[link]]
between = ["h100", "h200"]
bandwidth = { value = "100 Gb/s", source = "meshwright-estimates" }
efficiency = 0.75
"#;

#[test]
fn a_file_of_pools_is_read() {
    let ClusterOrPools::Pools(pooled) = read(POOLS).unwrap() else { panic!("it has two pools") };
    assert_eq!(pooled.gpus(), 768);
    assert_eq!(pooled.pools[1].cluster.gpu.name, "H200 SXM 141GB");
    let joined = pooled.joined(0);
    assert_eq!((joined.gpus, joined.levels.last().unwrap().gpus), (768, 768));
    assert!(joined.levels.iter().rev().skip(1).all(|level| level.gpus <= 512));
    joined.check().unwrap();
}

/// One pool is a cluster: the one that its own file would be.
#[test]
fn one_pool_is_a_cluster() {
    let own = "name = \"x\"\ngpu = \"h100-sxm\"\ngpus = 8\ngpus_per_node = 8\nhost = \"x86\"\nsource = \"meshwright-estimates\"\n";
    let pool = "name = \"x\"\nsource = \"meshwright-estimates\"\n[[pool]]\nname = \"a\"\ngpu = \"h100-sxm\"\ngpus = 8\n\
                gpus_per_node = 8\nhost = \"x86\"\n";
    assert_eq!(read(own).unwrap(), read(pool).unwrap());
    assert!(matches!(read(own).unwrap(), ClusterOrPools::Cluster(_)));
}

#[test]
fn bad_files_are_told_what_is_wrong() {
    let without_link = POOLS.split("[[link]]").next().unwrap();
    let cases = [
        (POOLS.replace("cluster = \"h100-512\"", "clustr = \"h100-512\""), "did you mean `cluster`"),
        (POOLS.replace("gpus = 256", "gpus = 0"), "`gpus` is 0, and must be from 1"),
        (POOLS.replace("name = \"h200\"", "name = \"h100\""), "two pools are named `h100`"),
        (without_link.to_owned(), "nothing joins pools `h100` and `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\", \"h20\""), "did you mean `h200`"),
        (POOLS.replace("\"h100\", \"h200\"", "\"h100\""), "joins two pools or more"),
        (POOLS.replace("100 Gb/s", "0 Gb/s"), "`bandwidth` is 0 GB/s, and must be"),
        (POOLS.replace("efficiency = 0.75", "efficiency = 1.75"), "`efficiency` is 1.75, and must be"),
        (POOLS.replace("efficiency", "effciency"), "did you mean `efficiency`"),
        (POOLS.replace("cluster = \"h100-512\"", "cluster = \"h100-513\""), "there is no cluster `h100-513`"),
        (POOLS.replace("gpus = 256", "gpus = 256\ngpu = \"h200-sxm\""), "`cluster` and `gpu`"),
        (POOLS.replace("cluster = \"h100-512\"", "gpu = \"h100-sxm\""), "needs `gpus`"),
        (POOLS.replace("cluster = \"h100-512\"", "cluster = \"mi300x-512\""), "no collective library"),
        (format!("{POOLS}\n[[link]]{}", POOLS.split("[[link]]").nth(1).unwrap()), "2 links join"),
        ("name = \"x\"\nsource = \"y\"\npool = []\n".to_owned(), "no pool"),
    ];
    for (text, words) in cases {
        let error = read(&text).expect_err(words);
        assert!(error.contains(words), "`{words}` is not in: {error}");
    }
    let error = catalog::cluster("tests", &Overrides::default()).unwrap_err().to_string();
    assert!(error.contains("there is no cluster"), "{error}");
}
