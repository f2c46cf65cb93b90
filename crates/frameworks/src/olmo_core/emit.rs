//! OLMo-core: a program with the whole configuration, and a script with the launcher line.
//!
//! Names: [olmo-core] `nn/transformer/config.py`, `train/train_module/transformer/config.py`, `distributed/parallel/`,
//! `float8/`, `data/`, release 2.5.0.

mod model;
mod module;

use super::limits::LIMITS;
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::Python;
use crate::emit::launcher::{RequiredVariable, TorchrunScript};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::sizes::Sizes;
use meshwright_planner::limits::Obstacle;

/// The launch script and the program.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), program(request, sizes)])
}

/// Name of the program.
const PROGRAM: &str = "olmo_core_plan.py";

const IMPORTS: &str = "\
import os
import sys
from dataclasses import dataclass
from typing import List, Union

from olmo_core.config import Config, DType
from olmo_core.data import (
    DataLoaderConfig,
    NumpyDataLoaderConfig,
    NumpyDatasetConfig,
    NumpyFSLDatasetConfig,
    TokenizerConfig,
)
from olmo_core.data.composable import ComposableDataLoaderConfig, InstanceSourceConfig, RandomInstanceSourceConfig
from olmo_core.distributed.parallel import DataParallelType, PipelineScheduleType
from olmo_core.float8 import AOFloat8LinearConfig, AOMXLinearConfig, Float8Config
from olmo_core.nn.attention import AttentionBackendName, AttentionConfig, SlidingWindowAttentionConfig
from olmo_core.nn.feed_forward import FeedForwardConfig
from olmo_core.nn.layer_norm import LayerNormConfig, LayerNormType
from olmo_core.nn.lm_head import LMHeadConfig, LMLossImplementation
from olmo_core.nn.moe import MoEConfig, MoERouterConfig, MoERouterGatingFunction, MoEType
from olmo_core.nn.rope import (
    PIRoPEScalingConfig,
    RoPEConfig,
    StepwiseRoPEScalingConfig,
    YaRNRoPEScalingConfig,
)
from olmo_core.nn.transformer import (
    TransformerActivationCheckpointingMode,
    TransformerBlockConfig,
    TransformerBlockType,
    TransformerConfig,
    TransformerType,
)
from olmo_core.optim import AdamWConfig, CosWithWarmup
from olmo_core.train import (
    Duration,
    TrainerConfig,
    prepare_training_environment,
    teardown_training_environment,
)
from olmo_core.train.callbacks import CheckpointerCallback, ConfigSaverCallback, GPUMemoryMonitorCallback
from olmo_core.train.train_module import (
    TransformerActivationCheckpointingConfig,
    TransformerContextParallelConfig,
    TransformerDataParallelConfig,
    TransformerExpertParallelConfig,
    TransformerPipelineParallelConfig,
    TransformerTensorParallelConfig,
    TransformerTrainModuleConfig,
)
from olmo_core.utils import seed_all


@dataclass
class ExperimentConfig(Config):
    model: TransformerConfig
    dataset: Union[NumpyDatasetConfig, List[InstanceSourceConfig]]
    data_loader: DataLoaderConfig
    train_module: TransformerTrainModuleConfig
    trainer: TrainerConfig
    init_seed: int = 12536

";

const MAIN: &str = r#"

def main():
    config = build_config().merge(sys.argv[1:])
    prepare_training_environment()
    seed_all(config.init_seed)
    model = config.model.build(init_device="meta")
    train_module = config.train_module.build(model)
    group = train_module.dp_process_group
    if isinstance(config.dataset, list):
        sources = [source.build(config.data_loader.work_dir) for source in config.dataset]
        data_loader = config.data_loader.build(*sources, dp_process_group=group)
    else:
        data_loader = config.data_loader.build(config.dataset.build(), dp_process_group=group)
    trainer = config.trainer.build(train_module, data_loader)
    trainer.callbacks["config_saver"].config = config.as_config_dict()
    trainer.fit()
    teardown_training_environment()


if __name__ == "__main__":
    main()"#;

fn program(request: &Request, sizes: &Sizes) -> EmittedFile {
    let of = request.costs.problem.model();
    let mut notes = vec![format!("the tokenizer must have at most the {} tokens of the plan", of.vocab)];
    notes.extend(unknown(of).map(|missing| {
        format!("the model's source does not say its {missing}: OLMo-core's defaults hold; set what it has")
    }));
    if sizes.moe.is_some() {
        notes.push("experts want the package grouped_gemm; without it one matrix is multiplied after another".into());
    }
    let mut text = Lines::<Python>::new();
    text.comments(lines(&LIMITS, request, &notes));
    text.fixed(IMPORTS);
    model::architecture(request, sizes, &mut text);
    module::train_module(request, &mut text);
    config(request, &mut text);
    text.fixed(MAIN);
    text.into_file(PROGRAM)
}

/// Synthetic data of a timing run, which every rank makes for itself.
const MADE_UP: &str = "    tokenizer = TokenizerConfig(vocab_size={}, eos_token_id=0, pad_token_id=1)
    dataset = [
        RandomInstanceSourceConfig(
            tokenizer=tokenizer, sequence_length={}, avg_document_length={}, num_instances={}, seed=0
        )
    ]";

/// Data of a training run, by variables.
const DATA: &str = "    tokenizer = TokenizerConfig.from_hf(os.environ.get(\"TOKENIZER\"))
    dataset = NumpyFSLDatasetConfig(
        paths=os.environ.get(\"DATA\").split(\",\"), expand_glob=True, tokenizer=tokenizer, sequence_length={}
    )";

fn config(request: &Request, text: &mut Lines<Python>) {
    let problem = request.costs.problem;
    let workload = problem.workload();
    let (batch, seq_len) = (workload.global_batch, workload.seq_len);
    text.fixed("\ndef build_config() -> ExperimentConfig:");
    let (loader, more) = if let Some(steps) = request.steps {
        // One sequence more than the steps take: batches that are not full are dropped.
        let instances = u64::from(batch) * u64::from(steps) + 1;
        text.line(Snippet::filled(
            MADE_UP,
            &[problem.model().vocab.into(), seq_len.into(), seq_len.into(), instances.into()],
        ));
        ("Composable", Snippet::fixed("tokenizer=tokenizer,\n        display_source_visualization=False,"))
    } else {
        text.line(Snippet::filled(DATA, &[seq_len.into()]));
        ("Numpy", Snippet::fixed("num_workers=8,"))
    };
    text.line(snippet!(
        "    data_loader = {}DataLoaderConfig(\n        global_batch_size={} * {},\n        seed=34521,\n        {}\n        \
         work_dir=os.environ.get(\"WORK\", \"/tmp/olmo_core\"),\n    )",
        Snippet::name(loader),
        batch,
        seq_len,
        more
    ));
    let (duration, saves) = match request.steps {
        Some(steps) => (steps.into(), true),
        None => (Snippet::fixed("int(os.environ.get(\"STEPS\"))"), false),
    };
    text.line(snippet!(
        "    trainer = TrainerConfig(\n        save_folder=os.environ.get(\"SAVE\", \"/tmp/olmo_core\"),\n        \
         save_overwrite=True,\n        metrics_collect_interval=5,\n        cancel_check_interval=5,\n        \
         max_duration=Duration.steps({}),\n        no_checkpoints={},\n    )",
        duration,
        saves
    ));
    text.fixed("    trainer = trainer.with_callback(\"config_saver\", ConfigSaverCallback())");
    text.fixed("    trainer = trainer.with_callback(\"gpu_monitor\", GPUMemoryMonitorCallback())");
    if request.steps.is_none() {
        text.fixed("    trainer = trainer.with_callback(\"checkpointer\", CheckpointerCallback(save_interval=1000))");
    }
    text.fixed(
        "    return ExperimentConfig(\n        model=build_model(),\n        dataset=dataset,\n        \
         data_loader=data_loader,\n        train_module=build_train_module(),\n        trainer=trainer,\n    )",
    );
}

/// Variables of a training run.
const VARIABLES: &[RequiredVariable] = &[
    ("DATA", "files of token numbers as OLMo-core reads them, with commas between; each may be a pattern"),
    ("TOKENIZER", "the tokenizer that they were made with, by its name on the Hugging Face hub"),
    ("SAVE", "a folder for checkpoints, from which a run goes on"),
    ("STEPS", "the number of steps"),
];

fn script(request: &Request) -> EmittedFile {
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &[
            "Run it in this folder, once a node; under Slurm: sbatch launch.sbatch. What follows its name goes to the \
            configuration, such as",
            "--train_module.optim.lr=0.0001.",
        ],
        variables: if request.steps.is_some() { &[] } else { VARIABLES },
        marked: None,
        exports: "",
        program: snippet!("{} \"$@\"", PROGRAM),
    };
    script.file(request, "olmo_core.sh")
}
