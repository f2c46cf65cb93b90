//! Entries of the catalogue that apply where the user names none, and the planner's built-in tables.

use meshwright::catalog::{self, Overrides, defaults};
use meshwright::workload::Adaptation;
use meshwright::{confidence, discrepancy};

/// Recipes of mixtures on GB200 replay graphs; adapters train without them, and so do dense models.
#[test]
fn graphs_replay_mixtures_that_are_trained_whole() {
    let none = Overrides::default();
    let cluster = catalog::cluster("gb200-nvl72-1152", &none).unwrap();
    let stack = catalog::stack("nemo-25", &none).unwrap();
    let replayed = |model: &str, adaptation| {
        defaults::replays(&catalog::model(model, &none).unwrap(), &cluster, &stack, adaptation, &none)
    };
    assert!(replayed("qwen3-235b-a22b", Adaptation::Full));
    assert!(!replayed("qwen3-235b-a22b", Adaptation::Lora) && !replayed("qwen3-235b-a22b", Adaptation::LoraAttention));
    assert!(!replayed("llama3-70b", Adaptation::Full));
}

#[test]
fn each_vendor_has_a_stack_that_runs_on_its_devices() {
    for (device, name) in [
        ("trainium2", "neuron-2025"),
        ("gaudi3", "gaudi-2024"),
        ("mi300x", "megatron-rocm-2025"),
        ("tpu-v5p", "jax-2025"),
        ("v100-sxm2-32", "megatron-2022"),
        ("h100-sxm", "nemo-25"),
    ] {
        let gpu = catalog::gpu_with(device, &Overrides::default()).unwrap();
        assert_eq!(defaults::stack(&gpu), name, "{device}");
        catalog::stack(name, &Overrides::default()).unwrap();
    }
}

#[test]
fn built_in_tables_are_whole() {
    confidence::table().check().unwrap();
    discrepancy::built_in().check().unwrap();
}
