//! Boards that carry a host beside their devices.

use super::catalog::scratch;
use meshwright::catalog::{self, Overrides};
use meshwright::gpu::Host;
use meshwright::units::Bytes;

/// A board that carries its own host gives it to every cluster of its devices, and a file that says otherwise is refused.
#[test]
fn a_superchip_brings_its_host() {
    for (name, gpus_per_node, memory) in [("16xgh200", 1, 480.0), ("64xgh200-quad", 4, 480.0), ("144xgb300", 4, 960.0)]
    {
        let cluster = catalog::cluster(name, &Overrides::default()).unwrap();
        let host = (cluster.host, cluster.gpus_per_node, cluster.host_memory);
        assert_eq!(host, (Host::Grace, gpus_per_node, Some(Bytes::new(memory * 1e9))), "{name}");
    }
    assert_eq!(catalog::cluster("16xh200-sxm", &Overrides::default()).unwrap().host, Host::X86);

    let read = |lines: &str| {
        let path = scratch("boards", format!("name = \"a\"\ngpus = 4\ngpus_per_node = 4\n{lines}").as_bytes());
        catalog::cluster(path.to_str().unwrap(), &Overrides::default())
    };
    let refused = read("gpu = \"gb200\"\nhost = \"x86\"\n").unwrap_err().to_string();
    assert!(refused.contains("shares its board with a grace host"), "{refused}");
    let stated = read("gpu = \"gb200\"\nhost_memory = \"500 GB\"\n").unwrap();
    assert_eq!(stated.host_memory, Some(Bytes::new(500e9)));
    assert_eq!(read("gpu = \"b200-sxm\"\nhost = \"grace\"\n").unwrap().host, Host::Grace);
}
