//! OLMo-core's programs: the configuration, degrees, experts, recomputation and formats of one.

use super::import_torchtitan::BY_ROWS;
use meshwright::frameworks::OLMO_CORE;
use meshwright::gpu::Format;
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::model::{Mixer, Model, Norm, Span};
use meshwright::plan::{CpKind, Modules, Recompute, ZeroStage};
use meshwright::schedule::Schedule;

/// A program as those of its releases are, with an option whose default another constant has.
pub(super) const PROGRAM: &str = "
from olmo_core.config import DType
from olmo_core.data import NumpyDataLoaderConfig, NumpyFSLDatasetConfig, TokenizerConfig
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.script_utils import ExperimentConfig, main
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModuleConfig

LENGTH = 8192
BATCH = 512 * LENGTH


def build_config(opts, overrides) -> ExperimentConfig:
    length = opts.sequence_length or LENGTH
    tokenizer = TokenizerConfig.dolma2()
    model = TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())
    dataset = NumpyFSLDatasetConfig.from_data_mix(
        MIX, tokenizer=tokenizer, sequence_length=length, max_target_sequence_length=max(8192, length), work_dir=opts.work_dir
    )
    train_module = TransformerTrainModuleConfig(
        rank_microbatch_size=2 * length,
        max_sequence_length=length,
        optim=AdamWConfig(lr=3e-4),
        compile_model=True,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.hsdp, param_dtype=DType.bfloat16, reduce_dtype=DType.float32
        ),
        float8_config=Float8Config(enabled=False),
    )
    trainer = TrainerConfig(save_folder=opts.save_folder).with_callback('saver', Saver(name=f'{opts.name}'))
    return ExperimentConfig(
        model=model,
        dataset=dataset,
        data_loader=NumpyDataLoaderConfig(global_batch_size=BATCH, seed=1),
        train_module=train_module,
        trainer=trainer,
    ).merge(overrides)


if __name__ == '__main__':
    main(build_config)
";

pub(super) fn try_read(text: &str) -> Result<Imported, String> {
    let kind = import::kind_of("run.py", text).map_err(|error| error.to_string())?;
    assert_eq!(kind, FileKind::Of(&OLMO_CORE));
    import::read(text, kind, &Context::alone("run.py")).map_err(|error| error.to_string())
}

pub(super) fn read(text: &str) -> Imported {
    try_read(text).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn changed(from: &str, to: &str) -> String {
    assert!(PROGRAM.contains(from), "{from}");
    PROGRAM.replace(from, to)
}

/// The program with one more argument of its train module.
fn with(argument: &str) -> Imported {
    read(&changed("compile_model=True,", &format!("compile_model=True,\n        {argument},")))
}

pub(super) fn errors(imported: &Imported) -> Vec<&str> {
    let errors = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    errors.map(|finding| finding.message.as_str()).collect()
}

pub(super) fn model(imported: &Imported) -> &Model {
    imported.model.as_ref().unwrap_or_else(|| panic!("{:?}", imported.findings))
}

#[test]
fn a_program_is_followed_to_its_configuration() {
    let imported = read(PROGRAM);
    assert_eq!(errors(&imported), [""; 0]);
    assert_eq!((imported.kind, imported.stack), ("olmo-core", "torchtitan-2024"));
    assert_eq!((imported.work.global_batch, imported.work.seq_len), (Some(512), Some(8192)));
    let plan = &imported.plan;
    assert_eq!((plan.micro_batch, plan.zero, plan.shard_group), (2, ZeroStage::Three, Some(8)));
    let model = model(&imported);
    assert_eq!((model.vocab, model.hidden, model.layers(), model.norm), (100_352, 4096, 32, Norm::Rms));
    assert!(model.details.norms_after);
    let spans: Vec<Span> = model
        .order
        .iter()
        .map(
            |&kind| {
                if let Mixer::Attention(attention) = &model.kinds[kind].mixer { attention.span } else { Span::Full }
            },
        )
        .collect();
    assert_eq!(
        (spans[2], spans[3], spans[30], spans[31]),
        (Span::Window(4096), Span::Full, Span::Window(4096), Span::Full)
    );
    // What the user's folders and names are is no more than a note.
    assert!(imported.findings.iter().all(|finding| finding.level == Severity::Note), "{:?}", imported.findings);
}

#[test]
fn degrees_are_those_of_the_train_module() {
    let of = with;
    let split = of("tp_config=TransformerTensorParallelConfig(degree=4, enable_async=True)");
    assert_eq!((split.plan.layout.tp, split.plan.sequence_parallel), (4, true));
    assert_eq!(split.settings.items(), ["stack.overlap.tp=0.5"]);
    assert_eq!(split.plan.shard_group, Some(2), "two ranks of a node hold one share of tensors");
    for (code, kind) in [
        ("TransformerContextParallelConfig.zig_zag(degree=8)", CpKind::Ring),
        ("TransformerContextParallelConfig.ulysses(degree=8)", CpKind::AllToAll),
        ("TransformerContextParallelConfig.llama3(degree=8, head_stride=4)", CpKind::AllGather),
        ("TransformerContextParallelConfig(degree=8, uly=UlyssesContextParallelStyle())", CpKind::AllToAll),
    ] {
        let ring = of(&format!("cp_config={code}"));
        assert_eq!((ring.plan.layout.cp, ring.plan.cp_kind, errors(&ring).len()), (8, kind, 0), "{code}");
    }
    let stages = of("pp_config=TransformerPipelineParallelConfig(degree=4, schedule=PipelineScheduleType.single_1F1B)");
    assert_eq!((stages.plan.layout.pp, stages.plan.schedule), (4, Schedule::OneFOneB));
    assert!(!stages.plan.reshard_after_forward);
    let looped = of("pp_config=TransformerPipelineParallelConfig(degree=4, split_points=[3, 7, 11, 15, 19, 23, 28])");
    assert_eq!(looped.plan.schedule, Schedule::Interleaved { virtual_stages: 2 });
    assert_eq!(errors(&looped), [""; 0]);
    assert_ne!(looped.plan.split.to_string(), "even");
    let uneven = of("pp_config=TransformerPipelineParallelConfig(degree=4, split_points=[3, 7])");
    assert!(errors(&uneven).iter().any(|message| message.contains("split_points")), "{:?}", uneven.findings);
    let data = |code: &str| read(&changed("name=DataParallelType.hsdp,", code));
    assert_eq!(data("name='fsdp',").plan.shard_group, None);
    assert_eq!(data("name=DataParallelType.hsdp, num_replicas=4,").on(64).shard_group, Some(16));
    assert_eq!(data("name=DataParallelType.hsdp, shard_degree=16,").plan.shard_group, Some(16));
    let wide = of("cp_config=TransformerContextParallelConfig.zig_zag(degree=16)");
    assert!(errors(&wide)[0].contains("no node holds one"), "{:?}", wide.findings);
    let narrow = read(&changed("reduce_dtype=DType.float32", "reduce_dtype=DType.bfloat16"));
    assert_eq!(narrow.settings.items(), ["stack.reduce_bytes=2"]);
    let other = data("name=DataParallelType.zero,");
    assert!(errors(&other)[0].contains("dp_config.name"), "{:?}", other.findings);
    let alone = read(&PROGRAM.replace("dp_config=Trans", "dp_configs=Trans"));
    assert!(errors(&alone).iter().any(|message| message.contains("do not exchange gradients")));
    assert!(errors(&alone)[0].contains("`train_module.dp_configs`"), "{:?}", alone.findings);
}

#[test]
fn experts_are_on_the_ranks_of_a_shard_group() {
    let of = |code: &str| {
        let text = changed("olmo3_7B(", "olmoe_1B_7B(");
        read(
            &text
                .replace("compile_model=True,", &format!("compile_model=True, {code},"))
                .replace("name=DataParallelType.hsdp,", "name=DataParallelType.hsdp, shard_degree=8,"),
        )
    };
    let spread = of("ep_config=TransformerExpertParallelConfig(degree=8)");
    assert_eq!((spread.plan.layout.ep, errors(&spread).len()), (8, 0));
    assert_eq!(of("ep_config=TransformerExpertParallelConfig(degree=-1)").plan.layout.ep, 8);
    let wrong = of("ep_config=TransformerExpertParallelConfig(degree=4)");
    assert!(errors(&wrong)[0].contains("is not HSDP's shard degree"));
    let both =
        "ep_config=TransformerExpertParallelConfig(degree=8), tp_config=TransformerTensorParallelConfig(degree=2)";
    assert!(errors(&of(both))[0].contains("beside `tp_config`"));
    assert_eq!(of("tp_config=TransformerTensorParallelConfig(degree=8)").plan.layout.ep, 8);
    let dense = with("ep_config=TransformerExpertParallelConfig(degree=8)");
    assert!(errors(&dense)[0].contains("without experts"));
}

#[test]
fn recomputation_and_formats_are_read() {
    let mode = |code: &str| with(&format!("ac_config=TransformerActivationCheckpointingConfig({code})"));
    let names = "TransformerActivationCheckpointingMode";
    let mlp = Recompute::Selective(Modules { mlp: true, ..Modules::default() });
    for (code, recompute) in [
        (format!("mode={names}.full"), Recompute::Full),
        (format!("{names}.full"), Recompute::Full),
        (String::new(), Recompute::Full),
        (format!("mode={names}.selected_ops"), Recompute::PerOp),
        (format!("mode={names}.selected_blocks, block_interval=2"), Recompute::EveryOther),
        (format!("mode={names}.selected_modules, modules=['blocks.*.feed_forward']"), mlp),
        (format!("mode={names}.budget, activation_memory_budget=1.0"), Recompute::None),
        (format!("mode={names}.budget, activation_memory_budget=0.5"), Recompute::PerOp),
    ] {
        let imported = mode(&code);
        assert_eq!((imported.plan.recompute, errors(&imported).len()), (recompute, 0), "{code}");
    }
    let parts = mode(&format!("mode={names}.selected_modules, modules=['blocks.*.attention']"));
    assert!(errors(&parts)[0].contains("parts of blocks"));
    let stage = "pp_config=TransformerPipelineParallelConfig(degree=4, schedule='1F1B')";
    let stopped = with(&format!("{stage}, ac_config=TransformerActivationCheckpointingConfig(mode='full')"));
    assert!(errors(&stopped)[0].contains("stops every stage but the first"), "{:?}", stopped.findings);
    let narrow = |code: &str| read(&changed("Float8Config(enabled=False)", code));
    assert_eq!(
        narrow("Float8Config(ao=AOFloat8LinearConfig.recommended())").settings.items(),
        ["stack.fp8_all_gather=true"]
    );
    let rows = narrow("Float8Config(ao_recipe=AOFloat8LinearRecipe.rowwise)");
    assert_eq!((rows.work.format, rows.settings.items()), (Format::Fp8, &BY_ROWS.map(str::to_owned)[..]));
    assert_eq!(narrow("Float8Config(ao_mx=AOMXLinearConfig.mxfp8_cublas_rceil())").work.format, Format::Mxfp8);
    assert_eq!(read(PROGRAM).work.format, Format::Bf16);
    let lion = read(&changed("AdamWConfig(", "LionConfig("));
    assert_eq!(lion.work.recipe.state.to_bits(), 4.0_f64.to_bits());
    let eager = read(&changed("compile_model=True", "compile_model=False"));
    assert_eq!(eager.stack, "torchtitan-eager");
    let copies = read(&changed("name=DataParallelType.hsdp,", "name=DataParallelType.ddp,"));
    assert_eq!((copies.plan.zero, copies.work.recipe.master.to_bits()), (ZeroStage::Zero, 0.0_f64.to_bits()));
}

#[test]
fn nothing_that_decides_is_guessed() {
    for (from, to, why) in [
        ("2 * length,", "there(),", "`train_module.rank_microbatch_size`"),
        (
            "hsdp,",
            "hsdp, num_replicas=get_world_size() // 8,",
            "`train_module.dp_config.num_replicas` depends on running",
        ),
        ("BATCH = 512 * LENGTH", "BATCH = there(LENGTH)", "global_batch_size"),
        ("global_batch_size=BATCH, ", "", "`data_loader.global_batch_size` is not given"),
        ("global_batch_size=BATCH", "global_batch_size=512", "no multiple of sequences of 8192"),
        (
            "    trainer = Tr",
            "    if there():\n        train_module.ac_config = None\n    trainer = Tr",
            "depends on running",
        ),
        ("    trainer = Tr", "    train_module.dp_config.set(shard=8)\n    trainer = Tr", "depends on running"),
        (
            "    trainer = Tr",
            "    model.freeze_params = ['embeddings.*']\n    trainer = Tr",
            "`model.freeze_params` is not read",
        ),
        ("max_sequence_length=length", "max_sequence_length=4096", "`max_sequence_length` or other data say otherwise"),
        ("compile_model=True", "compile_model=True, **more", "`train_module`"),
        ("max_sequence_length=length", "max_sequence_lengths=length", "max_sequence_lengths"),
    ] {
        let imported = read(&changed(from, to));
        assert!(errors(&imported).iter().any(|message| message.contains(why)), "{to}: {:?}", imported.findings);
    }
    let part = "from olmo_core.train import TrainerConfig\ndef f():\n    return 1\n";
    assert!(try_read(part).unwrap_err().contains("does not train, or a part of one"));
    let other = changed("-> ExperimentConfig", "-> Other");
    assert!(try_read(&other).unwrap_err().contains("no function here gives an `ExperimentConfig`"));
}
