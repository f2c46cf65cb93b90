//! Problems of the catalogue and plans picked from their spaces, for the tests of laws.

#![allow(dead_code)] // each test file uses a part

use meshwright::catalog::{self, Overrides};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::plan::Plan;
use meshwright::problem::{HbmProfile, Problem};
use meshwright::space::{self, Restrictions, Space};
use meshwright::split::LayerSplit;
use meshwright::workload::{Adaptation, Half, Optimizer, Workload, recipe};
use proptest::test_runner::{Config, RngSeed};

pub use meshwright_planner::split_mix::SplitMix;

/// Settings of a property test: the same cases in every run, unless `PROPTEST_RNG_SEED` names others; a failure prints its case.
pub fn seeded(cases: u32) -> Config {
    let usual = Config::default();
    let rng_seed = if usual.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { usual.rng_seed };
    Config { cases, failure_persistence: None, rng_seed, ..usual }
}

/// Full training of balanced experts with Megatron's bytes per parameter.
pub fn workload(global_batch: u32, seq_len: u32, format: Format) -> Workload {
    Workload {
        global_batch,
        seq_len,
        document_len: None,
        format,
        half: Half::default(),
        recipe: recipe("megatron").unwrap(),
        optimizer: Optimizer::Elementwise,
        adaptation: Adaptation::Full,
        imbalance: 1.0,
        drops_tokens: false,
    }
}

/// Where a problem comes from: names of the catalogue, and what is set.
#[derive(Clone, Debug)]
pub struct Spec {
    pub model: &'static str,
    pub cluster: &'static str,
    pub stack: &'static str,
    pub global_batch: u32,
    pub seq_len: u32,
    pub sets: Vec<String>,
    pub adaptation: Adaptation,
    pub format: Format,
    pub document_len: Option<u32>,
}

/// Problem with full training in bf16 and nothing set.
pub const fn spec(
    model: &'static str,
    cluster: &'static str,
    stack: &'static str,
    global_batch: u32,
    seq_len: u32,
) -> Spec {
    let sets = Vec::new();
    Spec {
        model,
        cluster,
        stack,
        global_batch,
        seq_len,
        sets,
        adaptation: Adaptation::Full,
        format: Format::Bf16,
        document_len: None,
    }
}

impl Spec {
    /// The problem with one figure of the catalogue set, such as `cluster.gpus=64`.
    pub fn set(&self, item: impl Into<String>) -> Self {
        let mut changed = self.clone();
        changed.sets.push(item.into());
        changed
    }

    pub fn gpus(&self, gpus: u32) -> Self {
        self.set(format!("cluster.gpus={gpus}"))
    }

    pub fn problem(&self) -> Problem {
        let sets = Overrides::parse(&self.sets).unwrap();
        let full = workload(self.global_batch, self.seq_len, self.format);
        Problem::new(
            catalog::model(self.model, &sets).unwrap(),
            catalog::cluster(self.cluster, &sets).unwrap(),
            Workload { adaptation: self.adaptation, document_len: self.document_len, ..full },
            catalog::stack(self.stack, &sets).unwrap(),
            HbmProfile::Normal,
        )
        .unwrap()
    }
}

/// Dense, mixtures of experts, latent attention, recurrent; switched, railed, one large domain, a torus; with a pipeline
/// engine and with FSDP, on a single GPU; dispatch in line and beside compute; adapters; FP8 that scales with delay;
/// packed documents.
pub fn specs() -> Vec<Spec> {
    let mut specs = vec![
        spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192),
        spec("llama3-70b", "h100-512", "nemo-25", 512, 8192),
        spec("gpt3-175b", "dgx-a100-1k", "megatron-2022", 1536, 2048),
        spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 256, 4096),
        spec("deepseek-v3", "h800-2048", "deepseek-v3", 15360, 4096),
        spec("deepseek-v2", "h100-512", "megatron-lm-2024", 2304, 4096),
        spec("qwen3-30b-a3b", "hgx-b200-512", "nemo-26", 1024, 4096),
        spec("gemma3-27b", "mi300x-512", "torchtitan-2024", 512, 8192),
        spec("nemotron-h-56b", "gb200-nvl72-1152", "nemo-25", 1152, 8192),
        spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 1024, 8192),
        spec("llama3-8b", "h200-ethernet-512", "torchtitan-2024", 512, 8192),
        spec("llama2-7b", "a100-pcie-8", "deepspeed-zero3-2022", 64, 4096),
        spec("llama3-405b", "h100-512", "meta-llama3", 512, 8192),
        spec("qwen3-8b", "dgx-h100-64", "fsdp-eager-2023", 64, 4096),
        spec("llama3-8b", "dgx-h100-8", "fsdp-eager-2023", 16, 2048).gpus(1),
    ];
    let mut lora = spec("llama3-70b", "dgx-h100-64", "nemo-25", 128, 4096);
    lora.adaptation = Adaptation::Lora;
    specs.push(lora);
    let mut adapted = spec("llama3-8b", "dgx-h100-64", "fsdp-eager-2023", 128, 2048);
    adapted.adaptation = Adaptation::LoraAttention;
    specs.push(adapted);
    let mut delayed = spec("gpt3-175b", "h100-512", "nemo-24", 512, 2048);
    delayed.format = Format::Fp8;
    specs.push(delayed);
    let mut packed = spec("llama3-8b", "h100-512", "nemo-25", 512, 32768);
    packed.document_len = Some(2048);
    specs.push(packed);
    specs
}

/// A legal plan of a shape, large or not; none where the picks do not go together.
pub fn plan_of(costs: &Costs, space: &Space, shape: &Plan, numbers: &mut SplitMix) -> Option<Plan> {
    fn pick<T: Copy>(list: &[T], numbers: &mut SplitMix) -> Option<T> {
        (!list.is_empty()).then(|| list[numbers.below(list.len())])
    }
    let layout = pick(&space.layouts(shape), numbers)?;
    let schedule = pick(&space.schedules(layout.pp), numbers)?;
    let zero = pick(&space.zero_stages(layout.pp), numbers)?;
    let order = pick(&space::orders(layout.pp, layout.dp), numbers)?;
    let recompute = pick(&space.recomputes(layout.pp, schedule), numbers)?;
    let plan = Plan { layout, schedule, zero, order, recompute, ..shape.clone() };
    let mut found = Vec::new();
    space::illegal(costs, &plan, &mut found);
    found.is_empty().then_some(plan)
}

/// `count` legal plans of a problem, with no regard to memory.
pub fn plans(problem: &Problem, count: usize, seed: u64) -> Vec<Plan> {
    let (costs, restrictions) = (Costs::new(problem), Restrictions::default());
    let space = Space::new(&costs, &restrictions);
    let shapes = space.shapes();
    let mut numbers = SplitMix::new(seed);
    let mut plans = Vec::new();
    let mut tries = 0;
    while plans.len() < count {
        tries += 1;
        assert!(tries <= count * 1000, "{}: hardly any plan is legal", problem.model().name);
        let shape = shapes[numbers.below(shapes.len())].clone();
        plans.extend(plan_of(&costs, &space, &shape, &mut numbers));
    }
    plans
}

/// Split with another number of layers on the first, the last, or both ranks; legal where the model's layers allow it.
pub fn split_with_ends(costs: &Costs, plan: &Plan, numbers: &mut SplitMix) -> LayerSplit {
    let (layers, pp, v) = (costs.problem.model().layers(), plan.layout.pp, plan.schedule.virtual_stages());
    let each = v * (1 + numbers.below((layers / pp / v).max(1) as usize) as u32);
    match numbers.below(3) {
        0 => LayerSplit::ends(Some(layers.saturating_sub(each * (pp - 1))), None),
        1 => LayerSplit::ends(None, Some(layers.saturating_sub(each * (pp - 1)))),
        _ => {
            let rest = layers.saturating_sub(each * pp.saturating_sub(2));
            let first = v * (1 + numbers.below((rest / v).max(1) as usize) as u32);
            LayerSplit::ends(Some(first), Some(rest.saturating_sub(first)))
        }
    }
}

/// Even split with a few layers moved between its chunks; multi-token prediction is on the last chunk that holds any layer, or
/// with the loss.
pub fn listed_split(costs: &Costs, plan: &Plan, numbers: &mut SplitMix) -> LayerSplit {
    let model = costs.problem.model();
    let chunks = plan.pipeline().chunks() as usize;
    let mut layers = meshwright::split::layers::even(model.layers(), chunks as u32);
    for _ in 0..numbers.below(6) {
        let (from, to) = (numbers.below(chunks), numbers.below(chunks));
        if layers[from] > 0 {
            layers[from] -= 1;
            layers[to] += 1;
        }
    }
    if numbers.below(4) == 0 && chunks > 2 {
        layers[chunks - 2] += std::mem::take(&mut layers[chunks - 1]);
    }
    let last = layers.iter().rposition(|count| *count > 0).unwrap_or(chunks - 1);
    LayerSplit::stages(&layers, model.mtp_depth, if numbers.below(2) == 0 { last } else { chunks - 1 })
}

/// A legal plan with the choices that most searches leave alone: shard groups, offload, splits, blocks of layers, dispatchers.
pub fn wide_plan(costs: &Costs, plan: &Plan, numbers: &mut SplitMix) -> Option<Plan> {
    use meshwright::plan::{Modules, Offload, Recompute, ZeroStage};
    use meshwright::stack::Dispatcher;
    let mut plan = plan.clone();
    let shares = [0.0, 0.0, 0.25, 0.5, 1.0];
    let modules = |bits: usize| Modules {
        core_attn: bits & 1 > 0,
        layernorm: bits & 2 > 0,
        act: bits & 4 > 0,
        mla_up_proj: bits & 8 > 0,
        mlp: bits & 16 > 0,
        moe: bits & 32 > 0,
    };
    plan.dispatcher = [Dispatcher::AllToAll, Dispatcher::DeepEp][numbers.below(2)];
    plan.split = match numbers.below(6) {
        0 | 1 => LayerSplit::CostBalanced,
        2 if plan.layout.pp > 1 => split_with_ends(costs, &plan, numbers),
        3 | 4 if plan.layout.pp > 1 => listed_split(costs, &plan, numbers),
        _ => LayerSplit::Even,
    };
    plan.sequence_parallel = plan.layout.tp > 1 && (costs.problem.model().is_moe() || numbers.below(3) > 0);
    plan.recompute = match numbers.below(8) {
        0 => Recompute::PerOp,
        1 => Recompute::EveryOther,
        2 => Recompute::Full,
        3 | 4 => Recompute::FirstLayers(1 + numbers.below(6) as u32),
        5 | 6 => Recompute::Selective(modules(numbers.below(64))),
        _ => plan.recompute,
    };
    plan.zero = [ZeroStage::Zero, ZeroStage::One, ZeroStage::Two, ZeroStage::Three][numbers.below(4)];
    plan.reshard_after_forward = numbers.below(2) == 0;
    if plan.zero >= ZeroStage::One && numbers.below(2) == 0 {
        let groups = space::divisors(plan.layout.dense_replicas());
        plan.shard_group = Some(groups[numbers.below(groups.len())]);
    }
    plan.offload = Offload { optimizer: shares[numbers.below(5)], activations: shares[numbers.below(5)] };
    let mut found = Vec::new();
    space::illegal(costs, &plan, &mut found);
    found.is_empty().then_some(plan)
}

/// Runs `law` on at least `wanted` random plans of all problems, with every schedule, recomputation, sharding, split and offload
/// that is legal; returns the number of plans.
pub fn for_wide_plans(wanted: usize, seed: u64, law: impl Fn(&Costs, &Plan)) -> usize {
    let specs = specs();
    let each = wanted.div_ceil(specs.len());
    let mut checked = 0;
    for (index, spec) in specs.iter().enumerate() {
        let problem = spec.problem();
        let (costs, restrictions) = (Costs::new(&problem), Restrictions::default());
        let space = Space::new(&costs, &restrictions);
        let shapes = space.shapes();
        let mut numbers = SplitMix::new(seed + index as u64);
        let (mut found, mut tries) = (0, 0);
        while found < each {
            tries += 1;
            assert!(tries < each * 2000, "{}: hardly any plan is legal", spec.model);
            let shape = shapes[numbers.below(shapes.len())].clone();
            let Some(plan) = plan_of(&costs, &space, &shape, &mut numbers) else { continue };
            let Some(plan) = wide_plan(&costs, &plan, &mut numbers) else { continue };
            law(&costs, &plan);
            found += 1;
        }
        checked += found;
    }
    checked
}
