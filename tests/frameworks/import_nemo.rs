//! NeMo 2's recipes.

use meshwright::frameworks;
use meshwright::gpu::Format;
use meshwright::import::{self, Context, FileKind, Imported, Severity};
use meshwright::plan::ZeroStage;
use meshwright::schedule::Schedule;
use meshwright::workload::Adaptation;

/// A recipe whose parts are functions, as NeMo's are; `MORE` is what is set on it.
const RECIPE: &str = "
import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm

def bf16_mixed() -> run.Config[nl.MegatronMixedPrecision]:
    return run.Config(nl.MegatronMixedPrecision, precision='bf16-mixed', grad_reduce_in_fp32=True)

@run.cli.factory(name='mine')
def model() -> run.Config:
    return run.Config(llm.LlamaModel, config=run.Config(llm.Llama3Config70B))

def trainer(tp: int = 4, pp: int = 4, vpp=5, cp: int = 2, sp: bool = True, nodes: int = 8, devices=8, callbacks=None):
    strategy = run.Config(
        nl.MegatronStrategy, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=vpp, context_parallel_size=cp, sequence_parallel=sp,
        ddp=run.Config(DistributedDataParallelConfig, overlap_grad_reduce=True, overlap_param_gather=True,
                       grad_reduce_in_fp32=False, data_parallel_sharding_strategy='optim_grads_params'),
        fsdp=None,
    )
    return run.Config(nl.Trainer, accumulate_grad_batches=1, callbacks=callbacks, devices=devices, num_nodes=nodes,
                      plugins=bf16_mixed(), strategy=strategy)

@run.cli.factory(target=llm.pretrain, name='mine')
def pretrain_recipe(num_nodes: int = 8, performance_mode: bool = False) -> run.Partial:
    recipe = run.Partial(
        llm.pretrain,
        model=model(),
        trainer=trainer(nodes=num_nodes, callbacks=[run.Config(TimingCallback)]),
        data=run.Config(llm.MockDataModule, seq_length=8192, global_batch_size=512, micro_batch_size=1),
        optim=run.Config(nl.MegatronOptimizerModule,
                         config=run.Config(OptimizerConfig, optimizer='adam', bf16=True, use_distributed_optimizer=True)),
    )
    if performance_mode:
        recipe = faster(recipe)
    MORE
    return recipe

def faster(recipe: run.Partial) -> run.Partial:
    if not recipe.trainer.callbacks:
        recipe.trainer.callbacks = []
    recipe.trainer.callbacks.append(run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True))
    recipe.trainer.plugins.grad_reduce_in_fp32 = False
    return recipe
";

/// Reads the recipe with more set on it.
fn with(more: &str) -> Imported {
    let text = RECIPE.replace("MORE", more);
    let kind = import::kind_of("recipe.py", &text).unwrap();
    assert_eq!(kind, FileKind::Of(&frameworks::MEGATRON_BRIDGE));
    import::read(&text, kind, &Context::alone("recipe.py")).unwrap()
}

/// Messages of errors.
fn errors(imported: &Imported) -> Vec<String> {
    let errors = imported.findings.iter().filter(|finding| finding.level == Severity::Error);
    errors.map(|finding| finding.message.clone()).collect()
}

#[test]
fn a_recipe_is_read_as_its_parts_are_made() {
    let read = with("pass");
    assert_eq!(errors(&read), Vec::<String>::new());
    let layout = read.plan.layout;
    assert_eq!((layout.tp, layout.pp, layout.cp, layout.ep, layout.dp), (4, 4, 2, 1, 2));
    assert_eq!(read.plan.schedule, Schedule::Interleaved { virtual_stages: 5 });
    assert!(read.plan.sequence_parallel);
    assert_eq!((read.world, read.gpus_per_node), (Some(64), Some(8)));
    assert_eq!((read.work.global_batch, read.work.seq_len), (Some(512), Some(8192)));
    assert_eq!((read.plan.micro_batch, read.plan.zero), (1, ZeroStage::One));
    assert_eq!(read.model.as_ref().map(|model| model.order.len()), Some(80));
    // The plugin decides the format of the reduced gradients, not DDP.
    assert!(read.settings.items().iter().any(|setting| setting == "stack.reduce_bytes=4"), "{:?}", read.settings);
}

#[test]
fn what_is_set_on_a_recipe_counts() {
    let read = with(
        "recipe = faster(recipe)\n    strategy = recipe.trainer.strategy\n    \
        strategy.virtual_pipeline_model_parallel_size = None\n    \
         strategy.context_parallel_size *= 2\n    recipe.data.micro_batch_size = 2\n    recipe.trainer.plugins.fp8 = 'hybrid'\n    \
         recipe.trainer.plugins.fp8_recipe = 'tensorwise'\n    recipe.model.config.recompute_granularity = 'full'\n    \
         recipe.model.config.recompute_method = 'uniform'\n    recipe.model.config.recompute_num_layers = 1",
    );
    assert_eq!(errors(&read), Vec::<String>::new());
    assert_eq!((read.plan.layout.cp, read.plan.micro_batch, read.work.format), (4, 2, Format::Fp8));
    assert_eq!(read.plan.schedule, Schedule::OneFOneB);
    assert!(read.plan.to_string().contains("recompute=full"), "{}", read.plan);
    assert!(!read.settings.items().iter().any(|setting| setting == "stack.reduce_bytes=4"), "{:?}", read.settings);
    let adapters = with("recipe.peft = run.Config(llm.peft.LoRA, dim=8)");
    assert_eq!((adapters.work.adaptation, errors(&adapters)), (Adaptation::Lora, Vec::new()));
    assert_eq!(adapters.adapters.and_then(|adapters| adapters.rank), Some(8));
    // The strategy's degrees are the model's; without a distributed optimizer states are not sharded.
    let whole = with(
        "recipe.model.config.tensor_model_parallel_size = 8\n    recipe.optim.config.use_distributed_optimizer = False",
    );
    assert_eq!((whole.plan.layout.tp, whole.plan.zero), (4, ZeroStage::Zero));
    // Defaults of a known module of data.
    let defaults = with("recipe.data = run.Config(llm.PreTrainingDataModule, paths=['a'], global_batch_size=64)");
    assert_eq!((defaults.plan.micro_batch, defaults.work.seq_len, errors(&defaults)), (4, Some(2048), Vec::new()));
}

#[test]
fn a_part_that_decides_and_is_not_read_is_named() {
    for (more, path) in [
        ("recipe.trainer.strategy = run.Config(nl.FSDP2Strategy, data_parallel_size=8)", "trainer.strategy"),
        ("recipe.trainer.strategy = strategy_of(8)", "trainer.strategy"),
        ("recipe.trainer.strategy.fsdp = 'pytorch'", "trainer.strategy.fsdp"),
        ("recipe.trainer.strategy.ddp = 'pytorch'", "trainer.strategy.ddp"),
        ("recipe.trainer.num_nodes = nodes_of(8)[0]", "trainer.num_nodes"),
        ("recipe.trainer.accumulate_grad_batches = 4", "trainer.accumulate_grad_batches"),
        ("recipe.trainer.plugins = None", "trainer.plugins"),
        ("recipe.data = run.Config(MyData, seq_length=4096, micro_batch_size=1)", "data.global_batch_size"),
        ("recipe.trainer.callbacks.append(run.Config(LayerFreezer))", "trainer.callbacks.1"),
        ("recipe.model.config = run.Config(llm.Llama3Config71B)", "Llama3Config71B"),
        ("recipe.model.config.num_layers = 4", "model.config"),
        ("recipe.trainer.strategy.expert_tensor_model_parallel_size = 2", "expert_tensor_model_parallel_size"),
        ("recipe.peft = run.Config(SCHEMES['a'])", "peft"),
        ("recipe.data.global_batch_size = batch_of(8)[0]", "depends on running the program"),
        ("recipe.trainer.strategy = run.Config(nl.MegatronStrategy, **given()[0])", "trainer.strategy"),
    ] {
        let found = errors(&with(more));
        assert!(found.iter().any(|message| message.contains(path)), "{more}: {found:?}");
    }
    // A part alone, and a program that launches recipes, are none.
    for text in [
        "import nemo_run as run\ndef model() -> run.Config:\n    return run.Config(M)\n",
        "from nemo import lightning\n",
    ] {
        let refused = import::kind_of("part.py", text).unwrap_err();
        assert!(refused.why.contains("NeMo") && refused.expected.contains("run.Partial"), "{refused}");
    }
}
