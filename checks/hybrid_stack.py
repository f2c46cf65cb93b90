"""Megatron core's hybrid stack without Transformer Engine and without a GPU: layers with all their parameters, on any device."""

import contextlib
import sys
import types
from functools import partial

import torch
import torch.nn as nn


class NoCoreAttention(nn.Module):
    """Stands in for core attention (it has no parameters; the local one refuses MLA and context parallelism)."""

    def __init__(self, *a, **k):
        super().__init__()


def latent_projections():
    """Linear layers in place of Transformer Engine's, which alone project into the latent space of experts: as many parameters."""
    import megatron.core.transformer.moe.moe_layer as ML

    class Projection(nn.Linear):
        def __init__(self, width_in, width_out, bias, **_):
            super().__init__(width_in, width_out, bias=bias)

    ML.HAVE_TE, ML.TELinear = True, Projection


def hybrid_stack(config):
    """Megatron's hybrid stack of its own unfused parts; mamba_ssm's kernels (they need a GPU) stand aside, parameters do not."""

    class GatedNorm(nn.Module):
        def __init__(self, width, **k):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(width))

    import megatron.core.ssm.mamba_mixer as MM

    MM.HAVE_MAMBA_SSM, MM.RMSNormGated, MM.ExtendedRMSNorm = True, GatedNorm, GatedNorm
    MM.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)  # seeds of a GPU
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add as bda
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel import ColumnParallelLinear as Columns, RowParallelLinear as Rows
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm as Norm
    from megatron.core.transformer.transformer_layer import (
        MoETransformerLayer,
        TransformerLayer,
        TransformerLayerSubmodules as Parts,
    )

    sys.modules[HybridStack.__module__].TENorm = Norm
    mixer = ModuleSpec(module=MM.MambaMixer, submodules=MM.MambaMixerSubmodules(in_proj=Columns, out_proj=Rows))
    attention = ModuleSpec(
        module=SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(linear_qkv=Columns, core_attention=NoCoreAttention, linear_proj=Rows),
    )
    mlp = partial(MLP.as_mlp_submodule, submodules=MLPSubmodules(linear_fc1=Columns, linear_fc2=Rows))
    moe = (
        get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts, moe_grouped_gemm=False)
        if config.num_moe_experts
        else None
    )
    return ModuleSpec(
        module=HybridStack,
        submodules=HybridStackSubmodules(
            mamba_layer=ModuleSpec(
                module=MambaLayer, submodules=MambaLayerSubmodules(norm=Norm, mixer=mixer, mamba_bda=bda)
            ),
            attention_layer=ModuleSpec(
                module=TransformerLayer,
                submodules=Parts(input_layernorm=Norm, self_attention=attention, self_attn_bda=bda),
            ),
            mlp_layer=ModuleSpec(module=MLPLayer, submodules=Parts(pre_mlp_layernorm=Norm, mlp=mlp, mlp_bda=bda)),
            moe_layer=ModuleSpec(
                module=MoETransformerLayer, submodules=Parts(pre_mlp_layernorm=Norm, mlp=moe, mlp_bda=bda)
            ),
        ),
    )


# Settings that change no parameter, and of which each would need Transformer Engine or a GPU.
WITHOUT_A_GPU = {
    "use_cpu_initialization": True,
    "perform_initialization": False,
    "transformer_impl": "local",
    "sequence_parallel": False,
    "fp8": None,
    "fp4": None,
    "fp8_param": False,
    "fp4_param": False,
    "tp_comm_overlap": False,
    "apply_rope_fusion": False,
    "gradient_accumulation_fusion": False,
    "persist_layer_norm": False,
    "masked_softmax_fusion": False,
    "cross_entropy_loss_fusion": False,
    "moe_grouped_gemm": False,
    "moe_permute_fusion": False,
    "moe_router_fusion": False,
    "moe_token_dispatcher_type": "alltoall",
    "cuda_graph_impl": "none",
    "cuda_graph_modules": [],
    "recompute_granularity": None,
    "recompute_method": None,
    "recompute_num_layers": None,
    "recompute_modules": None,
    "cpu_offloading": False,
    "cpu_offloading_num_layers": 0,
    "init_model_with_meta_device": True,
}


def stages(provider):
    """Layers and parameters of each pipeline rank of Megatron-Bridge's provider of hybrids, with tensors and experts whole."""
    import megatron.core.parallel_state as groups
    import torch.distributed as dist
    from megatron.core.process_groups_config import ProcessGroupCollection
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda self, *a, **k: self
    torch.cuda.Stream = torch.cuda.Event = types.SimpleNamespace  # side streams of mixtures
    for name, value in WITHOUT_A_GPU.items():
        setattr(provider, name, value)
    for degree in ("tensor_model", "context", "expert_model", "expert_tensor"):
        setattr(provider, f"{degree}_parallel_size", 1)
    if getattr(provider, "moe_latent_size", None):
        latent_projections()
    provider.hybrid_stack_spec = hybrid_stack(provider)
    made = []
    for rank in range(provider.pipeline_model_parallel_size):
        if dist.is_initialized():
            groups.destroy_model_parallel()
            dist.destroy_process_group()
        ranks = provider.pipeline_model_parallel_size
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
        groups.initialize_model_parallel(pipeline_model_parallel_size=ranks, create_gloo_process_groups=False)
        provider._pg_collection = ProcessGroupCollection.use_mpu_process_groups()
        with torch.device("meta"):
            model = provider.provide()
        made.append({"layers": len(model.decoder.layers), "params": sum(p.numel() for p in model.parameters())})
    return made
