//! Problem of the unit tests of reports and of the command line.

use meshwright_engine::gpu::Format;
use meshwright_engine::problem::{HbmProfile, Problem};
use meshwright_engine::workload::{Adaptation, Half, Optimizer, Workload, recipe};
use meshwright_planner::catalog::{self, Overrides};

/// Training of a model of the catalogue in bf16 with sequences of 8,192 tokens, on H100s with NeMo 25.x.
pub(crate) fn problem(model: &str, gpus: u32, global_batch: u32) -> Problem {
    let sets = Overrides::default();
    let workload = Workload {
        global_batch,
        seq_len: 8192,
        document_len: None,
        format: Format::Bf16,
        half: Half::Bf16,
        recipe: recipe("megatron").unwrap(),
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    };
    let cluster = catalog::cluster("h100-512", &sets).unwrap().resized(gpus);
    let (model, stack) = (catalog::model(model, &sets).unwrap(), catalog::stack("nemo-25", &sets).unwrap());
    Problem::new(model, cluster, workload, stack, HbmProfile::Normal).unwrap()
}
