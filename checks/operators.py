#!/usr/bin/env python3
"""Operators that Megatron core runs for one layer with experts, compared with checks/operators.tsv.

`checks/run.sh` runs it, in the environment of the frameworks.

The engine multiplies the host time of a layer by these counts (crates/engine/src/cost/operators.rs). A layer of Megatron's own code runs
on tensors of the CPU, small and on one rank; a mode of PyTorch sees each operator. Two columns are those from the dispatch of
tokens on, which CUDA graphs of modules leave to the host, and two those of attention, with the norm before it and the sum behind it,
which are in the graphs where `--cuda-graph-modules` lists `attn`. Views, and new tensors without a kernel, do not count.
Norms, attention and each grouped GEMM of the experts are one operator each way, as their fused kernels are.
"""

import collections, os, pathlib, sys

import torch, torch.distributed as dist, torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).parent / "training"))
import on_cpu
import random_states

TABLE = pathlib.Path(__file__).with_suffix(".tsv")
WITHOUT_KERNEL = set(
    "view _unsafe_view transpose permute expand slice select split split_with_sizes unsqueeze squeeze detach t as_strided alias "
    "empty empty_like new_empty empty_strided new_empty_strided".split()
)
SIGMOID = {
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_topk_scaling_factor": 2.5,
    "moe_router_load_balancing_type": "seq_aux_loss",
}
# Each part of a layer that changes the number of operators, by its settings.
LAYERS = {
    "grouped queries": {},
    "grouped queries, qk norms": {"qk_layernorm": True},
    "latent attention": {"latent": True},
    "shared experts": {"moe_shared_expert_intermediate_size": 32},
    "latent experts": {"moe_latent_size": 32},
    "sigmoid scores, groups": SIGMOID | {"moe_router_num_groups": 2, "moe_router_group_topk": 1},
    "DeepSeek-V3": SIGMOID
    | {
        "latent": True,
        "moe_shared_expert_intermediate_size": 32,
        "moe_router_num_groups": 2,
        "moe_router_group_topk": 1,
    },
}


# Kernels of Transformer Engine and of Megatron's own that Megatron-Bridge's performance recipes choose.
FUSIONS = "moe_permute_fusion", "apply_rope_fusion", "moe_router_fusion"


class Counter(TorchDispatchMode):
    """Counts the operators that have a kernel."""

    def __init__(self):
        super().__init__()
        self.seen = collections.Counter()

    def __torch_dispatch__(self, function, _, args=(), kwargs=None):
        self.seen[function._schema.name.removeprefix("aten::")] += 1
        return function(*args, **(kwargs or {}))

    def total(self):
        return sum(count for name, count in self.seen.items() if name not in WITHOUT_KERNEL)


class OneKernel(torch.autograd.Function):
    """A fused kernel: results of the given shapes, one operator forward and one backward."""

    @staticmethod
    def forward(ctx, shapes, *inputs):
        ctx.save_for_backward(*inputs)
        first, *others = shapes
        return torch.ones(first), *(torch.empty(shape) for shape in others)

    @staticmethod
    def backward(ctx, *_):
        first, *others = ctx.saved_tensors
        return None, torch.ones(first.shape), *(torch.empty(x.shape) for x in others)


def kernel(like, *inputs):
    """One kernel whose result is shaped like a tensor or has a given shape."""
    return OneKernel.apply([getattr(like, "shape", like)], *inputs)[0]


class Map(torch.nn.Module):
    """A linear map that every rank has whole."""

    def __init__(self, inputs, outputs, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(outputs, inputs))

    def forward(self, x):
        return F.linear(x, self.weight), None


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))

    def forward(self, x):
        return kernel(x, x, self.weight)


class Experts(torch.nn.Module):
    """Two grouped GEMMs, and between them the activation function with the weights of tokens."""

    def __init__(self, local, config, **_):
        super().__init__()
        self.width, token = config.moe_ffn_hidden_size, config.moe_latent_size or config.hidden_size
        self.up, self.down = (
            torch.nn.Parameter(torch.ones(local, *shape)) for shape in ((token, 2 * self.width), (self.width, token))
        )

    def forward(self, tokens, _, weights):
        count = tokens.shape[0]
        product = kernel((count, 2 * self.width), tokens, self.up)
        return kernel(tokens, kernel((count, self.width), product, weights), self.down), None


class Attention(torch.nn.Module):
    def __init__(self, *_, **__):
        super().__init__()

    def forward(self, query, key, value, *_, **__):
        return kernel((*query.shape[:-1], value.shape[-1]), query, key, value).flatten(2)


def fuse():
    """Stand-ins for the kernels of Transformer Engine and of Megatron that its fusions call."""
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer import multi_latent_attention as latent
    from megatron.core.transformer.moe import moe_layer, moe_utils

    moe_layer.HAVE_TE, moe_layer.TELinear = True, Map

    def permute(tokens, probs, routing_map, num_out_tokens):
        out, weights = OneKernel.apply([(num_out_tokens, tokens.shape[1]), (num_out_tokens,)], tokens, probs)
        return out, weights, routing_map

    def top_k(logits, topk, **_):
        return kernel(logits, logits), torch.rand(logits.shape).argsort(-1) < topk

    moe_utils.HAVE_TE, moe_utils.fused_permute_and_pad_with_probs = True, None
    moe_utils.is_te_min_version = lambda *_, **__: True
    moe_utils.fused_permute_with_probs = permute
    moe_utils.fused_unpermute = lambda tokens, *_, restore_shape, **__: kernel(restore_shape, tokens)
    moe_utils.fused_sort_chunks_by_index = lambda tokens, *_: kernel(tokens, tokens)
    moe_utils.fused_sort_chunks_by_index_with_probs = lambda tokens, probs, *_: OneKernel.apply(
        [tokens.shape, probs.shape], tokens, probs
    )
    moe_utils.fused_topk_with_score_function = top_k
    moe_utils.fused_compute_score_for_moe_aux_loss = lambda logits, topk, *_, **__: top_k(logits, topk)[::-1]
    moe_utils.fused_moe_aux_loss = lambda probs, **_: kernel((), probs)
    rope_utils.fused_apply_rotary_pos_emb = lambda tensor, *_, **__: kernel(tensor, tensor)
    latent.fused_apply_mla_rope_for_q = lambda query, *_: kernel(query, query)
    latent.fused_apply_mla_rope_for_kv = lambda kv, position, cos, sin, rope, nope, value, *_: OneKernel.apply(
        [(*kv.shape[:-1], nope + rope), (*kv.shape[:-1], value)], kv, position
    )


def prepare():
    """One rank on the CPU, under the names of CUDA."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29741")}
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random

    fuse()
    on_cpu.install()  # after the imports: Dynamo lists the functions of `torch.cuda` once
    dist.init_process_group("gloo", rank=0, world_size=1)
    random_states.without_random_states(random)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)


class Borders:
    """Operators that each pass has run at the borders of CUDA graphs: where attention ends forward, and where tokens are dispatched."""

    def __init__(self):
        from megatron.core.transformer.moe.moe_layer import MoELayer
        from megatron.core.transformer.transformer_layer import TransformerLayer

        self.counters, self.attention, self.dispatch = [], {}, {}
        self.methods = (TransformerLayer, "_forward_attention"), (MoELayer, "dispatch")
        self.own = [getattr(owner, name) for owner, name in self.methods]

    def passed(self, border, tensor):
        """Notes the operators so far forward, and those backward until the gradient of the tensor is known."""
        forward, backward = self.counters
        border["forward"] = forward.total()
        tensor.register_hook(lambda _: border.update(backward=backward.total()))

    def __enter__(self):
        attend, dispatch = self.own

        def attended(layer, *args, **kwargs):
            out = attend(layer, *args, **kwargs)
            self.passed(self.attention, out[0])
            return out

        def dispatched(layer, hidden, probs):
            self.passed(self.dispatch, hidden)
            return dispatch(layer, hidden, probs)

        for (owner, name), method in zip(self.methods, (attended, dispatched)):
            setattr(owner, name, method)
        return self

    def __exit__(self, *_):
        for (owner, name), method in zip(self.methods, self.own):
            setattr(owner, name, method)


def count(settings):
    """Operators of the second forward and backward pass of a layer, as the first makes tables and gradients: all of them, those from the
    dispatch of tokens on, and those of attention."""
    from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig
    from megatron.core.transformer.spec_utils import build_module

    latent, settings = settings.get("latent", False), {k: v for k, v in settings.items() if k != "latent"}
    norms = latent or settings.get("qk_layernorm", False)
    shared = (
        dict(
            num_layers=1,
            hidden_size=64,
            ffn_hidden_size=128,
            num_attention_heads=4,
            gated_linear_unit=True,
            activation_func=F.silu,
            add_bias_linear=False,
            normalization="RMSNorm",
            hidden_dropout=0.0,
            attention_dropout=0.0,
            bias_activation_fusion=True,
            params_dtype=torch.float32,
            num_moe_experts=4,
            moe_router_topk=2,
            moe_ffn_hidden_size=32,
            moe_token_dispatcher_type="alltoall",
            moe_router_load_balancing_type="aux_loss",
            moe_aux_loss_coeff=1e-3,
        )
        | settings
        | {"qk_layernorm": norms}
    )
    if latent:
        config = MLATransformerConfig(
            **shared,
            multi_latent_attention=True,
            q_lora_rank=32,
            kv_lora_rank=16,
            qk_head_dim=16,
            qk_pos_emb_head_dim=8,
            v_head_dim=16,
        )
    else:
        config = TransformerConfig(**shared, num_query_groups=2, kv_channels=16)
    spec = get_gpt_layer_local_spec(
        num_experts=4, qk_layernorm=norms, multi_latent_attention=latent, normalization="RMSNorm"
    )
    parts, attention = spec.submodules, spec.submodules.self_attention.submodules
    attention.core_attention, parts.input_layernorm, parts.pre_mlp_layernorm = Attention, Norm, Norm
    for name in ("q_layernorm", "k_layernorm", "kv_layernorm"):
        if norms and hasattr(attention, name):
            setattr(attention, name, Norm)
    parts.mlp.keywords["submodules"].experts = Experts
    layer = build_module(spec, config=config, layer_number=1).train()
    for fusion in FUSIONS:
        setattr(config, fusion, True)  # constructors ask for Transformer Engine and CUDA
    hidden = torch.randn(32, 1, 64, requires_grad=True)
    rope = None if latent else RotaryEmbedding(16, 1.0, use_cpu_initialization=True)(32)
    layer(hidden, attention_mask=None, rotary_pos_emb=rope)[0].sum().backward()
    with Borders() as borders:
        borders.counters = forward, backward = Counter(), Counter()
        with forward:
            out = layer(hidden, attention_mask=None, rotary_pos_emb=rope)[0]
        total = out.sum()
        with backward:
            total.backward()
    attention, dispatch = borders.attention, borders.dispatch
    return (
        *(forward.total(), backward.total()),
        *(forward.total() - dispatch["forward"], dispatch["backward"]),
        *(attention["forward"], backward.total() - attention["backward"]),
    )


def main():
    prepare()
    parts = (
        "forward",
        "backward",
        "forward from dispatch",
        "backward from dispatch",
        "forward of attention",
        "backward of attention",
    )
    found = ["\t".join(("layer", *parts))]
    found += ["\t".join(map(str, (name, *count(settings)))) for name, settings in LAYERS.items()]
    if TABLE.exists() and TABLE.read_text().splitlines() == found:
        print(f"{len(LAYERS)} layers have as many operators as {TABLE.name} says")
        return 0
    print("\n".join(found))
    print(
        f"counts differ from {TABLE}: if they are right, write the lines above there and update crates/engine/src/cost/operators.rs",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
