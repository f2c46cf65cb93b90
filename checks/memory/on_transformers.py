"""Hugging Face's models under Accelerate's FSDP2, and under DeepSpeed's ZeRO."""

import os
import sys
import types

import torch

from job import Job, adamw


def transformers_config(size, plan):
    import transformers

    kind = "qwen3_moe" if size.experts else "qwen3" if size.qk_norm else "llama"
    moe = {"num_experts": size.experts, "num_experts_per_tok": size.top_k, "moe_intermediate_size": size.moe_ffn}
    config = transformers.AutoConfig.for_model(
        kind,
        hidden_size=size.hidden,
        intermediate_size=size.ffn,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        vocab_size=size.vocab,
        tie_word_embeddings=size.tied,
        max_position_embeddings=plan.seq,
        use_cache=False,
        **(moe if size.experts else {}),
    )
    return config


def transformers_model(config, dtype, device="meta"):
    import transformers

    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    if hasattr(config, "num_experts"):
        model.set_experts_implementation("grouped_mm")
    # A batch without padding needs no mask; on fake tensors transformers cannot look, and would build one.
    sys.modules[type(model).__module__].create_causal_mask = lambda *_, **__: None
    return model


def checkpointed(model, plan):
    if plan.ac == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    elif plan.ac != "none":
        raise NotImplementedError("transformers checkpoints whole layers")


def adapted(model, plan):
    """The model with PEFT's adapters, prepared for checkpointing as Transformers' trainer prepares it."""
    if not plan.lora:
        return model
    from unittest import mock

    import peft

    names = ["q_proj", "k_proj", "v_proj", "o_proj"] + (
        ["gate_proj", "up_proj", "down_proj"] if plan.targets == "all" else []
    )
    config = peft.LoraConfig(r=plan.lora, lora_alpha=plan.lora, lora_dropout=plan.dropout / 100, target_modules=names)
    if plan.ac == "full":
        model.enable_input_require_grads()
    # Adapters are made in fp32 and end there (`autocast_adapter_dtype`): moves in between would swap tensors that are watched.
    with mock.patch.object(torch.nn.Module, "to", lambda module, *_, **__: module):
        return peft.get_peft_model(model, config)


def accelerate(size, plan, world):
    """transformers' model as accelerate's FSDP2 prepares it under `mixed_precision: bf16`, autocast and fp32 outputs included.

    With `params=bf16` the model is in 16 bits and nothing is mixed; on one rank nothing is sharded.
    """
    from accelerate.utils import fsdp_utils
    from accelerate.utils.dataclasses import FullyShardedDataParallelPlugin
    from accelerate.utils.operations import convert_outputs_to_fp32
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if plan.tp > 1:
        raise NotImplementedError("tp: accelerate loads a model from disk to shard it")
    config = transformers_config(size, plan)
    mesh = init_device_mesh("cpu", (plan.dp,), mesh_dim_names=("dp_shard",))
    halved = plan.params == "bf16"

    def sharded(model):
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.bfloat16)
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            reshard_after_forward=bool(plan.reshard),
            auto_wrap_policy="transformer_based_wrap",
            mixed_precision_policy=MixedPrecisionPolicy() if halved else policy,
            cpu_ram_efficient_loading=False,
        )
        accelerator = types.SimpleNamespace(
            state=types.SimpleNamespace(fsdp_plugin=plugin),
            torch_device_mesh=mesh,
            parallelism_config=types.SimpleNamespace(fsdp_dim_names=["dp_shard"]),
            mixed_precision="no" if halved else "bf16",
            is_main_process=False,
            device=torch.device("cpu"),
        )
        return fsdp_utils.fsdp2_prepare_model(accelerator, model)

    def build():
        dtype = torch.bfloat16 if halved else torch.float32
        model = transformers_model(config, dtype, "meta" if plan.dp > 1 else "cpu")
        checkpointed(model, plan)
        head = model.lm_head
        model = adapted(model, plan)
        if plan.dp > 1:
            model = sharded(model)
            model.to_empty(device="cpu")
        model.train()
        if not halved or plan.autocast:
            forward = model.forward.__func__
            forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16)(forward))
            model.forward = types.MethodType(forward, model)
        tokens, labels = (torch.empty(plan.mbs, plan.seq, dtype=torch.long) for _ in range(2))
        return Job(
            model,
            head,
            adamw(model, plan),
            lambda: model(input_ids=tokens, labels=labels),
            lambda output: output.loss,
        )

    return build


def deepspeed(size, plan, world):
    """transformers' model under DeepSpeed's ZeRO in bf16, with its default buckets, on its CPU accelerator."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
    import deepspeed
    from deepspeed.runtime.zero import partitioned_param_coordinator, stage3
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    if plan.tp > 1:
        raise NotImplementedError("tp")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    for stage in (DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3):  # what reads values
        for name in ("has_overflow", "_check_overflow", "check_overflow", "unscale_and_clip_grads"):
            setattr(stage, name, lambda *_, **__: None)
        stage.scaled_global_norm = lambda *_, **__: torch.tensor(1.0)
    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda *_: None
    DeepSpeedZeroOptimizer.overflow, stage3.is_invalid_grad_norm = False, lambda *_: False
    config = transformers_config(size, plan)

    def build():
        model = transformers_model(config, torch.bfloat16, "cpu")
        model.train()
        checkpointed(model, plan)
        model.bfloat16, model.to = lambda: model, lambda *_, **__: model
        settings = {
            "train_micro_batch_size_per_gpu": plan.mbs,
            "gradient_accumulation_steps": plan.accum,
            "zero_optimization": {"stage": plan.zero},
            "bf16": {"enabled": True},
            "zero_allow_untested_optimizer": True,
        }
        engine, _, _, _ = deepspeed.initialize(
            model=model, optimizer=adamw(model, plan), config=settings, dist_init_required=False
        )
        masters = "fp32_partitioned_groups_flat" if plan.zero == 3 else "single_partition_of_fp32_groups"
        masters = getattr(engine.optimizer, masters)
        tokens, labels = (torch.empty(plan.mbs, plan.seq, dtype=torch.long) for _ in range(2))

        def backward(loss):
            engine.backward(loss)
            engine.step()  # updates after the last micro-batch of a step

        return Job(
            model,
            model.lm_head,
            types.SimpleNamespace(state=engine.optimizer.optimizer.state),
            lambda: engine(input_ids=tokens, labels=labels),
            lambda output: output.loss,
            finish=lambda: None,
            backward=backward,
            tenants=[(master, "optimizer") for master in masters]
            + [(p.ds_tensor, "weights") for p in model.parameters() if hasattr(p, "ds_tensor")],
        )

    return build
