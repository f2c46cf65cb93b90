//! Megatron-Bridge: a Python file whose `config()` is a whole `ConfigContainer` and which trains it when run.
//!
//! The decisions are Megatron-LM's arguments; this file says where each lives in a container. Names: [megatron-bridge]
//! `megatron/bridge/training/config.py`, `recipes/common.py`, release 0.6.2.

use super::attributes::{attributes, latent_yarn};
use super::hybrid;
use super::limits::LIMITS;
use super::peft::modules;
use crate::emit::header::lines;
use crate::emit::language::Python;
use crate::emit::launcher::{RequiredVariable, TorchrunScript};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::megatron::emit::{ArgumentGroups, connections, rank_order};
use crate::megatron::hybrid::{Hybrid, is_hybrid};
use crate::rules::bytes_are;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::gpu::Format;
use meshwright_engine::stack::AmaxReduction;
use meshwright_engine::workload::Half;
use meshwright_planner::limits::Obstacle;

/// Name of the file.
const FILE: &str = "megatron_bridge.py";

const IMPORTS: &str = "\
import torch
import torch.nn.functional as F
from megatron.core.transformer.enums import AttnBackend

from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
";

/// Imports of activations, by the flags that want them.
const ACTIVATIONS: [(&str, &str); 2] = [
    ("quick-geglu", "from megatron.core.fusions.fused_bias_geglu import quick_gelu"),
    ("squared-relu", "from megatron.core.activations import squared_relu"),
];

/// Function that gives the layers of a model with an indexer, and its import.
const SPARSE_LAYERS: (&str, &str) = (
    "get_transformer_block_with_experimental_attention_variant_spec",
    "from megatron.core.models.gpt.experimental_attention_variant_module_specs import (\n    \
     get_transformer_block_with_experimental_attention_variant_spec,\n)",
);

/// Layers of a model with an indexer, which the provider's own leave out; none without one.
fn sparse_layers(sizes: &Sizes) -> Option<Snippet<Python>> {
    sizes.indexer().map(|_| snippet!("transformer_layer_spec = {}", Snippet::fixed(SPARSE_LAYERS.0)))
}

/// Settings of the number formats: a recipe, and where the plan departs from it.
fn formats(request: &Request, text: &mut Lines<Python>) {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    text.line(snippet!(
        "    cfg.mixed_precision = get_mixed_precision_config({})",
        precision(problem.workload().format, problem.workload().half, problem.stack().amax_reduction)
    ));
    let narrow = bytes_are(problem.workload().recipe.weight, 1.0);
    if problem.workload().format != Format::Bf16 {
        text.line(snippet!("    cfg.mixed_precision.fp8_param_gather = {}", narrow));
    }
    let scales_now = problem.stack().amax_reduction == AmaxReduction::None;
    if problem.workload().format == Format::Fp8 && scales_now && problem.model().layers() < plan.layout.pp {
        // The recipe keeps the first and the last layer in bf16, for which Megatron asks for a layer a rank.
        text.fixed("    cfg.mixed_precision.first_last_layers_bf16 = False");
    }
}

/// The Python file.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let model = request.costs.problem.model();
    if is_hybrid(model) {
        let hybrid = Hybrid::of(model)?;
        return Ok(written(request, &hybrid.sizes, Some(&hybrid)));
    }
    Ok(written(request, &Sizes::of(model)?, None))
}

/// The Python file and its launch script.
fn written(request: &Request, sizes: &Sizes, hybrid: Option<&Hybrid>) -> Vec<EmittedFile> {
    let arguments = &ArgumentGroups::new(request, sizes, hybrid);
    vec![Program { request, sizes, hybrid, arguments }.file(), script(request)]
}

/// The program: a function that changes a recipe to the plan, section by section, and its call.
struct Program<'a> {
    request: &'a Request<'a>,
    sizes: &'a Sizes,
    hybrid: Option<&'a Hybrid>,
    arguments: &'a ArgumentGroups,
}

impl Program<'_> {
    fn file(&self) -> EmittedFile {
        let mut text = Lines::<Python>::new();
        text.comments(lines(&LIMITS, self.request, &self.arguments.notes));
        text.comments([rank_order(self.request.evaluation.plan.order), "megatron_bridge.sh runs it."]);
        self.imports(&mut text);
        text.fixed("\ndef config() -> ConfigContainer:\n    cfg = _pretrain_common()");
        self.model(&mut text);
        text.fixed("\n    # formats, gradients and overlap");
        self.formats_and_overlap(&mut text);
        if self.adapts() {
            self.adapters(&mut text);
        }
        text.fixed("\n    # data, tokenizer, checkpoints and length of the run");
        self.run(&mut text);
        entry(self.adapts(), &mut text);
        text.into_file(FILE)
    }

    fn adapts(&self) -> bool {
        self.request.costs.problem.workload().adaptation.is_lora()
    }

    /// Whether the plan sets a flag of Megatron-LM.
    fn has(&self, flag: &str) -> bool {
        self.arguments.groups.iter().flat_map(|(.., group)| &group.settings).any(|setting| setting.flag == flag)
    }

    fn imports(&self, text: &mut Lines<Python>) {
        text.line(snippet!("import os\n\n{}", Snippet::fixed(IMPORTS)));
        let of_adapters = self.adapts().then_some("from megatron.bridge.peft.lora import LoRA");
        let of_activations = ACTIVATIONS.iter().filter(|(flag, _)| self.has(flag)).map(|(_, import)| *import);
        let of_layers = self.sizes.indexer().map(|_| SPARSE_LAYERS.1);
        let of_hybrids = self.hybrid.map(|_| hybrid::IMPORT);
        of_adapters
            .into_iter()
            .chain(of_hybrids)
            .chain(of_activations)
            .chain(of_layers)
            .for_each(|import| text.fixed(import));
        if let Some(connections) = connections(self.request) {
            let connections = connections.to_string();
            text.line(snippet!("os.environ.setdefault(\"CUDA_DEVICE_MAX_CONNECTIONS\", {})\n", connections.as_str()));
        }
    }

    /// The model's provider, and each flag as an attribute.
    fn model(&self, text: &mut Lines<Python>) {
        let (model, plan) = (self.request.costs.problem.model(), &self.request.evaluation.plan);
        let latent = matches!(self.sizes.mixer, SharedMixer::Mla(_));
        let provider = match self.hybrid {
            Some(_) => hybrid::PROVIDER,
            None if latent => "MLAModelProvider",
            None => "GPTModelProvider",
        };
        text.line(snippet!(
            "    cfg.model = {}(num_layers={}, hidden_size={}, num_attention_heads={})",
            Snippet::fixed(provider),
            model.layers(),
            model.hidden,
            self.sizes.heads()
        ));
        for (_, what, group) in &self.arguments.groups {
            let lines: Vec<Snippet<Python>> =
                group.settings.iter().flat_map(|setting| attributes(setting, latent)).collect();
            if !lines.is_empty() {
                text.line(snippet!("\n    # {}", Snippet::fixed(what)));
            }
            for line in lines {
                text.line(snippet!("    cfg.{}", line));
            }
        }
        for line in latent_yarn(model).into_iter().chain(sparse_layers(self.sizes)) {
            text.line(snippet!("    cfg.model.{}", line));
        }
        if let Some(of_model) = self.hybrid {
            text.fixed("\n    # Megatron-LM's settings where this provider has other defaults");
            for line in hybrid::attributes(model, of_model) {
                text.line(snippet!("    cfg.model.{}", line));
            }
        }
        let chunks = plan.schedule.virtual_stages();
        if self.has("pipeline-model-parallel-layout") && plan.layout.pp > 1 && chunks > 1 {
            // The layout says it too; overlap of experts is checked before it is read.
            text.line(snippet!("    cfg.model.virtual_pipeline_model_parallel_size = {}", chunks));
        }
    }

    fn formats_and_overlap(&self, text: &mut Lines<Python>) {
        formats(self.request, text);
        let has = |flag: &str| self.has(flag);
        let format = self.request.costs.problem.workload().format;
        if format == Format::Mxfp8 && !has("reuse-grad-buf-for-mxfp8-param-ag") {
            // The recipe sets it, which suits weights in MXFP8 without FSDP.
            text.fixed("    cfg.mixed_precision.reuse_grad_buf_for_mxfp8_param_ag = False");
        }
        for at in ["mixed_precision", "ddp"] {
            let wide = has("accumulate-allreduce-grads-in-fp32");
            text.line(snippet!("    cfg.{}.grad_reduce_in_fp32 = {}", Snippet::fixed(at), wide));
        }
        for at in ["ddp", "optimizer"] {
            let shards = has("use-distributed-optimizer");
            text.line(snippet!("    cfg.{}.use_distributed_optimizer = {}", Snippet::fixed(at), shards));
        }
        text.line(snippet!("    cfg.ddp.overlap_grad_reduce = {}", has("overlap-grad-reduce")));
        text.line(snippet!("    cfg.ddp.overlap_param_gather = {}", has("overlap-param-gather")));
        text.line(snippet!(
            "    cfg.comm_overlap = CommOverlapConfig(\n        tp_comm_overlap={},\n        overlap_grad_reduce={},\n        \
             overlap_param_gather={},\n        overlap_moe_expert_parallel_comm={},\n        delay_wgrad_compute={},\n    )",
            has("tp-comm-overlap"),
            has("overlap-grad-reduce"),
            has("overlap-param-gather"),
            has("overlap-moe-expert-parallel-comm"),
            has("delay-wgrad-compute"),
        ));
    }

    /// Settings of low-rank adapters: Bridge's own rank, the modules, and the checkpoint of the base, which it wants.
    ///
    /// Source: [megatron-bridge] `training/config.py` (`ConfigContainer.validate`).
    fn adapters(&self, text: &mut Lines<Python>) {
        let problem = self.request.costs.problem;
        let modules = modules(problem.model(), problem.workload().adaptation).into_iter().map(Snippet::value);
        text.fixed("\n    # adapters on a frozen base: rank and modules to be edited");
        text.line(snippet!(
            "    cfg.peft = LoRA(dim=32, alpha=32, target_modules=[{}])",
            Snippet::joined(modules, ", ")
        ));
        text.fixed("    cfg.checkpoint.pretrained_checkpoint = os.environ.get(\"BASE\")");
    }

    /// Tokenizer, checkpoints and steps: those of a timing run, or of the user.
    fn run(&self, text: &mut Lines<Python>) {
        match self.request.steps {
            Some(steps) => {
                text.fixed("    cfg.tokenizer.tokenizer_type = \"NullTokenizer\"");
                text.fixed("    cfg.checkpoint.save = None\n    cfg.checkpoint.load = None");
                text.line(snippet!("    cfg.train.train_iters = {}", steps));
            }
            None => text.fixed(TRAINING),
        }
        text.line(snippet!(
            "    cfg.tokenizer.use_tokenizer_vocab_size = False\n    cfg.tokenizer.vocab_size = {}",
            self.request.costs.problem.model().vocab
        ));
        text.line(snippet!(
            "    cfg.scheduler.lr_warmup_iters = {}  # to be edited, as the learning rate\n    return cfg\n\n",
            self.request.warm_up()
        ));
    }
}

/// Lines that train the container.
fn entry(adapts: bool, text: &mut Lines<Python>) {
    let name = || Snippet::fixed(if adapts { "finetune" } else { "pretrain" });
    text.fixed("if __name__ == \"__main__\":\n    from megatron.bridge.training.gpt_step import forward_step");
    text.line(snippet!("    from megatron.bridge.training.{} import {}\n", name(), name()));
    text.line(snippet!("    {}(config(), forward_step)", name()));
}

/// Variable of the base of adapters.
const BASE: RequiredVariable =
    ("BASE", "a folder with the checkpoint of the base, which Bridge converts from one of Hugging Face");

/// Variables of a training run.
const VARIABLES: &[RequiredVariable] = &[
    ("DATA", "the prefix of a dataset that tools/preprocess_data.py of Megatron-LM wrote"),
    ("TOKENIZER", "a tokenizer of Hugging Face: a name or a folder"),
    ("SAVE", "a folder for checkpoints"),
    ("LOAD", "a folder of checkpoints to go on from: that of SAVE, which may be empty"),
    ("STEPS", "the number of steps"),
];

/// Settings of a training run, which take the variables.
const TRAINING: &str = "    cfg.dataset.blend = [os.environ.get(\"DATA\")], None
    cfg.dataset.create_attention_mask = False
    cfg.tokenizer.tokenizer_type = \"HuggingFaceTokenizer\"
    cfg.tokenizer.tokenizer_model = os.environ.get(\"TOKENIZER\")
    cfg.checkpoint.save = os.environ.get(\"SAVE\")
    cfg.checkpoint.load = os.environ.get(\"LOAD\")
    cfg.train.train_iters = int(os.environ.get(\"STEPS\"))";

/// The launch script.
fn script(request: &Request) -> EmittedFile {
    let of_run = if request.steps.is_some() { &[] } else { VARIABLES };
    let adapts = request.costs.problem.workload().adaptation.is_lora();
    let variables: Vec<RequiredVariable> = of_run.iter().copied().chain(adapts.then_some(BASE)).collect();
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &["Run it in this folder, once a node; under Slurm: sbatch launch.sbatch"],
        variables: &variables,
        marked: None,
        exports: "",
        program: snippet!("{} \"$@\"", Snippet::fixed(FILE)),
    };
    script.file(request, "megatron_bridge.sh")
}

/// Name of a recipe of formats.
fn precision(format: Format, half: Half, amax: AmaxReduction) -> &'static str {
    match format {
        Format::Bf16 if matches!(half, Half::Fp16) => "fp16_mixed",
        Format::Bf16 => "bf16_mixed",
        Format::Fp8 if amax != AmaxReduction::None => "bf16_with_fp8_delayed_scaling_mixed",
        Format::Fp8 => "bf16_with_fp8_current_scaling_mixed",
        Format::Fp8Block => "bf16_with_fp8_subchannel_scaling_mixed",
        Format::Mxfp8 => "bf16_with_mxfp8_mixed",
        Format::Nvfp4 => "bf16_with_nvfp4_mixed",
    }
}
