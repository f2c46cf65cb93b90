//! Models by name, blocks with changes, experiments and launch lines, of which OLMo-core's programs are put together.

use super::import_olmo::{changed, errors, model, read};
use meshwright::gpu::Format;
use meshwright::import::{self, Context, FileKind};
use meshwright::model::{Ffn, Mixer, QkNorm};
use meshwright::plan::Recompute;

/// Parameters of a model of OLMo-core by the call that gives it.
fn parameters(call: &str) -> u64 {
    let imported = read(&changed("TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())", call));
    assert_eq!(errors(&imported), [""; 0], "{call}");
    model(&imported).parameters().total
}

/// The counts are those that OLMo-core's own models have (`checks/check_olmo_core.py` asks it for those that are written).
#[test]
fn models_are_made_by_name() {
    for (call, total) in [
        ("TransformerConfig.olmo3_7B(vocab_size=100352)", 7_298_617_344),
        ("TransformerConfig.olmo2_7B(100352)", 7_298_617_344),
        ("TransformerConfig.llama3_8B(vocab_size=128256)", 8_030_261_248),
        ("TransformerConfig.llama2_7B(vocab_size=32000)", 6_738_415_616),
        ("TransformerConfig.qwen3_8B(vocab_size=151936)", 8_190_735_360),
        ("TransformerConfig.olmoe_1B_7B(vocab_size=50304)", 6_919_161_856),
        ("getattr(TransformerConfig, 'llama3_8B')(vocab_size=128256)", 8_030_261_248),
        ("TransformerConfig.llama3_8B(vocab_size=128256, n_layers=16)", 4_540_469_248),
    ] {
        if !call.starts_with("getattr") {
            assert_eq!(parameters(call), total, "{call}");
            continue;
        }
        let text = changed(
            "    model = TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())",
            "    factory = getattr(TransformerConfig, 'llama3_8B')\n    model = factory(vocab_size=128256)",
        );
        assert_eq!(model(&read(&text)).parameters().total, total);
    }
    let experts = read(&changed("olmo3_7B(", "olmoe_1B_7B("));
    let Ffn::Moe(moe) = &model(&experts).kinds[0].ffn else { panic!("experts") };
    assert_eq!((moe.experts, moe.top_k, moe.intermediate, experts.work.drops_tokens), (64, 8, 1024, false));
    assert_eq!(model(&experts).details.router.aux_loss, Some(0.01));
    for (call, why) in [
        ("TransformerConfig.ngpt_1B(vocab_size=1024)", "`TransformerConfig.ngpt_1B`, which is not read"),
        ("TransformerConfig.small_hybrid_moe(vocab_size=1024)", "small_hybrid_moe"),
        ("TransformerConfig.llama3_8B(vocab_size=there())", "`model.vocab_size`"),
        ("made(1)", "`model` is `made`"),
    ] {
        let imported = read(&changed("TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())", call));
        assert!(errors(&imported).iter().any(|message| message.contains(why)), "{call}: {:?}", imported.findings);
    }
}

#[test]
fn blocks_are_changed_before_they_are_used() {
    let hybrid = "TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())
    model.d_model -= 2 * 128
    heads = model.block.sequence_mixer.n_heads - 2
    model.block.sequence_mixer.n_heads = heads
    full = model.block
    other = full.replace(sequence_mixer=GatedDeltaNetConfig(n_heads=heads, head_dim=int(0.75 * model.d_model / heads)))
    model.block = {'other': other, 'full': full}
    model.block_pattern = ['other', 'other', 'other', 'full']";
    let imported = read(&changed("TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())", hybrid));
    assert_eq!(errors(&imported), [""; 0]);
    let model = model(&imported);
    assert_eq!((model.hidden, model.kinds.len()), (3840, 2), "every fourth layer sees all keys");
    let Mixer::DeltaNet(net) = &model.kinds[0].mixer else { panic!("{:?}", model.kinds[0]) };
    assert_eq!((net.key_heads, net.key_dim, net.value_dim), (30, 96, 192));
    let Mixer::Attention(attention) = &model.kinds[model.order[3]].mixer else { panic!("attention") };
    assert_eq!((attention.heads, attention.head_dim, attention.qk_norm), (30, 128, QkNorm::Full));
    let scaled = "TransformerConfig.llama3_8B(vocab_size=128256).with_rope_scaling(YaRNRoPEScalingConfig(factor=8))";
    let imported = read(&changed("TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())", scaled));
    let scaling = self::model(&imported).details.rope_scaling.clone().unwrap();
    assert_eq!((scaling.factor.to_bits(), scaling.original_positions), (8.0_f64.to_bits(), Some(8192)));
    let partly = scaled.replace("llama3_8B", "olmo3_7B");
    let imported = read(&changed("TransformerConfig.olmo3_7B(vocab_size=tokenizer.padded_vocab_size())", &partly));
    let details = &self::model(&imported).details;
    assert!(details.rope_scaling.is_none() && details.others[0].0.contains("without a window"), "{details:?}");
}

#[test]
fn experiments_are_put_together_from_functions() {
    let text = "
from functools import partial
from olmo_core.internal.experiment import CommonComponents, build_config, main
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train.train_module import TransformerTrainModuleConfig

def build_model(common: CommonComponents) -> TransformerConfig:
    return TransformerConfig.olmo2_32B(vocab_size=common.tokenizer.padded_vocab_size())

def build_train_module(common: CommonComponents) -> TransformerTrainModuleConfig:
    tokens = 2 * common.max_sequence_length
    if common.launch is not None:
        tokens *= 2
    return TransformerTrainModuleConfig(
        rank_microbatch_size=tokens,
        max_sequence_length=common.max_sequence_length,
        optim=SkipStepAdamWConfig(lr=6e-4),
        compile_model=True,
        dp_config=TransformerDataParallelConfig(name=DataParallelType.fsdp, param_dtype=DType.bfloat16),
    )

def build_trainer(common: CommonComponents) -> TrainerConfig:
    return TrainerConfig(save_folder=common.save_folder).with_recommended_evals(common.tokenizer, \
    common.max_sequence_length, there())

def last(config: ExperimentConfig):
    config.train_module.rank_microbatch_size = 8192

if __name__ == '__main__':
    config_builder = partial(
        build_config,
        global_batch_size=1024 * 4096,
        max_sequence_length=4096,
        model_config_builder=build_model,
        train_module_config_builder=build_train_module,
        trainer_config_builder=build_trainer,
        include_default_evals=False,
    )
    main(config_builder=config_builder)
";
    let imported = read(text);
    assert_eq!(errors(&imported), [""; 0]);
    assert_eq!(
        (imported.work.global_batch, imported.work.seq_len, imported.plan.micro_batch),
        (Some(1024), Some(4096), 2)
    );
    assert!(imported.findings.iter().any(|finding| finding.message.contains("away from Beaker")));
    let Ffn::Dense(mlp) = &model(&imported).kinds[0].ffn else { panic!("an MLP") };
    assert_eq!((mlp.intermediate, model(&imported).vocab), (27_648, 100_352));
    let finished = text.replace("include_default_evals=False", "finalize_config=last").replace("= 8192", "= 16384");
    assert_eq!(read(&finished).plan.micro_batch, 4);
    let cook = text.replace(
        "    tokens = 2",
        "    return cookbook.configure_train_module(max_sequence_length=4096, rank_microbatch_size=4096, learning_rate=1, \
         scheduler=S(), cp_degree=4, dp_shard_degree=8, activation_memory_budget=0.5)\n    tokens = 2",
    );
    let cooked = read(&cook);
    assert_eq!((cooked.plan.layout.cp, cooked.plan.shard_group, cooked.plan.micro_batch), (4, Some(32), 1));
    assert_eq!((cooked.plan.recompute, cooked.work.format), (Recompute::PerOp, Format::Bf16));
}

#[test]
fn launch_lines_say_options_and_settings_over_the_program() {
    let own = changed(
        "if __name__",
        "def parser():\n    own = argparse.ArgumentParser()\n    own.add_argument('--sequence-length', type=int, \
        default=2048)\n    return own\n\nif __name__",
    );
    let files = |name: &str| (name == "train/run.py").then(|| own.clone());
    let script = |line: &str| {
        let context = Context { files: &files, ..Context::alone("run.sh") };
        import::read(line, FileKind::Script, &context).unwrap_or_else(|error| panic!("{error}"))
    };
    let usual = script("torchrun --nnodes 4 --nproc-per-node 8 train/run.py --save-folder /x");
    assert_eq!((usual.world, usual.work.seq_len, usual.work.global_batch), (Some(32), Some(2048), Some(2048)));
    assert_eq!((usual.plan.layout.dp, usual.plan.shard_group, usual.plan.micro_batch), (32, Some(8), 2));
    let longer = script(
        "torchrun --nproc-per-node 8 train/run.py --sequence-length 8192 --train_module.rank_microbatch_size=32768 \
         --train_module.dp_config.name=fsdp --model.n_layers=16",
    );
    assert_eq!((longer.work.seq_len, longer.plan.micro_batch, longer.plan.shard_group), (Some(8192), 4, None));
    assert_eq!((model(&longer).layers(), longer.world), (16, Some(8)));
    let uneven = script("torchrun --nproc-per-node 6 train/run.py");
    assert!(errors(&uneven).iter().any(|message| message.contains("is not divided by micro-batches")));
    let counted =
        own.replace("name=DataParallelType.hsdp,", "name=DataParallelType.hsdp, num_replicas=get_world_size() // 16,");
    let files = |name: &str| (name == "run.py").then(|| counted.clone());
    let context = Context { files: &files, ..Context::alone("run.sh") };
    let of_world = import::read("torchrun --nnodes 8 --nproc-per-node 8 run.py", FileKind::Script, &context).unwrap();
    assert_eq!((of_world.plan.shard_group, errors(&of_world).len()), (Some(16), 0));
}
