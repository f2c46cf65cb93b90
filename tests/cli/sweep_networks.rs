//! Networks of a sweep: prices of NICs and ports, and sweeps without them.

use serde_json::Value;

use crate::sweep::{folder, run, text, well, written};

/// A sweep of one small workload on 64 GPUs, which one level of a network joins.
fn sweep(options: &str) -> String {
    format!("name = \"networks\"\n[[workload]]\nmodel = \"llama3-8b\"\ntokens = \"1 B\"\nglobal_batch = 64\n{options}")
}

/// Totals of the options of a sweep, in its order.
fn totals(name: &str, options: &str) -> Vec<Value> {
    let document = well(&[&written(&folder(name), &sweep(options)), "--format", "json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    document["records"].as_array().unwrap().iter().map(|record| record["totals"].clone()).collect()
}

/// Stated prices take the place of the share of the machines: three years at 90 %, of which 30 % of the price are left.
#[test]
fn stated_prices_are_those_of_a_nic_and_a_port() {
    let owned = "[options]\ngpu = \"h100-sxm\"\ngpus = 64\nterms = \"own\"\n";
    let prices =
        totals("network-prices", &format!("{owned}nic_price = [\"0 $\", \"1000 $\"]\nport_price = \"500 $\"\n"));
    let hourly = |at: usize| prices[at]["usd_per_gpu_hour"].as_f64().unwrap();
    let of_dollars = |dollars: f64| dollars * 0.7 / (3.0 * 365.0 * 24.0) / 0.9;
    let nic = hourly(1) - hourly(0);
    assert!((nic / of_dollars(1000.0) - 1.0).abs() < 0.01, "{nic}");
    let share = totals("network-share", owned)[0]["usd_per_gpu_hour"].as_f64().unwrap();
    let buy = (share - hourly(0) + of_dollars(500.0)) / of_dollars(0.2);
    assert!((20_000.0..60_000.0).contains(&buy), "a fifth of a machine of {buy} $ against one port");
}

#[test]
fn networks_without_prices_are_named() {
    let said = |name: &str, options: &str| {
        let output = run(&[&written(&folder(name), &sweep(options))]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let (rent, price) =
        ("networks are compared at one rent", "networks are compared at one price, 20.0 % of the machines");
    let base = "gpu = \"h100-sxm\"\ngpus = 64\n";
    let two = "nic = [\"200 Gb/s\", \"400 Gb/s\"]\n";
    let rented = said("networks-rented", &format!("[options]\n{base}{two}"));
    assert!(rented.contains(rent) && !rented.contains(price), "{rented}");
    let owned = said("networks-owned", &format!("[options]\n{base}{two}terms = \"own\"\nport_price = \"500 $\"\n"));
    assert!(owned.contains(price) && !owned.contains(rent), "ports of both rates at one price: {owned}");
    let table = |rate: u32, port: u32| {
        format!("[[options]]\n{base}terms = \"own\"\nnic = \"{rate} Gb/s\"\nport_price = \"{port} $\"\n")
    };
    let priced = said("networks-priced", &(table(200, 300) + &table(400, 500)));
    assert!(!priced.contains("networks are compared"), "{priced}");
    let one = said("one-network", &format!("[options]\n{base}"));
    assert!(!one.contains("networks are compared"), "{one}");
}

#[test]
fn prices_of_networks_are_checked() {
    let refused = |line: &str| {
        let options = format!("[options]\ngpu = \"h100-sxm\"\ngpus = 64\nterms = \"own\"\n{line}\n");
        let output = run(&[&written(&folder("network-refused"), &sweep(&options))]);
        assert_eq!(output.status.code(), Some(2), "{line}");
        text(&output.stderr)
    };
    assert!(refused("nic_price = 1000").contains("options.nic_price"));
    assert!(refused("port_price = \"-1 $\"").contains("options.port_price"));
    assert!(refused("prot_price = \"1 $\"").contains("port_price"));
}
