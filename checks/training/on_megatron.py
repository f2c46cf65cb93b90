#!/usr/bin/env python3
"""Two optimizer steps of an emitted Megatron-LM launch script, on gloo ranks: Megatron's own parser, groups, model, data parallelism,
distributed optimizer, `train_step` and pipeline schedules. Started once a rank, with the environment of torchrun.

Stood in for: Transformer Engine's layers by Megatron's local ones, its attention (which alone knows context parallelism) by
`Attention` below, norms of a sequence-parallel region by PyTorch's, fused Adam by PyTorch's; experts run one after another.
"""

import contextlib
import math
import os
import sys
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import fmt_common as common
import on_cpu
import random_states
import torch
import torch.distributed as dist
import torch.nn.functional as F

import megatron.core.optimizer as optimizers
import megatron.core.utils as core_utils
import megatron.training.training as training
from megatron.core.models.gpt import GPTModel, gpt_layer_specs as specs
from packaging.version import Version

on_cpu.install()  # behind the imports: Dynamo lists the functions of `torch.cuda` once

STEPS = 2
core_utils._te_version = Version("2.14.0")  # the parser asks for it; none of its code is run

# What a CPU cannot run, and what takes its place; none of these is a degree, a batch, a schedule or a way to shard.
INSTEAD = dict(
    use_cpu_initialization=True,
    init_model_with_meta_device=False,
    transformer_impl="local",
    tp_comm_overlap=False,
    apply_rope_fusion=False,
    gradient_accumulation_fusion=False,
    no_persist_layer_norm=True,
    persist_layer_norm=False,
    masked_softmax_fusion=False,
    bias_swiglu_fusion=False,
    bias_gelu_fusion=False,
    bias_dropout_fusion=False,
    cross_entropy_loss_fusion=False,
    moe_permute_fusion=False,
    moe_router_fusion=False,
    moe_grouped_gemm=False,
    moe_enable_deepep=False,
    cuda_graph_impl="none",
    use_te_activation_func=False,
    moe_shared_expert_overlap=False,
    overlap_moe_expert_parallel_comm=False,
    delay_wgrad_compute=False,
    distributed_backend="gloo",
    fine_grained_activation_offloading=False,
    cpu_offloading=False,
    cpu_offloading_num_layers=0,
    check_for_nan_in_loss_and_grad=False,
    rerun_mode="disabled",
    use_precision_aware_optimizer=False,
    main_params_dtype=torch.float32,
    exp_avg_dtype=torch.float32,
    exp_avg_sq_dtype=torch.float32,
)


class Gathered(torch.autograd.Function):
    """Tensors of all ranks of a group, one behind another; gradients are summed over them."""

    @staticmethod
    def forward(ctx, own, group):
        ctx.group, ctx.length = group, own.shape[0]
        out = own.new_empty(own.shape[0] * dist.get_world_size(group), *own.shape[1:])
        dist.all_gather_into_tensor(out, own.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient.narrow(0, dist.get_rank(ctx.group) * ctx.length, ctx.length), None


class Attention(torch.nn.Module):
    """Causal attention by PyTorch. Context parallelism: keys and values of all ranks of its group, each of which holds the chunks
    `rank` and `2·cp − 1 − rank` of the sequence, as Megatron deals them out."""

    def __init__(
        self,
        config,
        layer_number=None,
        attn_mask_type=None,
        attention_type=None,
        attention_dropout=None,
        softmax_scale=None,
        k_channels=None,
        v_channels=None,
        cp_comm_type=None,
        pg_collection=None,
        **_,
    ):
        super().__init__()
        self.scale, self.group = softmax_scale, pg_collection.cp if pg_collection is not None else None

    def forward(self, query, key, value, *_, **__):
        size = dist.get_world_size(self.group) if self.group is not None else 1
        length = query.shape[0] * size
        place = torch.arange(length).chunk(2 * size)
        places = [torch.cat((place[rank], place[2 * size - 1 - rank])) for rank in range(size)]
        if size > 1:
            key, value = (Gathered.apply(x, self.group) for x in (key, value))
        mine = places[dist.get_rank(self.group) if size > 1 else 0]
        mask = mine[:, None] >= torch.cat(places)[None, :]
        query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.scale, enable_gqa=query.shape[1] != key.shape[1]
        )
        return out.permute(2, 0, 1, 3).flatten(2)


def stand_in():
    """Replaces parts of Megatron that only a GPU runs."""
    import megatron.core.transformer.torch_norm as norms
    from megatron.core.distributed import param_and_grad_buffer as buffers
    from megatron.core.tensor_parallel import random

    def norm(cls, config, hidden_size, eps=1e-5, **_):
        made = (torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm)(hidden_size, eps=eps)
        for parameter in made.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return made

    norms.WrappedTorchNorm.__new__ = norm
    buffers._coalescing_manager = on_cpu.Coalesced
    buffers.dist_all_gather_func = on_cpu.coalescable(dist.all_gather_into_tensor)
    buffers.dist_reduce_scatter_func = on_cpu.coalescable(dist.reduce_scatter_tensor)
    random_states.without_random_states(random)
    random.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
    random.fp8_autocast = lambda **_: contextlib.nullcontext()
    random.activation_recompute_forward = lambda **_: contextlib.nullcontext()
    random._get_cuda_rng_state = lambda *_, **__: None
    random._set_cuda_rng_state = lambda *_, **__: None
    named = {
        torch.bfloat16: "torch.cuda.BFloat16Tensor",
        torch.float16: "torch.cuda.HalfTensor",
        torch.float32: "torch.cuda.FloatTensor",
    }
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *args, **kwargs: (
        kind(self, *args, **kwargs) if args or kwargs else named.get(self.dtype, kind(self))
    )


def launched(path):
    """Arguments that a launch script gives to the program."""
    call = [call for call in common.capture_shell(path) if call["cmd"] == "torchrun"][-1]
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = call["env"].get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    return common.split_torchrun(call["argv"])[2]


def arguments(words):
    """Megatron's own parsing of arguments, and the names of those that `INSTEAD` changed."""
    import megatron.training.arguments as parser

    sys.argv = ["pretrain_gpt.py", *words]
    args = parser.parse_args()
    parser.validate_args(args)
    changed = sorted(
        name for name, value in INSTEAD.items() if hasattr(args, name) and getattr(args, name) not in (value, None)
    )
    for name, value in INSTEAD.items():
        if hasattr(args, name):
            setattr(args, name, value)
    if "moe_act" in (args.recompute_modules or []):  # of grouped products
        changed.append("recompute_modules")
        args.recompute_modules = [name for name in args.recompute_modules if name != "moe_act"] or None
        args.recompute_granularity = args.recompute_granularity if args.recompute_modules else None
    if args.moe_token_dispatcher_type == "flex":
        changed.append("moe_token_dispatcher_type")
        args.moe_token_dispatcher_type = "alltoall"
    return args, changed


def groups(args):
    """Process groups of Megatron, of the sizes that it parsed."""
    import megatron.core.parallel_state as state

    dist.init_process_group("gloo")
    state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        create_gloo_process_groups=False,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
    )
    return state


def provider(args, config):
    """Builder of one chunk of the model."""

    def attend(layer):
        own = layer.submodules.self_attention.submodules
        if hasattr(own, "core_attention"):
            own.core_attention = Attention

    def build(pre_process=True, post_process=True, vp_stage=None, config=config, pg_collection=None):
        config = config or own
        if args.num_experts:
            spec = specs.get_gpt_decoder_block_spec(
                config, use_transformer_engine=False, normalization=args.normalization, vp_stage=vp_stage
            )
        else:
            spec = specs.get_gpt_layer_local_spec(
                qk_layernorm=args.qk_layernorm,
                multi_latent_attention=args.multi_latent_attention,
                normalization=args.normalization,
            )
        for layer in getattr(spec, "layer_specs", None) or [spec]:
            attend(layer)
        mtp = None
        if args.mtp_num_layers:
            last = specs.get_gpt_decoder_layer_specs(config, False, args.normalization)[-1]
            attend(last)
            mtp = specs.get_gpt_mtp_block_spec(
                config=config, spec=last, use_transformer_engine=False, vp_stage=vp_stage
            )
        return GPTModel(
            config,
            spec,
            args.padded_vocab_size,
            args.max_position_embeddings,
            pre_process=pre_process,
            post_process=post_process,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            mtp_block_spec=mtp,
            position_embedding_type=args.position_embedding_type,
            rotary_percent=args.rotary_percent,
            vp_stage=vp_stage,
            pg_collection=pg_collection,
        )

    own = config
    return build


def train(words):
    stand_in()
    args, changed = arguments(words)
    args.lr_warmup_iters = 0  # a first step at a rate of zero moves nothing
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
    args.padded_vocab_size = math.ceil(args.vocab_size / multiple) * multiple
    state = groups(args)
    torch.manual_seed(args.seed)
    from megatron.training import global_vars
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.rerun_state_machine import RerunMode, initialize_rerun_state_machine

    global_vars.set_global_variables(args, build_tokenizer=False)
    initialize_rerun_state_machine(mode=RerunMode("disabled"))
    if args.num_experts:
        from megatron.core.transformer.moe.router import MoEAuxLossAutoScaler

        MoEAuxLossAutoScaler.set_loss_scale(torch.ones(1))
    config = core_transformer_config_from_args(args)
    config.persist_layer_norm = config.cross_entropy_loss_fusion = False
    model = training.get_model(provider(args, config), config=config)
    settings, _ = training.get_megatron_optimizer_config(args)
    settings.timers = global_vars.get_timers()
    optimizer = optimizers.get_megatron_optimizer(settings, model, use_gloo_process_groups=False)
    scheduler = training.get_optimizer_param_scheduler(optimizer)
    config = model[0].config if hasattr(model[0], "config") else config
    if not args.use_megatron_fsdp and args.overlap_grad_reduce:  # as `train()` sets them
        config.no_sync_func = [chunk.no_sync for chunk in model] if len(model) > 1 else model[0].no_sync
    if args.overlap_param_gather and args.align_param_gather:
        config.param_sync_func = (
            [chunk.start_param_sync for chunk in model] if len(model) > 1 else model[0].start_param_sync
        )
    from megatron.core.distributed import finalize_model_grads

    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    calls, losses = [0], []
    replica = state.get_data_parallel_rank()

    def loss_of(output):
        loss = output.float().mean()
        losses[-1].append(float(loss.detach()))
        return loss, {"lm loss": torch.stack([loss.detach(), torch.ones(())])}

    def forward_step(_, chunk, *__):
        seed = torch.Generator().manual_seed(1000 * replica + calls[-1])
        calls[-1] += 1
        tokens = torch.randint(0, args.vocab_size, (args.micro_batch_size, args.seq_length + 1), generator=seed)
        batch = {
            "tokens": tokens[:, :-1].contiguous(),
            "labels": tokens[:, 1:].contiguous(),
            "position_ids": torch.arange(args.seq_length).expand(args.micro_batch_size, -1).contiguous(),
            "cu_seqlens": None,
        }
        batch = core_utils.get_batch_on_this_cp_rank(batch, False, cp_group=state.get_context_parallel_group())
        return chunk(batch["tokens"], batch["position_ids"], None, labels=batch["labels"]), loss_of

    def weights():
        """Weights that the optimizer of this rank updates: Megatron's FSDP keeps nothing in the parameters between steps."""
        return [weight for group in optimizer.param_groups for weight in group["params"]]

    for chunk in model:
        chunk.train()
    done, sums = 0, [on_cpu.checksum(weights())]
    for step in range(STEPS):
        if step:
            calls.append(0)
        losses.append([])
        answer = training.train_step(
            forward_step,
            [None] * len(model) if len(model) > 1 else None,
            model,
            optimizer,
            scheduler,
            config,
            get_forward_backward_func(),
            iteration=step,
        )
        done += not answer[1]  # `skipped_iter`
        sums.append(on_cpu.checksum(weights()))
    groups_of = {
        "tp": state.get_tensor_model_parallel_group(),
        "pp": state.get_pipeline_model_parallel_group(),
        "cp": state.get_context_parallel_group(),
        "dp": state.get_data_parallel_group(),
        "ep": state.get_expert_model_parallel_group(),
        "etp": state.get_expert_tensor_parallel_group(),
    }
    on_cpu.close(
        {
            "steps": done,
            "micro_batches": [count / len(model) for count in calls],
            "losses": [[sum(x) / len(x) for x in losses]] if losses[0] else [],
            "sums": sums,
            "groups": {name: on_cpu.members(group) for name, group in groups_of.items()},
            "instead": changed,
        }
    )


if __name__ == "__main__":
    train(launched(sys.argv[1]))
