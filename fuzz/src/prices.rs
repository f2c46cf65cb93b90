//! Problems of the targets, and the law that every price is finite.

use std::sync::LazyLock;

use meshwright::catalog::{self, Overrides};
use meshwright::cluster::Cluster;
use meshwright::cost::{Costs, Evaluation};
use meshwright::gpu::Format;
use meshwright::import::Imported;
use meshwright::model::Model;
use meshwright::plan::text::plain_plan;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::space;
use meshwright::stack::Stack;
use meshwright::workload::{Adaptation, Half, Optimizer, RECIPES, Workload, usual_batch};

// Each is read once: reading took most of the time of an input.
static MODEL: LazyLock<Model> =
    LazyLock::new(|| catalog::model("llama3-8b", &Overrides::default()).expect("in the catalogue"));
static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| catalog::cluster("dgx-h100-64", &Overrides::default()).expect("in the catalogue"));
static STACK: LazyLock<Stack> =
    LazyLock::new(|| catalog::stack("nemo-25", &Overrides::default()).expect("in the catalogue"));
static PROBLEMS: LazyLock<Vec<Problem>> = LazyLock::new(|| (0..PROBLEM_COUNT).map(problem_of).collect());
static COSTS: LazyLock<Vec<Costs>> = LazyLock::new(|| PROBLEMS.iter().map(Costs::new).collect());

pub fn model() -> Model {
    MODEL.clone()
}

pub fn cluster() -> Cluster {
    CLUSTER.clone()
}

pub fn stack() -> Stack {
    STACK.clone()
}

fn workload(global_batch: u32, seq_len: u32) -> Workload {
    Workload {
        global_batch,
        seq_len,
        format: Format::Bf16,
        half: Half::Bf16,
        recipe: RECIPES[0].recipe,
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    }
}

pub fn problem() -> &'static Problem {
    &PROBLEMS[0]
}

const MODELS: [&str; 4] = ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "nemotron-h-56b"];
const STACKS: [&str; 3] = ["nemo-25", "torchtitan-2025", "nanotron-2025"];
const PROBLEM_COUNT: usize = MODELS.len() * STACKS.len();

/// Prices of a problem of the catalogue by number: dense, with experts, hybrid; with and without interleaving.
pub fn costs_of_number(number: u8) -> &'static Costs<'static> {
    &COSTS[usize::from(number) % PROBLEM_COUNT]
}

fn problem_of(number: usize) -> Problem {
    let sets = Overrides::default();
    let names = catalog::model_names();
    let name = MODELS[number % MODELS.len()];
    let name = if names.contains(&name) { name } else { names[0] };
    let model = catalog::model(name, &sets).expect("in the catalogue");
    let stack = catalog::stack(STACKS[number / MODELS.len()], &sets).expect("in the catalogue");
    let seq_len = model.seq_len.min(8192);
    Problem::new(model, cluster(), workload(128, seq_len), stack, HbmProfile::Normal).expect("a problem that is legal")
}

/// Problem whose model, cluster and stack have this name; none where a reader would refuse the name.
pub fn named(name: &str) -> Option<Problem> {
    if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return None;
    }
    let (mut model, mut cluster, mut stack) = (model(), cluster(), stack());
    (model.name, model.source) = (name.to_owned(), name.to_owned());
    (cluster.name, stack.name) = (name.to_owned(), name.to_owned());
    Problem::new(model, cluster, workload(128, 8192), stack, HbmProfile::Normal).ok()
}

/// Problem of what a file says, on GPUs of the catalogue.
pub fn imported(imported: &Imported, gpus: u32) -> Option<Problem> {
    let model = imported.model.clone()?;
    let seq_len = imported.work.seq_len.unwrap_or(model.seq_len);
    let workload = workload(imported.batch_on(gpus), seq_len);
    Problem::new(model, cluster().resized(gpus), workload, stack(), HbmProfile::Normal).ok()
}

/// Prices the plainest plan of a problem.
pub fn of(model: Model, cluster: Cluster, stack: Stack) {
    let (batch, seq_len) = (usual_batch(cluster.gpus), model.seq_len);
    let Ok(problem) = Problem::new(model, cluster, workload(batch, seq_len), stack, HbmProfile::Normal) else { return };
    let plan = plain_plan(&problem);
    let costs = Costs::new(&problem);
    if space::check(&costs, &plan).iter().all(space::Rejection::is_of_memory) {
        finite(&costs.evaluate_simulated(&plan));
    }
}

/// Every term of a price is finite, and none is negative.
pub fn finite(evaluation: &Evaluation) {
    for (term, time) in evaluation.step.terms() {
        assert!(time.get().is_finite() && time.get() >= 0.0, "{term:?} is {} of {}", time.get(), evaluation.plan);
    }
    for (tenant, bytes) in evaluation.footprint.tenants() {
        assert!(bytes.get().is_finite() && bytes.get() >= 0.0, "{tenant:?} is {} of {}", bytes.get(), evaluation.plan);
    }
}
