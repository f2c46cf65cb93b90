//! Attention over the keys that an indexer chooses: what it costs, keeps and counts, and where it does not run.

use crate::random::{SplitMix, plans, spec, workload};
use meshwright::catalog::{self, Overrides};
use meshwright::cost::Costs;
use meshwright::gpu::Format;
use meshwright::model::flops::AttentionConvention::Causal;
use meshwright::model::{Ffn, Indexer, Mixer, Mla, Model, ModelFile};
use meshwright::plan::text::parse_plan;
use meshwright::plan::{Plan, Recompute};
use meshwright::problem::{HbmProfile, Problem, ProblemError};
use meshwright::refine::{Options, refine};
use meshwright::search::{SearchOptions, search};
use meshwright::space::{Restrictions, Space, check};

const STACK: &str = "nemo-26";

fn built_in(name: &str) -> Model {
    catalog::model(name, &Overrides::default()).unwrap()
}

/// A model with every latent attention changed.
fn changed(mut model: Model, change: impl Fn(&mut Mla)) -> Model {
    for layer in &mut model.kinds {
        if let Mixer::Mla(mla) = &mut layer.mixer {
            change(mla);
        }
    }
    model
}

fn with_indexer(model: Model, change: impl Fn(&mut Indexer)) -> Model {
    changed(model, |mla| mla.indexer.iter_mut().for_each(&change))
}

fn try_problem(model: Model, cluster: &str, stack: &str, seq_len: u32) -> Result<Problem, ProblemError> {
    let sets = Overrides::default();
    let (cluster, stack) = (catalog::cluster(cluster, &sets).unwrap(), catalog::stack(stack, &sets).unwrap());
    Problem::new(model, cluster, workload(64, seq_len, Format::Bf16), stack, HbmProfile::Normal)
}

fn problem(model: Model, seq_len: u32) -> Problem {
    try_problem(model, "dgx-h100-64", STACK, seq_len).unwrap()
}

/// Time and kept bytes of the last kind of layer.
fn layer(problem: &Problem, plan: &str) -> (f64, f64) {
    let plan = parse_plan(plan, problem).unwrap();
    let (costs, kind) = (Costs::new(problem), problem.model().last_kind());
    let cost = costs.layer(kind, &plan);
    let time = cost.forward + cost.dgrad + cost.wgrad + cost.tp.sum();
    (time.get(), costs.kept_activations(kind, &plan).get())
}

/// More keys, heads or width never take less time or memory, and a layer that takes the keys of another never more.
#[test]
fn larger_indexers_cost_more() {
    for (name, seq_len) in [("deepseek-v3.2", 4096), ("glm-5", 8192), ("glm-5", 1024)] {
        for plan in ["tp=1 pp=4 ep=8 mbs=1", "tp=2 pp=4 ep=8 mbs=1", "tp=2 pp=4 ep=8 mbs=1 recompute=core_attn"] {
            let of = |change: fn(&mut Indexer)| layer(&problem(with_indexer(built_in(name), change), seq_len), plan);
            let base = of(|_| {});
            let larger: [fn(&mut Indexer); 3] =
                [|index| index.top_k *= 2, |index| index.heads *= 2, |index| index.head_dim *= 2];
            for change in larger {
                let more = of(change);
                assert!(more.0 >= base.0 && more.1 >= base.1, "{name} {plan}: {base:?} {more:?}");
            }
            let mut shared = built_in(name);
            let first = shared.kinds[0].clone();
            shared = with_indexer(shared, |index| index.shared = true);
            shared.kinds[0] = first;
            let less = layer(&problem(shared, seq_len), plan);
            assert!(less.0 < base.0 && less.1 <= base.1, "{name} {plan}: {base:?} {less:?}");
        }
    }
}

/// Model FLOPs, term by term over the positions of a sequence: products with weights thrice, those of the indexer twice, scores of
/// attention over the chosen keys, of the indexer over all keys forward and over the chosen ones backward.
#[test]
fn flops_are_those_of_every_position() {
    for (name, seq_len) in [("deepseek-v3.2", 1024_u32), ("deepseek-v3.2", 8192), ("glm-5", 16384)] {
        let model = Model { mtp_depth: 0, ..built_in(name) };
        let (mut chosen, mut before) = (0.0, 0.0);
        let Mixer::Mla(mla) = &model.kinds[0].mixer else { panic!("latent attention") };
        let indexer = mla.indexer.as_ref().unwrap();
        for at in 0..seq_len {
            before += f64::from(at);
            chosen += f64::from(at.min(indexer.top_k));
        }
        let (before, chosen) = (before / f64::from(seq_len), chosen / f64::from(seq_len));
        let dense = changed(model.clone(), |mla| mla.indexer = None);
        let s = f64::from(seq_len);
        let scores = |keys: f64| 6.0 * f64::from(mla.heads) * f64::from(mla.qk_dim() + mla.v_dim) * keys;
        let index = 4.0 * indexer.weights(mla.q_rank, model.hidden) as f64
            + 2.0 * f64::from(indexer.heads * indexer.head_dim) * (before + 2.0 * chosen);
        let per_layer = scores(chosen) - scores(s / 2.0) + index;
        let expected = dense.flops_per_token(seq_len, Causal).get() + f64::from(model.layers()) * per_layer;
        let ours = model.flops_per_token(seq_len, Causal).get();
        assert!((ours / expected - 1.0).abs() < 1e-4, "{name} at {seq_len}: {ours} {expected}");
    }
}

/// Long sequences: sparse attention takes less than dense attention would, short ones more, since its maps are absorbed.
#[test]
fn it_pays_on_long_sequences_alone() {
    let of = |sparse: bool, seq_len| {
        let model = built_in("deepseek-v3.2");
        let model = if sparse { model } else { changed(model, |mla| mla.indexer = None) };
        let problem = problem(model, seq_len);
        let plan = parse_plan("tp=1 pp=4 ep=8 mbs=1", &problem).unwrap();
        let cost = Costs::new(&problem).layer(problem.model().last_kind(), &plan);
        (cost.attention + cost.attention_backward).get()
    };
    assert!(of(true, 16384) < of(false, 16384), "{} {}", of(true, 16384), of(false, 16384));
    assert!(of(true, 2048) > of(false, 2048), "{} {}", of(true, 2048), of(false, 2048));
}

/// The search finds what pricing every plan of the space finds, and rejects what the rules reject.
#[test]
fn the_search_is_that_of_a_plain_loop() {
    let mut model = Model { order: vec![0, 1, 1, 1], mtp_depth: 0, ..built_in("glm-5") };
    if let Ffn::Moe(moe) = &mut model.kinds[1].ffn {
        moe.experts = 16;
    }
    for (sharing, seq_len) in [(false, 2048), (false, 8192), (true, 2048)] {
        let mut model = model.clone();
        if sharing {
            let shared = with_indexer(Model { kinds: vec![model.kinds[1].clone()], ..model.clone() }, |index| {
                index.shared = true;
            });
            model.kinds.push(shared.kinds[0].clone());
            model.order = vec![0, 2, 1, 2];
        }
        let sets = Overrides::parse(["cluster.gpus=8"]).unwrap();
        let cluster = catalog::cluster("dgx-h100-64", &sets).unwrap();
        let stack = catalog::stack(STACK, &sets).unwrap();
        let problem =
            Problem::new(model, cluster, workload(8, seq_len, Format::Bf16), stack, HbmProfile::Tight).unwrap();
        let mut restrictions = Restrictions::default();
        for item in ["recompute=none,full,core_attn", "zero=1", "offload-optimizer=0", "offload-activations=0", "etp=1"]
        {
            restrictions.fix(item).unwrap_or_else(|why| panic!("{item}: {why}"));
        }
        let costs = Costs::new(&problem);
        let space = Space::new(&costs, &restrictions);
        let (mut least, mut illegal) = (f64::INFINITY, 0);
        for shape in space.shapes() {
            assert_eq!(shape.layout.cp, 1, "no rank shares a sequence");
            for layout in space.layouts(&shape) {
                for (schedule, split) in space.pipelines(layout.pp) {
                    for &recompute in &*space.recomputes(layout.pp, schedule) {
                        let plan = Plan { layout, schedule, split: split.clone(), recompute, ..shape.clone() };
                        for sharding in space.shardings(&layout) {
                            let plan = sharding.on(&plan);
                            if check(&costs, &plan).is_empty() {
                                least = least.min(costs.evaluate_simulated(&plan).step.total().get());
                            } else {
                                illegal += 1;
                            }
                        }
                    }
                }
            }
        }
        let options = SearchOptions { top: 1, restrictions: restrictions.clone() };
        let found = search(&problem, &options, &|_, _| ());
        let first = found.evaluations.first().expect("some plan runs");
        let ours = first.step.total().get();
        assert!((ours / least - 1.0).abs() < 1e-12, "{least}, found {ours} of {}", first.plan);
        if sharing {
            let plan = parse_plan("tp=1 pp=2 ep=4 split=first-2", &problem).unwrap();
            let why = refine(&costs, &plan, &Options::default()).unwrap_err().to_string();
            assert!(why.contains("share the keys"), "{why}");
            assert!(illegal > 0, "some split parts layers that share keys");
        }
    }
}

/// Plans of any kind: memory and time are finite, and the fullest rank holds the index scores.
#[test]
fn every_plan_has_a_price() {
    let problem = spec("deepseek-v3.2", "gb200-nvl72-1152", STACK, 2048, 4096).problem();
    let costs = Costs::new(&problem);
    for plan in plans(&problem, 40, 7) {
        let evaluation = costs.evaluate(&plan);
        assert!(evaluation.step.total().get().is_finite() && evaluation.step.total().get() > 0.0, "{plan}");
        let scores = 12.0 * f64::from(plan.micro_batch) * 4096.0 * 4096.0;
        assert!(evaluation.footprint.transient.get() >= scores, "{plan}");
    }
    let mut numbers = SplitMix::new(3);
    let plan = plans(&problem, 1, 7).pop().unwrap();
    for _ in 0..20 {
        let micro_batch = 1 + numbers.below(40) as u32;
        let fits = 4.0 * f64::from(micro_batch) * 4096.0 * 4096.0 <= 1_073_741_824.0;
        let refused = check(&costs, &Plan { micro_batch, ..plan.clone() });
        assert_eq!(refused.iter().any(|why| why.rule() == "index-scores"), !fits, "{micro_batch}");
    }
}

/// Recomputation of attention frees its results, and costs its forward pass.
#[test]
fn attention_is_recomputed_for_its_results() {
    let problem = problem(built_in("glm-5"), 4096);
    let costs = Costs::new(&problem);
    let of = |recompute: &str| {
        let plan = parse_plan(&format!("tp=1 pp=4 ep=8 mbs=1 recompute={recompute}"), &problem).unwrap();
        let kind = problem.model().last_kind();
        (costs.layer(kind, &plan).recompute.get(), costs.kept_activations(kind, &plan).get(), plan.recompute)
    };
    let (none, attention, full) = (of("none"), of("core_attn"), of("full"));
    assert!(none.0 < attention.0 && attention.0 < full.0, "{none:?} {attention:?} {full:?}");
    assert!(none.1 > attention.1 && attention.1 > full.1, "{none:?} {attention:?} {full:?}");
    assert!(matches!(attention.2, Recompute::Selective(modules) if modules.core_attn));
}

#[test]
fn stacks_and_devices_without_the_kernels_are_refused_by_name() {
    let refused = |model: Model, cluster: &str, stack: &str, seq_len| {
        try_problem(model, cluster, stack, seq_len).unwrap_err().to_string()
    };
    let v32 = || built_in("deepseek-v3.2");
    for stack in catalog::stack_names().into_iter().filter(|name| *name != STACK) {
        let why = refused(v32(), "dgx-h100-64", stack, 4096);
        assert!(why.contains("has no fused kernels") && why.contains("--stack nemo-26"), "{stack}: {why}");
    }
    for (cluster, gpu) in [("dgx-a100-1k", "A100"), ("mi300x-512", "MI300X"), ("l40s-8", "L40S")] {
        let why = refused(v32(), cluster, STACK, 4096);
        assert!(why.contains("Hopper and Blackwell") && why.contains(gpu), "{why}");
    }
    assert!(refused(v32(), "dgx-h100-64", STACK, 32768).contains("--seq-len 16384"));
    let narrow = changed(v32(), |mla| mla.kv_rank = 256);
    assert!(refused(narrow, "dgx-h100-64", STACK, 4096).contains("kv_rank"), "another rank");
    for (set, says) in [("stack.megatron_core=0.17", "0.19"), ("stack.cuda_graphs=true", "CUDA graphs")] {
        let sets = Overrides::parse([set]).unwrap();
        let (cluster, stack) = (catalog::cluster("dgx-h100-64", &sets).unwrap(), catalog::stack(STACK, &sets).unwrap());
        let why =
            Problem::new(v32(), cluster, workload(64, 4096, Format::Bf16), stack, HbmProfile::Normal).unwrap_err();
        assert!(why.to_string().contains(says), "{set}: {why}");
    }
}

/// Model files whose indexers contradict each other or the layer.
#[test]
fn wrong_indexers_are_refused_with_their_numbers() {
    let read = |change: &dyn Fn(&str) -> String| {
        let path = format!("{}/models/glm-5.toml", env!("CARGO_MANIFEST_DIR"));
        let text = change(&std::fs::read_to_string(path).unwrap());
        toml::from_str::<ModelFile>(&text).map_err(|why| why.to_string())?.into_model().map_err(|why| why.to_string())
    };
    assert!(read(&str::to_owned).is_ok());
    let replaced = |from: &'static str, to: &'static str| move |text: &str| text.replacen(from, to, 1);
    for (from, to, says) in [
        ("top_k = 2048", "top_k = 0", "top_k"),
        ("heads = 32", "heads = 16", "several sizes"),
        ("head_dim = 128", "head_dim = 0", "head_dim"),
        ("top_k = 2048", "top_k = 2048, shared = true", "no layer before it"),
        ("top_k = 2048", "top_k = 2048, kernel = 1", "kernel"),
        (", indexer = { heads = 32, head_dim = 128, top_k = 2048 }", "", "beside layers"),
    ] {
        let why = read(&replaced(from, to)).unwrap_err();
        assert!(why.contains(says), "{to}: {why}");
    }
    let narrow = |text: &str| text.replace("head_dim = 128", "head_dim = 32");
    assert!(read(&narrow).unwrap_err().contains("narrower"), "the rotary part is 64 wide");
}
