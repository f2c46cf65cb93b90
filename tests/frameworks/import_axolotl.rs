//! axolotl's files.

use meshwright::import::{self, Context, Imported, Severity};
use meshwright::plan::{CpKind, Recompute, ZeroStage};
use meshwright::stack::Family;
use meshwright::workload::Adaptation;

/// Reads a YAML with these files beside it.
fn read(text: &str, beside: &[(&str, &str)]) -> Imported {
    let kind = import::kind_of("x.yaml", text).unwrap_or_else(|error| panic!("{error}"));
    let files = |name: &str| beside.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    import::read(text, kind, &Context { files: &files, ..Context::alone("x.yaml") }).unwrap_or_else(|e| panic!("{e}"))
}

fn errors(imported: &Imported) -> Vec<&str> {
    let of_level = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    of_level.map(|finding| finding.message.as_str()).collect()
}

const HEAD: &str = "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: a\n    type: alpaca\nbf16: auto\n";

#[test]
fn a_mesh_of_four_sizes() {
    let text = format!(
        "{HEAD}dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 2\nfsdp_version: 2\n\
         fsdp_config:\n  reshard_after_forward: false\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: 1\n\
         gradient_accumulation_steps: 3\ngradient_checkpointing: true\n"
    );
    let imported = read(&text, &[]);
    assert_eq!((imported.kind, imported.family, imported.world), ("axolotl", Family::Fsdp, Some(32)));
    let plan = &imported.plan;
    assert_eq!((plan.layout.tp, plan.layout.cp, plan.layout.dp, plan.shard_group), (2, 2, 8, Some(8)));
    assert_eq!((plan.zero, plan.reshard_after_forward, plan.cp_kind), (ZeroStage::Three, false, CpKind::AllGather));
    assert_eq!((plan.recompute, imported.work.global_batch), (Recompute::Full, Some(24)));
    assert_eq!((imported.work.seq_len, imported.model.unwrap().name.as_str()), (Some(4096), "Llama 3 8B"));
}

#[test]
fn deepspeed_is_filled_or_contradicted() {
    let text = format!("{HEAD}deepspeed: ds.json\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n");
    let auto = "{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": \"auto\"}, \
                \"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": \"auto\"}";
    let imported = read(&text, &[("ds.json", auto)]);
    assert!(errors(&imported).is_empty(), "{:?}", imported.findings);
    assert_eq!((imported.family, imported.plan.zero), (Family::Deepspeed, ZeroStage::Two));
    assert_eq!((imported.plan.micro_batch, imported.batch_on(16), imported.work.seq_len), (2, 128, Some(512)));
    let other = "{\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": 8}";
    let refused = read(&text, &[("ds.json", other)]);
    assert!(errors(&refused).iter().any(|message| message.contains("is 8 in DeepSpeed's JSON and 2")), "{refused:?}");
}

#[test]
fn files_that_it_ships_are_known_by_name_and_others_are_wanted() {
    let text = format!("{HEAD}deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json\nmicro_batch_size: 1\n");
    let imported = read(&text, &[]);
    assert_eq!((imported.plan.zero, imported.plan.offload.optimizer), (ZeroStage::Three, 1.0));
    let second = read(&text.replace("zero3_bf16_cpuoffload_all", "zero2"), &[]);
    assert_eq!(second.settings.items(), ["stack.overlap.dp=true"], "its files overlap, at each stage");
    let own = text.replace("zero3_bf16_cpuoffload_all", "mine");
    let error = import::read(&own, import::kind_of("x.yaml", &own).unwrap(), &Context::alone("x.yaml")).unwrap_err();
    assert!(error.to_string().contains("`deepspeed_configs/mine.json`, DeepSpeed's JSON, was not found"), "{error}");
    assert_eq!(error.line, 6);
}

#[test]
fn what_is_older_or_mistaken_is_told() {
    let fsdp1 = format!("{HEAD}fsdp:\n  - shard_grad_op\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: true\n");
    let imported = read(&fsdp1, &[]);
    assert_eq!((imported.plan.zero, imported.plan.reshard_after_forward), (ZeroStage::Three, false));
    assert!(imported.plan.offload.optimizer > 0.99);
    let slip = read(&format!("{HEAD}fsdp_version: 2\nfsdp_config:\n  offload_params: false\ndp_shart_size: 8\n"), &[]);
    assert_eq!(slip.unknown[0].nearest.as_deref(), Some("dp_shard_size"));
    let beside = read(&format!("{HEAD}deepspeed: zero2.json\ndp_shard_size: 8\n"), &[]);
    assert!(errors(&beside)[0].contains("`dp_shard_size` stands beside DeepSpeed"), "{:?}", beside.findings);
    let plain = read(&format!("{HEAD}adapter: qlora\nload_in_4bit: true\nrl: dpo\n"), &[]);
    let rules: Vec<&str> = plain.findings.iter().map(|finding| finding.rule).collect();
    assert!(
        rules.contains(&"adapters") && rules.iter().filter(|rule| **rule == "not-modelled").count() >= 2,
        "{rules:?}"
    );
    assert_eq!((plain.plan.zero, plain.work.seq_len), (ZeroStage::Zero, Some(512)));
}

#[test]
fn adapters_are_priced_as_adapters() {
    let lora =
        format!("{HEAD}adapter: lora\nlora_r: 16\nlora_target_modules:\n  - q_proj\n  - v_proj\npeft_use_dora: true\n");
    let imported = read(&lora, &[]);
    assert_eq!(imported.work.adaptation, Adaptation::LoraAttention);
    let adapters = imported.adapters.as_ref().unwrap();
    assert_eq!((adapters.rank, adapters.targets.join(" ")), (Some(16), "q_proj v_proj".to_owned()));
    assert!(imported.findings.iter().any(|finding| finding.rule == "not-modelled" && finding.message.contains("DoRA")));
    assert_eq!(read(HEAD, &[]).work.adaptation, Adaptation::Full);
    let other = read(&format!("{HEAD}adapter: llama-adapter\n"), &[]);
    assert_eq!((other.work.adaptation, &other.adapters), (Adaptation::Full, &None));
    assert!(other.findings.iter().any(|finding| finding.rule == "adapters" && finding.level == Severity::Warning));
}

/// Its commands, with what they say over the file, and their launchers' counts.
#[test]
fn launches_say_more() {
    let yaml = format!("{HEAD}deepspeed: zero2.json\nmicro_batch_size: 2\nsequence_len: 2048\n");
    let files = |name: &str| (name == "x.yaml").then(|| yaml.clone());
    let run = |command: &str| {
        let context = Context { files: &files, ..Context::alone("run.sh") };
        import::read(command, import::kind_of("run.sh", command).unwrap(), &context).unwrap()
    };
    for (command, world, micro) in [
        ("axolotl train x.yaml --launcher torchrun -- --nproc_per_node=8 --nnodes=2\n", Some(16), 2),
        ("axolotl train x.yaml --micro-batch-size=4\n", None, 4),
        ("accelerate launch --num_processes 4 -m axolotl.cli.train x.yaml --micro_batch_size 3\n", Some(4), 3),
        ("torchrun --nproc-per-node 8 --nnodes 4 -m axolotl.cli.train x.yaml\n", Some(32), 2),
    ] {
        let imported = run(command);
        assert_eq!((imported.world, imported.plan.micro_batch), (world, micro), "{command}");
        assert_eq!((imported.kind, imported.plan.zero), ("axolotl", ZeroStage::Two), "{command}");
    }
}
