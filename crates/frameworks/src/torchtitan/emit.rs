//! torchtitan: a Python module whose `train()` is the whole configuration, and a script with the launcher line.
//!
//! Names: [torchtitan] `torchtitan/config/configs.py`, `models/common/config_utils.py`, release 0.3.0.

use super::limits::LIMITS;
use crate::details::unknown;
use crate::emit::header::lines;
use crate::emit::language::Python;
use crate::emit::launcher::{RequiredVariable, TorchrunScript};
use crate::emit::request::{EmittedFile, Request};
use crate::emit::snippet::{Snippet, snippet};
use crate::emit::text::Lines;
use crate::rules::FusedExchange;
use crate::sizes::{SharedMixer, Sizes};
use meshwright_engine::model::{Details, Moe, QkNorm, RopeScaling, RopeScalingKind, Router, RouterScore};
use meshwright_engine::plan::{Layout, Recompute, ZeroStage};
use meshwright_engine::schedule::Schedule;
use meshwright_engine::stack::Dispatcher;
use meshwright_planner::limits::Obstacle;

/// The launch script and the module.
pub(crate) fn files(request: &Request) -> Result<Vec<EmittedFile>, Vec<Obstacle>> {
    let sizes = &Sizes::of(request.costs.problem.model())?;
    Ok(vec![script(request), module(request, sizes)])
}

/// Name of the module.
const MODULE: &str = "torchtitan_plan";

const IMPORTS: &str = "\
import os

from functools import partial

import torch.nn as nn

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import (
    get_attention_config,
    make_ffn_config,
    make_gqa_config,
    make_moe_config,
    make_routed_experts_config,
    make_router_config,
)
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.trainer import Trainer";

const LLAMA: &str = "
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.model import Llama3Model as Model, Llama3TransformerBlock as Block";

const GQA: &str = "
from torchtitan.models.qwen3 import model_registry
from torchtitan.models.qwen3.model import Qwen3Model as Model, Qwen3TransformerBlock as Block";

const MLA: &str = "
from torchtitan.models.deepseek_v3 import make_mla_attention_config, model_registry
from torchtitan.models.deepseek_v3.model import DeepSeekV3Model as Model, DeepSeekV3TransformerBlock as Block";

const HELPERS: &str = r#"
INIT = {"weight": partial(nn.init.normal_, std=0.02), "bias": nn.init.zeros_}
ONES = {"weight": nn.init.ones_}
EXPERTS = {name: INIT["weight"] for name in ("w1_EFD", "w2_EDF", "w3_EFD")}


def norm(width):
    return RMSNorm.Config(normalized_shape=width, eps=EPSILON, param_init=ONES)


def ffn(width):
    return make_ffn_config(dim=DIM, hidden_dim=width, w1_param_init=INIT, w2w3_param_init=INIT)
"#;

const MODEL: &str = r#"
def block(layer):
    part = {"moe": _moe()} if HAS_EXPERTS[layer] else {"feed_forward": ffn(FFN)}
    return Block.Config(attention_norm=norm(DIM), ffn_norm=norm(DIM), attention=attention(layer), **part)


def _model():
    embedding_init = {"weight": skip_param_init} if TIED else {"weight": INIT["weight"]}
    return Model.Config(
        dim=DIM,
        vocab_size=VOCAB,
        enable_weight_tying=TIED,
        tok_embeddings=Embedding.Config(num_embeddings=VOCAB, embedding_dim=DIM, param_init=embedding_init),
        norm=norm(DIM),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCAB, param_init=INIT),
        layers=[block(layer) for layer in range(LAYERS)],
    )


def stages(counts):
    """Module names of each pipeline stage, in model order."""
    parts, at = [], 0
    for count in counts:
        parts.append([f"layers.{layer}" for layer in range(at, at + count)])
        at += count
    return [["tok_embeddings"] + parts[0], *parts[1:-1], parts[-1] + ["norm", "lm_head"]]


def train() -> Trainer.Config:
    spec = model_registry("debugmodel")
    spec.flavor, spec.model = "plan", _model()
    config = Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCAB),
        training=TrainingConfig(),
        parallelism=ParallelismConfig(),
        compile=CompileConfig(),
        # To be edited: the learning rate.
        optimizer=default_adamw(lr=3e-4),
    )
"#;

/// Whether the classes are Llama 3's: dense layers without norms on queries and keys. Its adapter of Hugging Face's
/// weights orders heads for rotary embedding by complex numbers; Qwen3's, which has such norms and experts, for that by
/// cosines and sines.
fn is_llama(sizes: &Sizes) -> bool {
    sizes.moe.is_none() && matches!(&sizes.mixer, SharedMixer::Attention(a) if a.qk_norm == QkNorm::None)
}

fn module(request: &Request, sizes: &Sizes) -> EmittedFile {
    let mut text = Lines::<Python>::new();
    let notes: Vec<String> = unknown(request.costs.problem.model())
        .map(|missing| format!("the model's source does not say its {missing}: set what it has"))
        .into_iter()
        .collect();
    text.comments(lines(&LIMITS, request, &notes));
    text.fixed(IMPORTS);
    let classes = match &sizes.mixer {
        SharedMixer::Mla(_) => MLA,
        SharedMixer::Attention(_) if is_llama(sizes) => LLAMA,
        SharedMixer::Attention(_) => GQA,
    };
    text.fixed(&classes[1..]);
    text.fixed("");
    constants(request, sizes, &mut text);
    text.fixed(HELPERS);
    attention(sizes, request, &mut text);
    experts(request, sizes, &mut text);
    text.fixed(MODEL.trim_end());
    match request.steps {
        Some(steps) => {
            text.fixed("    config.dataloader = HuggingFaceTextDataLoader.Config(dataset=\"c4_test\")");
            text.fixed("    config.hf_assets_path = \"./tests/assets/tokenizer\"");
            text.line(snippet!("    config.training.steps = {}", steps));
        }
        None => text.fixed(TRAINING),
    }
    for setting in settings(request) {
        text.line(snippet!("    config.{}", setting));
    }
    text.fixed("    return config");
    text.into_file(&format!("{MODULE}.py"))
}

fn constants(request: &Request, sizes: &Sizes, text: &mut Lines<Python>) {
    let model = request.costs.problem.model();
    text.line(snippet!(
        "DIM, LAYERS, VOCAB, TIED = {}, {}, {}, {}",
        model.hidden,
        model.layers(),
        model.vocab,
        model.tied_embeddings
    ));
    text.line(snippet!("FFN = {}", sizes.dense.as_ref().map_or(0, |mlp| mlp.intermediate)));
    text.line(snippet!("EPSILON = {}", model.details.norm_epsilon.unwrap_or(1e-5)));
    let dense = sizes.has_experts.iter().take_while(|has| !**has).count();
    if sizes.has_experts[dense..].iter().all(|has| *has) {
        text.line(snippet!("HAS_EXPERTS = [False] * {} + [True] * {}", dense, sizes.has_experts.len() - dense));
    } else {
        let all = Snippet::joined(sizes.has_experts.iter().map(|has| (*has).into()), ", ");
        text.line(snippet!("HAS_EXPERTS = [{}]", all));
    }
}

fn attention(sizes: &Sizes, request: &Request, text: &mut Lines<Python>) {
    let seq_len = request.costs.problem.workload().seq_len;
    text.fixed("\ndef attention(layer):");
    match &sizes.mixer {
        SharedMixer::Attention(a) => {
            let norm =
                if a.qk_norm == QkNorm::PerHead { snippet!("norm({})", a.head_dim) } else { Snippet::fixed("None") };
            text.line(snippet!(
                "    rope = {}",
                rope(&request.costs.problem.model().details, a.head_dim, seq_len, is_llama(sizes))
            ));
            text.fixed("    return make_gqa_config(\n        dim=DIM,");
            text.line(snippet!("        n_heads={},\n        n_kv_heads={},", a.heads, a.kv_heads));
            text.line(snippet!("        head_dim={},", a.head_dim));
            text.fixed("        wqkv_param_init=INIT,\n        wo_param_init=INIT,");
            text.fixed(
                "        inner_attention=get_attention_config(\"flex\"),\n        fuse_qkv=True,\n        rope=rope,",
            );
            text.line(snippet!("        qk_norm={},\n    )\n", norm));
        }
        SharedMixer::Mla(m) => {
            let theta = request.costs.problem.model().details.rope_theta.unwrap_or(10_000.0);
            text.line(snippet!(
                "    rope = ComplexRoPE.Config(dim={}, max_seq_len={}, theta={})",
                m.rope_dim,
                seq_len,
                theta
            ));
            text.fixed("    return make_mla_attention_config(\n        layer_id=layer,\n        dim=DIM,");
            text.line(snippet!("        n_heads={},\n        q_lora_rank={},", m.heads, m.q_rank));
            text.line(snippet!("        kv_lora_rank={},\n        qk_nope_head_dim={},", m.kv_rank, m.nope_dim));
            text.line(snippet!("        qk_rope_head_dim={},\n        v_head_dim={},", m.rope_dim, m.v_dim));
            text.fixed("        attn_backend=\"flex\",\n        linear_init=INIT,\n        norm_init=ONES,");
            text.fixed("        depth_init=lambda layer: INIT,\n        rope=rope,\n    )\n");
        }
    }
}

/// Rotary embedding of heads of `dim`, with Llama 3's base where the model's source does not say: of complex numbers
/// for Llama 3's classes, and where its change of frequencies is wanted, which the other kind has not.
fn rope(details: &Details, dim: u32, seq_len: u32, complex: bool) -> Snippet<Python> {
    let theta = details.rope_theta.unwrap_or(500_000.0);
    if let Some(RopeScaling { kind: RopeScalingKind::Llama3 { low, high }, factor, original_positions }) =
        &details.rope_scaling
    {
        return snippet!(
            "ComplexRoPE.Config(\n        dim={}, max_seq_len={}, theta={}, scaling=\"llama\", scaling_factor={},\n        \
             low_freq_factor={}, high_freq_factor={}, original_max_position_embeddings={},\n    )",
            dim,
            seq_len,
            theta,
            *factor,
            *low,
            *high,
            original_positions.unwrap_or(8192)
        );
    }
    let kind = Snippet::fixed(if complex { "ComplexRoPE" } else { "CosSinRoPE" });
    snippet!("{}.Config(dim={}, max_seq_len={}, theta={})", kind, dim, seq_len, theta)
}

/// Arguments of the router's score and of its chosen experts' weights, where the model's source says them.
fn score(moe: &Moe, router: &Router) -> Snippet<Python> {
    let Some(score) = moe.router_score else { return Snippet::fixed("") };
    let score = if score == RouterScore::Sigmoid { "sigmoid" } else { "softmax" };
    if *router == Router::default() {
        return snippet!(", score_func={}", score);
    }
    let (normalized, scale) = (router.normalized.unwrap_or(false), router.scale.unwrap_or(1.0));
    snippet!(", score_func={}, route_norm={}, route_scale={}", score, normalized, scale)
}

fn experts(request: &Request, sizes: &Sizes, text: &mut Lines<Python>) {
    let Some(moe) = &sizes.moe else { return };
    let plan = &request.evaluation.plan;
    let fused = plan.layout.ep > 1 && plan.dispatcher == Dispatcher::DeepEp;
    let exchange = FusedExchange::of(request.costs.problem).filter(|_| fused);
    let backend = exchange.map_or("standard", FusedExchange::name);
    let shared =
        if moe.shared_intermediate > 0 { snippet!("ffn({})", moe.shared_intermediate) } else { Snippet::fixed("None") };
    let limited = if moe.group_limit > 0 && moe.group_limit < 8 && moe.experts.is_multiple_of(8) {
        snippet!(", num_expert_groups=8, num_limited_groups={}", moe.group_limit)
    } else {
        Snippet::fixed("")
    };
    let (experts, top_k) = (moe.experts, moe.top_k);
    text.line(snippet!("\ndef _moe():\n    return make_moe_config(\n        num_experts={},", experts));
    if request.costs.problem.model().details.router.bias == Some(false) {
        text.fixed("        load_balance_coeff=None,");
    }
    text.fixed("        router=make_router_config(");
    text.line(snippet!(
        "            dim=DIM, num_experts={}, gate_param_init=INIT, top_k={}{}{}\n        ),",
        experts,
        top_k,
        limited,
        score(moe, &request.costs.problem.model().details.router)
    ));
    text.fixed("        routed_experts=make_routed_experts_config(\n            dim=DIM,");
    text.line(snippet!("            hidden_dim={},\n            num_experts={},", moe.intermediate, experts));
    text.line(snippet!("            top_k={},\n            param_init=EXPERTS,", top_k));
    text.line(snippet!(
        "            comm_backend={},\n        ),\n        shared_experts={},\n    )\n",
        backend,
        shared
    ));
}

/// Name of a schedule in torch.distributed.pipelining.
const fn schedule(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::GPipe | Schedule::Naive => "GPipe",
        Schedule::OneFOneB | Schedule::ZbH1 | Schedule::ZbH2 => "1F1B",
        Schedule::Interleaved { .. } => "Interleaved1F1B",
        Schedule::LoopedBfs { .. } => "LoopedBFS",
        Schedule::ZbV => "ZBVZeroBubble",
        Schedule::DualPipeV | Schedule::DualPipe => "DualPipeV",
    }
}

/// Whether steps are captured as CUDA graphs: where the prediction assumed it, and neither pipelines nor experts that are
/// reached through the host's counts forbid it.
///
/// Source: [torchtitan] `torchtitan/trainer.py` (`Trainer.Config.__post_init__`), release 0.3.0.
fn captures(request: &Request) -> bool {
    let (problem, plan) = (request.costs.problem, &request.evaluation.plan);
    problem.stack().cuda_graphs && plan.layout.pp == 1 && !problem.model().is_moe()
}

/// Assignments to the configuration that the plan decides.
fn settings(request: &Request) -> Vec<Snippet<Python>> {
    let (costs, plan) = (request.costs, &request.evaluation.plan);
    let (workload, stack) = (costs.problem.workload(), costs.problem.stack());
    let Layout { tp, cp, pp, dp, ep, .. } = plan.layout;
    let shard = if plan.zero == ZeroStage::Zero { 1 } else { plan.dense_shards() / cp };
    let local = if pp > 1 { workload.global_batch / dp } else { plan.micro_batch };
    let mut lines = vec![
        snippet!("training.seq_len = {}", workload.seq_len),
        snippet!("training.global_batch_size = {}", workload.global_batch),
        snippet!("training.local_batch_size = {}", local),
        Snippet::fixed("training.mixed_precision_param = \"bfloat16\""),
        Snippet::fixed("training.mixed_precision_reduce = \"float32\""),
        snippet!("training.disable_cuda_graphs = {}", !captures(request)),
        snippet!("parallelism.data_parallel_replicate_degree = {}", dp / shard),
        snippet!("parallelism.data_parallel_shard_degree = {}", shard),
        snippet!("parallelism.tensor_parallel_degree = {}", tp),
        snippet!("parallelism.context_parallel_degree = {}", cp),
        snippet!("parallelism.pipeline_parallel_degree = {}", pp),
        snippet!("parallelism.expert_parallel_degree = {}", ep),
    ];
    if tp > 1 {
        lines.push(snippet!("parallelism.enable_sequence_parallel = {}", plan.sequence_parallel));
    }
    if plan.zero == ZeroStage::Three {
        let when = if plan.reshard_after_forward { "always" } else { "never" };
        lines.push(snippet!("parallelism.fsdp_reshard_after_forward = {}", when));
    }
    if pp > 1 {
        let counts = request.layers_of_chunks();
        let counts = Snippet::joined(counts.into_iter().map(Snippet::from), ", ");
        lines.push(snippet!("parallelism.pipeline_parallel_schedule = {}", schedule(plan.schedule)));
        lines.push(snippet!("parallelism.pipeline_parallel_microbatch_size = {}", plan.micro_batch));
        lines.push(snippet!("parallelism.module_fqns_per_model_part = stages([{}])", counts));
    }
    lines.push(match plan.recompute {
        Recompute::Full => Snippet::fixed("activation_checkpoint = FullAC.Config()"),
        Recompute::PerOp => Snippet::fixed("activation_checkpoint = SelectiveAC.Config()"),
        Recompute::None | Recompute::EveryOther | Recompute::FirstLayers(_) | Recompute::Selective(_) => {
            Snippet::fixed("activation_checkpoint = None")
        }
    });
    if stack.memory.loss_chunks > 1 {
        let chunks = stack.memory.loss_chunks;
        lines.push(snippet!("loss = ChunkedLossWrapper.Config(loss_fn=config.loss, num_chunks={})", chunks));
    }
    lines.push(snippet!("compile.enable = {}", stack.transformer_engine));
    if tp > 1 && tp <= costs.problem.cluster().scale_up.gpus && stack.overlap.tp > 0.0 {
        lines.push(Snippet::fixed("compile.enable_async_tensor_parallel = True"));
    }
    lines
}

/// Variables of a training run.
const VARIABLES: &[RequiredVariable] = &[
    ("DATASET", "a dataset that torchtitan knows by name, such as c4"),
    ("DATA", "its folder, or its name on the Hugging Face hub, such as allenai/c4"),
    ("TOKENIZER", "a folder with a tokenizer of Hugging Face"),
    ("SAVE", "a folder for checkpoints, from which a run goes on"),
    ("STEPS", "the number of steps"),
];

/// Settings of a training run, which take the variables.
const TRAINING: &str = "    config.dataloader = HuggingFaceTextDataLoader.Config(
        dataset=os.environ.get(\"DATASET\"), dataset_path=os.environ.get(\"DATA\")
    )
    config.hf_assets_path = os.environ.get(\"TOKENIZER\")
    config.training.steps = int(os.environ.get(\"STEPS\"))
    config.checkpoint.enable = True
    config.checkpoint.folder = os.environ.get(\"SAVE\")";

fn script(request: &Request) -> EmittedFile {
    let script = TorchrunScript {
        framework: &LIMITS,
        comments: &["Run it in this folder, once a node; under Slurm: sbatch launch.sbatch"],
        variables: if request.steps.is_some() { &[] } else { VARIABLES },
        marked: None,
        exports: "export PYTHONPATH=\"$PWD${PYTHONPATH:+:$PYTHONPATH}\"\n",
        program: snippet!("-m torchtitan.train --module {} --config train \"$@\"", MODULE),
    };
    script.file(request, "torchtitan.sh")
}
