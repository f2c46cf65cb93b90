"""Megatron-Core: GPTModel under its DistributedDataParallel and distributed optimizer."""

import contextlib
import pathlib
import sys
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F

from cuda_kernels import FusedRmsNorm
from job import Job

sys.path.append(str(pathlib.Path(__file__).parents[1] / "training"))
from random_states import without_random_states


def megatron(size, plan, world):
    """Megatron-Core: GPTModel, DistributedDataParallel, the distributed optimizer. Transformer Engine does not load without CUDA: its
    layers are stood for by Megatron's own (linear, embedding, loss) and by stubs that keep what the fused kernels keep: FlashAttention,
    RMSNorm, SwiGLU (its input), weight gradients added in the product itself."""
    from megatron.core import optimizer as megatron_optimizer, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, param_and_grad_buffer
    from megatron.core.fusions import fused_bias_swiglu
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_submodules
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer, optimizer as update
    from megatron.core.tensor_parallel import layers, random
    from megatron.core.transformer import ModuleSpec, TransformerConfig
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_layer import TransformerLayer

    class FusedAdam(torch.optim.AdamW):
        def __init__(self, *args, adam_w_mode=True, **kwargs):
            super().__init__(*args, fused=True, **kwargs)

    class NoWork(contextlib.nullcontext):
        def __init__(self, *_, **__):
            super().__init__(self)

        def wait(self):
            pass

    def gathered_objects(out, mine, group=None):
        out[:] = [mine] * len(out)

    def on_cuda(tensor, *args, **kwargs):
        return kind(tensor, *args, **kwargs) if args or kwargs else kind(tensor).replace("torch.", "torch.cuda.")

    kind, nothing = torch.Tensor.type, lambda *_, **__: None
    torch.Tensor.type = on_cuda
    dist.all_gather_object = gathered_objects
    cuda = {"current_device": lambda: torch.device("cpu"), "current_stream": lambda *_: torch.cpu.current_stream()}
    cuda |= {"Stream": lambda *_, **__: torch.cpu.Stream(), "stream": torch.cpu.stream, "synchronize": nothing}
    for name, value in (cuda | {"is_current_stream_capturing": lambda *_: False}).items():
        setattr(torch.cuda, name, value)
    # Kernels that write in place, and collectives, which do nothing here.
    layers.fused_weight_gradient_mlp_cuda = types.SimpleNamespace(wgrad_gemm_accum_fp32=nothing)
    layers._grad_accum_fusion_available = True
    fused_bias_swiglu.swiglu = lambda y: y.new_empty(*y.shape[:-1], y.shape[-1] // 2)
    fused_bias_swiglu.swiglu_back = lambda grad, y: torch.empty_like(y)
    param_and_grad_buffer._coalescing_manager = NoWork
    param_and_grad_buffer.dist_all_gather_func = param_and_grad_buffer.dist_reduce_scatter_func = nothing
    megatron_optimizer.Adam, megatron_optimizer.USING_PYTORCH_OPTIMIZER = FusedAdam, False
    # What reads values.
    update.get_grad_norm_fp32, update.clip_grad_by_total_norm_fp32 = lambda *_, **__: 1.0, nothing
    without_random_states(random)
    random._get_cuda_rng_state = random._set_cuda_rng_state = nothing

    class Flash(MegatronModule):
        def __init__(self, config, *_, **__):
            super().__init__(config)

        def forward(self, query, key, value, *_, **__):
            query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))
            out = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True, False)[0]
            return out.permute(2, 0, 1, 3).flatten(2)

    class Norm(torch.nn.Module):
        def __init__(self, config, hidden_size, eps=1e-5, **_):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
            self.weight.sequence_parallel = config.sequence_parallel

        def forward(self, x):
            return FusedRmsNorm.apply(x, self.weight)

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=plan.tp, create_gloo_process_groups=False)
    full = plan.ac == "full"
    config = TransformerConfig(
        num_layers=size.layers,
        hidden_size=size.hidden,
        ffn_hidden_size=size.ffn,
        num_attention_heads=size.heads,
        num_query_groups=size.kv_heads,
        kv_channels=size.head_dim,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=plan.tp,
        sequence_parallel=plan.tp > 1,
        bf16=True,
        params_dtype=torch.bfloat16,
        perform_initialization=False,
        bias_activation_fusion=True,
        gradient_accumulation_fusion=True,
        recompute_granularity="full" if full else None,
        recompute_method="uniform" if full else None,
        recompute_num_layers=1 if full else None,
        cross_entropy_loss_fusion=plan.loss == "fused",
        qk_layernorm=size.qk_norm,
    )
    parts = get_gpt_layer_local_submodules(normalization="RMSNorm", qk_layernorm=size.qk_norm)
    attention = parts.self_attention.submodules
    attention.core_attention, parts.input_layernorm, parts.pre_mlp_layernorm = Flash, Norm, Norm
    if size.qk_norm:
        attention.q_layernorm = attention.k_layernorm = Norm
    layer = ModuleSpec(module=TransformerLayer, submodules=parts)
    block = TransformerBlockSubmodules(layer_specs=[layer] * size.layers, layer_norm=Norm)

    def build():
        model = GPTModel(
            config,
            block,
            size.vocab,
            plan.seq,
            position_embedding_type="rope",
            share_embeddings_and_output_weights=size.tied,
        )
        sharing = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
        replicated = DistributedDataParallel(config, sharing, model)
        settings = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True, clip_grad=0.0)
        optimizer = get_megatron_optimizer(settings, [replicated], use_gloo_process_groups=False)
        chained = optimizer.chained_optimizers[0]
        tokens, labels, positions = (torch.empty(plan.mbs, plan.seq, dtype=torch.long) for _ in range(3))

        def finish():
            replicated.finish_grad_sync()
            optimizer.step()
            replicated.zero_grad_buffer()
            optimizer.zero_grad()

        buffers = [(buffer.grad_data, "gradients") for buffer in replicated.buffers]
        masters = [(x, "optimizer") for group in chained.shard_fp32_from_float16_groups for x in group]
        return Job(
            replicated,
            model.output_layer,
            types.SimpleNamespace(state=chained.optimizer.state),
            lambda: replicated(tokens, positions, None, labels=labels),
            lambda losses: losses.float().mean(),
            finish=finish,
            tenants=buffers + masters,
        )

    return build
