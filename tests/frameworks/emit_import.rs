//! Emitted files read back as their plan.

use crate::random::{Spec, SplitMix, listed_split, plans, spec, split_with_ends};
use meshwright::catalog::{self, Overrides};
use meshwright::cost::Costs;
use meshwright::emit::{Request, emit};
use meshwright::frameworks::megatron::hybrid::Hybrid;
use meshwright::frameworks::{
    ACCELERATE, AXOLOTL, DEEPSPEED, Framework, GPT_NEOX, LLAMA_FACTORY, LLM_FOUNDRY, MAXTEXT, MEGATRON,
    MEGATRON_BRIDGE, MS_SWIFT, NANOTRON, OLMO_CORE, PRIMUS, TORCHTITAN,
};
use meshwright::import::{self, Context};
use meshwright::plan::Plan;
use meshwright::problem::Problem;
use meshwright::space::{check, parse_plan};
use meshwright::split::LayerSplit;
use meshwright::split::layers::plainest;
use meshwright::split::nanotron::own_split;
use meshwright::workload::Adaptation;

/// Plans of each problem that are tried.
const TRIED: usize = 60;

/// The nearest plans that a framework can express to plans of the space, the legal ones.
fn expressible(framework: &'static Framework, problem: &Problem, seed: u64) -> Vec<Plan> {
    let costs = Costs::new(problem);
    let legal = |plan: &Plan| check(&costs, plan).iter().all(|rejection| rejection.rule() == "out-of-memory");
    plans(problem, TRIED, seed)
        .iter()
        .filter_map(|plan| framework.limits.nearest(problem, plan))
        .filter(legal)
        .collect()
}

/// The plan that the launch script and the files beside it say.
fn read_back(framework: &'static Framework, problem: &Problem, plan: &Plan) -> Plan {
    let costs = Costs::new(problem);
    let evaluation = costs.evaluate(plan);
    let files = emit(framework, &Request::new(&costs, &evaluation)).unwrap();
    let beside = |name: &str| files.iter().find(|file| file.name == name).map(|file| file.text.clone());
    let context = Context { files: &beside, ..Context::alone(&files[0].name) };
    let imported = import::read(&files[0].text, import::kind_of(&files[0].name, &files[0].text).unwrap(), &context)
        .unwrap_or_else(|error| panic!("{plan}: {error}\n{}", files[0].text));
    assert!(imported.unknown.is_empty(), "{plan}: {:?}", imported.unknown);
    imported.on(problem.cluster().gpus)
}

fn round_trip(framework: &'static Framework, specs: &[Spec]) {
    let mut tried = 0;
    for (index, spec) in specs.iter().enumerate() {
        let problem = spec.problem();
        assert!(framework.limits.problem_obstacles(&problem).is_empty(), "{spec:?}");
        for plan in expressible(framework, &problem, 400 + index as u64) {
            assert_eq!(read_back(framework, &problem, &plan).to_string(), plan.to_string(), "{spec:?}");
            tried += 1;
        }
    }
    assert!(tried >= 10, "{framework}: only {tried} plans could be tried");
}

/// The plan with its layers in the plainest words.
fn plainly(costs: &Costs, plan: &Plan) -> Plan {
    let counts = costs.layers_of_chunks(plan, &costs.shape(plan));
    let mtp_stage = plan.split.mtp_stage(counts.len());
    Plan { split: plainest(&counts, plan.layout.pp, costs.problem.model().mtp_depth, mtp_stage), ..*plan }
}

/// Plans whose stages are spelled out, or weighed: they read back with the same layers on each stage.
fn splits_round_trip(framework: &'static Framework, specs: &[Spec]) {
    let mut tried = 0;
    for (index, spec) in specs.iter().enumerate() {
        let problem = spec.problem();
        let (costs, mut numbers) = (Costs::new(&problem), SplitMix::new(900 + index as u64));
        for plan in expressible(framework, &problem, 500 + index as u64) {
            if plan.layout.pp == 1 {
                continue;
            }
            for split in [
                split_with_ends(&costs, &plan, &mut numbers),
                listed_split(&costs, &plan, &mut numbers),
                listed_split(&costs, &plan, &mut numbers),
                LayerSplit::CostBalanced,
            ] {
                let plan = Plan { split, ..plan };
                let legal = check(&costs, &plan).iter().all(|rejection| rejection.rule() == "out-of-memory");
                if !legal || framework.limits.plan_obstacle(&problem, &plan).is_some() {
                    continue;
                }
                let again = read_back(framework, &problem, &plan);
                assert_eq!(plainly(&costs, &again).to_string(), plainly(&costs, &plan).to_string(), "{plan}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 40, "{framework}: only {tried} plans could be tried");
}

#[test]
fn stages_that_are_spelled_out_read_back() {
    let dense = spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192);
    let predicting = spec("deepseek-v3", "h800-2048", "nemo-25", 15360, 4096);
    let hybrid = spec("nemotron-h-56b", "dgx-h100-64", "nemo-25", 128, 8192);
    for framework in [&MEGATRON, &MEGATRON_BRIDGE] {
        splits_round_trip(framework, &[dense.clone(), predicting.clone(), hybrid.clone()]);
    }
    let titan = |model, batch, seq_len| spec(model, "dgx-h100-64", "torchtitan-2024", batch, seq_len);
    for framework in [&TORCHTITAN, &OLMO_CORE] {
        splits_round_trip(framework, &[titan("llama3-8b", 128, 8192), titan("llama2-13b", 256, 4096)]);
    }
}

/// Files for every release of Megatron core have its flags alone, or are refused with the flag that it lacks.
#[test]
fn files_for_a_release_have_its_flags() {
    let specs = [
        spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192),
        spec("gpt-oss-120b", "dgx-h100-64", "nemo-25", 128, 4096),
        spec("deepseek-v3", "h800-2048", "nemo-25", 15360, 4096),
    ];
    let (mut written, mut refused) = (0, 0);
    for (index, spec) in specs.iter().enumerate() {
        let problem = spec.problem();
        let costs = Costs::new(&problem);
        for (at, plan) in expressible(&MEGATRON, &problem, 700 + index as u64).iter().enumerate() {
            let names = (MEGATRON.releases)();
            let release = names[at % names.len()];
            let evaluation = costs.evaluate(plan);
            let request = Request { release: Some(release), ..Request::new(&costs, &evaluation) };
            let files = match emit(&MEGATRON, &request) {
                Ok(files) => files,
                Err(refusal) => {
                    let why = format!(", not of {release}");
                    assert!(refusal.obstacles.iter().all(|obstacle| obstacle.why.ends_with(&why)), "{refusal}");
                    refused += 1;
                    continue;
                }
            };
            let context = Context { release: Some(release), ..Context::alone(&files[0].name) };
            let imported =
                import::read(&files[0].text, import::kind_of(&files[0].name, &files[0].text).unwrap(), &context)
                    .unwrap();
            let wrong = imported.findings.iter().filter(|finding| matches!(finding.rule, "release" | "wrong-value"));
            assert_eq!(wrong.count(), 0, "{release} {plan}: {:?}", imported.findings);
            assert_eq!(imported.on(problem.cluster().gpus).to_string(), plan.to_string(), "{release}");
            written += 1;
        }
    }
    assert!(written >= 60 && refused >= 10, "{written} written, {refused} refused");
}

#[test]
fn megatron_reads_back() {
    round_trip(
        &MEGATRON,
        &[
            spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192),
            spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 256, 4096),
            spec("deepseek-v2", "h100-512", "megatron-lm-2024", 2304, 4096),
            spec("nemotron-h-56b", "dgx-h100-64", "nemo-25", 128, 8192),
        ],
    );
}

#[test]
fn accelerate_reads_back() {
    round_trip(&ACCELERATE, &[spec("llama3-8b", "dgx-h100-64", "automodel-2025", 128, 8192)]);
}

/// The engine is that of the stack: FSDP2, or DeepSpeed.
#[test]
fn axolotl_and_llama_factory_read_back() {
    for framework in [&AXOLOTL, &LLAMA_FACTORY] {
        for stack in ["automodel-2025", "deepspeed-zero3-2022"] {
            round_trip(framework, &[spec("llama3-8b", "dgx-h100-64", stack, 128, 8192)]);
        }
    }
}

/// FSDP with either format of reduced gradients, positions that are learned, norms on queries and keys, and experts.
#[test]
fn llm_foundry_reads_back() {
    let llama = spec("llama3-8b", "dgx-h100-64", "foundry-2023", 128, 8192);
    let narrow = llama.set("stack.reduce_bytes=2");
    let gpt = spec("gpt3-175b", "dgx-a100-1k", "foundry-2023", 1024, 2048);
    let qwen = spec("qwen3-8b", "dgx-h100-64", "foundry-2023", 128, 8192);
    let mixtral = spec("mixtral-8x7b", "dgx-h100-64", "foundry-2023", 128, 4096);
    round_trip(&LLM_FOUNDRY, &[llama, narrow, gpt, qwen, mixtral]);
}

/// Eager and compiled, dense and with experts, with windows and with norms on queries and keys.
#[test]
fn olmo_core_reads_back() {
    let llama = spec("llama3-8b", "dgx-h100-64", "torchtitan-2024", 128, 8192);
    let eager = spec("llama3-8b", "dgx-h100-64", "torchtitan-eager", 128, 8192);
    let mistral = spec("mistral-7b", "dgx-h100-64", "torchtitan-2024", 128, 8192);
    let mixtral = spec("mixtral-8x7b", "dgx-h100-64", "torchtitan-2024", 256, 4096);
    let qwen = spec("qwen3-30b-a3b", "dgx-h100-64", "torchtitan-2024", 256, 4096);
    round_trip(&OLMO_CORE, &[llama.set("stack.reduce_bytes=2"), llama, eager, mistral, mixtral, qwen]);
}

#[test]
fn deepspeed_reads_back() {
    round_trip(&DEEPSPEED, &[spec("llama3-8b", "dgx-h100-64", "deepspeed-zero3-2022", 128, 8192)]);
}

#[test]
fn ms_swift_reads_back() {
    let dense = spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192);
    let sparse = spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 256, 4096);
    round_trip(&MS_SWIFT, &[dense.set("stack.attention=fa3"), dense, sparse]);
}

/// Dense models, experts, latent attention, and windows with sinks.
#[test]
fn primus_reads_back() {
    let dense = spec("llama3-8b", "mi300x-512", "megatron-rocm-2025", 512, 8192);
    let qwen = spec("qwen3-30b-a3b", "mi355x-512", "megatron-rocm-2025", 1024, 4096);
    let latent = spec("deepseek-v3", "mi355x-512", "megatron-rocm-2025", 2048, 4096);
    let sinks = spec("gpt-oss-20b", "mi300x-512", "megatron-rocm-2025", 512, 8192);
    round_trip(&PRIMUS, &[dense, qwen, latent, sinks]);
}

/// Its `Trainer` over DeepSpeed and over FSDP2, which also has adapters.
#[test]
fn ms_swifts_trainer_reads_back() {
    let deepspeed = spec("llama3-8b", "dgx-h100-64", "deepspeed-zero3-2022", 128, 8192);
    let fsdp = spec("llama3-8b", "dgx-h100-64", "fsdp-eager-2023", 128, 8192);
    let hybrid = spec("nemotron-h-56b", "dgx-h100-64", "fsdp-eager-2023", 128, 4096);
    round_trip(&MS_SWIFT, &[deepspeed, fsdp, hybrid]);
}

/// In bf16 with 16-bit gradients and with wide ones, in fp16, and with layers that stages do not divide.
#[test]
fn gpt_neox_reads_back() {
    let llama = spec("llama3-8b", "dgx-h100-64", "megatron-deepspeed-2023", 128, 8192);
    let flash = llama.set("stack.attention=fa2");
    let gpt = spec("gpt3-175b", "dgx-a100-1k", "megatron-deepspeed-2023", 1536, 2048);
    round_trip(&GPT_NEOX, &[llama, flash, gpt]);
}

/// As DeepSpeed's `partition_balanced` answered for two other specifications before the layers and three behind.
#[test]
fn gpt_neox_cuts_its_own_stages() {
    let text = |layers: u32, pp| {
        let changed = spec("llama3-8b", "dgx-h100-64", "megatron-deepspeed-2023", 128, 8192);
        let problem = changed.set(format!("model.layers=d*{layers}")).problem();
        GPT_NEOX.limits.own_split.unwrap()(problem.model(), pp).map(|split| split.to_string())
    };
    assert_eq!(text(32, 4).as_deref(), Some("even"));
    assert_eq!(text(11, 3).as_deref(), Some("even"), "4, 4 and 3, as an even split has it");
    assert_eq!(text(10, 3).as_deref(), Some("first-4"));
    assert_eq!(text(44, 8).as_deref(), Some("Et*6|(t*6|)*3(t*5|)*3t*5L"));
    assert_eq!(text(3, 4), None, "more stages than layers");
}

#[test]
fn nanotron_reads_back() {
    round_trip(&NANOTRON, &[spec("llama3-8b", "dgx-h100-64", "nanotron-2025", 128, 8192)]);
}

#[test]
fn maxtext_reads_back() {
    round_trip(
        &MAXTEXT,
        &[
            spec("llama3-8b", "tpu-v5p-1024", "jax-2025", 1024, 8192),
            spec("qwen3-30b-a3b", "tpu-v5p-1024", "jax-2025", 2048, 4096),
            spec("mixtral-8x7b", "dgx-h100-64", "jax-2025", 256, 4096),
        ],
    );
}

#[test]
fn adapters_of_megatron_bridge_read_back() {
    let adapted = |model| Spec { adaptation: Adaptation::Lora, ..spec(model, "dgx-h100-64", "nemo-25", 128, 8192) };
    let lora = adapted("llama3-8b");
    round_trip(&MEGATRON_BRIDGE, &[lora.clone(), adapted("nemotron-h-56b")]);
    let problem = lora.problem();
    assert!(!MEGATRON.limits.problem_obstacles(&problem).is_empty(), "`pretrain_gpt.py` trains all weights");
    let costs = Costs::new(&problem);
    let plan = &expressible(&MEGATRON_BRIDGE, &problem, 7)[0];
    let files = emit(&MEGATRON_BRIDGE, &Request::new(&costs, &costs.evaluate(plan))).unwrap();
    let container = files.iter().find(|file| file.name == "megatron_bridge.py").unwrap();
    let kind = import::kind_of(&container.name, &container.text).unwrap();
    let imported = import::read(&container.text, kind, &Context::alone(&container.name)).unwrap();
    assert_eq!((imported.work.adaptation, imported.adapters.unwrap().rank), (Adaptation::Lora, Some(32)));
    let script = files.iter().find(|file| file.name == "megatron_bridge.sh").unwrap();
    assert!(script.text.contains("BASE:?") && container.text.contains("finetune(config(), forward_step)"));
}

#[test]
fn megatron_bridge_reads_back() {
    round_trip(
        &MEGATRON_BRIDGE,
        &[
            spec("llama3-8b", "dgx-h100-64", "nemo-25", 128, 8192),
            spec("mixtral-8x7b", "dgx-h100-64", "nemo-25", 256, 4096),
            spec("deepseek-v2", "h100-512", "megatron-lm-2024", 2304, 4096),
            spec("nemotron-h-56b", "dgx-h100-64", "nemo-25", 128, 8192),
            spec("tests/hf/nemotron-3-super-class.json", "dgx-h100-64", "nemo-26", 256, 4096),
        ],
    );
}

#[test]
fn torchtitan_reads_back() {
    round_trip(
        &TORCHTITAN,
        &[
            spec("llama3-8b", "dgx-h100-64", "torchtitan-2024", 128, 8192),
            spec("mixtral-8x7b", "dgx-h100-64", "torchtitan-2024", 256, 4096),
        ],
    );
}

#[test]
fn a_hybrid_has_a_letter_a_layer() {
    let model = catalog::model("nemotron-h-56b", &Overrides::default()).unwrap();
    let hybrid = Hybrid::of(&model).unwrap();
    let written: String = hybrid.letters.iter().collect();
    assert!(written.starts_with("M-M-M-M*-M-M-M-M-M*-") && written.ends_with("M-M-M-M-M-"), "{written}");
    assert_eq!(written.len(), 118);
    assert!(hybrid.positionless());
    assert!(hybrid.pattern(&[3, 0, 115]).starts_with("M-M||-M-M*"));
    assert!(Hybrid::of(&catalog::model("llama3-8b", &Overrides::default()).unwrap()).is_err());
}

/// As nanotron's `build_model` counts its blocks: nothing else can be asked of it, and a plan without a split gets that.
#[test]
fn nanotron_cuts_its_own_stages() {
    let text = |model: &str, pp| {
        let model = catalog::model(model, &Overrides::default()).unwrap();
        own_split(&model, pp).map(|split| split.to_string())
    };
    assert_eq!(text("llama3-8b", 2).as_deref(), Some("first-18"));
    assert_eq!(text("llama3-8b", 4).as_deref(), Some("Et*9|t*9|t*8|t*6L"));
    assert_eq!(text("llama3-8b", 8).as_deref(), Some("Et*5|(t*4|)*2t*5|(t*4|)*3t*2L"));
    assert_eq!(text("llama3-70b", 8).as_deref(), Some("first-11+last-9"));
    assert_eq!(text("llama3-8b", 64), None, "more stages than blocks");
    let problem = spec("llama3-8b", "dgx-h100-64", "nanotron-2025", 128, 8192).problem();
    let own = parse_plan("tp=4 pp=2", &problem).unwrap();
    assert_eq!(own.split.to_string(), "first-18");
    let even = Plan { split: LayerSplit::Even, ..own };
    let obstacle = NANOTRON.limits.plan_obstacle(&problem, &even).unwrap();
    assert!(obstacle.to_string().contains("split=even"), "{obstacle}");
    assert_eq!(NANOTRON.limits.nearest(&problem, &even), Some(own));
}

/// Where its costs give every stage as many layers as an even split does, that is what the plan says, and reads back.
#[test]
fn nanotron_may_cut_evenly() {
    let spec =
        spec("llama3-8b", "dgx-h100-64", "nanotron-2025", 128, 8192).set("model.layers=d*33").set("model.vocab=1024");
    let problem = spec.problem();
    assert_eq!(own_split(problem.model(), 2), Some(LayerSplit::Even), "17 and 16");
    let plan = parse_plan("tp=4 pp=2 split=even", &problem).unwrap();
    assert_eq!(NANOTRON.limits.plan_obstacle(&problem, &plan), None);
    assert_eq!(read_back(&NANOTRON, &problem, &plan).to_string(), plan.to_string());
    // One layer less, and the first stage has two more than the last: it is left once it is over its half.
    let problem = Spec { sets: vec!["model.vocab=1024".into()], ..spec }.problem();
    assert_eq!(own_split(problem.model(), 2).unwrap().to_string(), "first-17");
}
