#!/usr/bin/env python3
"""Two optimizer steps of an emitted Accelerate configuration, on gloo ranks: the launcher's own reading of the file, `Accelerator`, and a
small Llama of transformers, which it prepares. Micro-batches are the program's in Accelerate: it is given as many as the plan says.
Started once a rank, with the environment of torchrun.

Stood in for: the backend of several GPUs by gloo; the fused CPU Adam of DeepSpeed by PyTorch's.
"""

import argparse
import contextlib
import os
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
os.environ["DS_ACCELERATOR"] = "cpu"
import on_cpu
import torch
import torch.distributed as dist

STEPS, VOCAB, WIDTH, LENGTH = 2, 256, 64, 32


def environment(path):
    """Variables that `accelerate launch` sets for this file."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    args, defaults, mixed = _validate_launch_command(
        launch_command_parser().parse_args(["--config_file", path, "train.py"])
    )
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(
            list(defaults.deepspeed_config) + (["mixed_precision"] if mixed else [])
        )
        made = prepare_deepspeed_cmd_env(args)[1]
    else:
        made = prepare_multi_gpu_env(args)
    return {
        name: value
        for name, value in made.items()
        if name.startswith(("ACCELERATE", "FSDP_", "PARALLELISM_CONFIG", "FP8_"))
    }


def stand_in():
    """Replaces what only a GPU does."""
    import accelerate.utils.dataclasses as dataclasses
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    PartialState._prepare_backend = lambda self, *_, **__: ("gloo", DistributedType.MULTI_GPU)
    if os.environ.get("FSDP_SYNC_MODULE_STATES") == "true":
        dataclasses.is_cuda_available = lambda: True
        torch.cuda.current_device = lambda: torch.device("cpu")
    on_cpu.sums_of_gradients()
    on_cpu.barriers()
    made = torch.nn.parallel.DistributedDataParallel.__init__
    torch.nn.parallel.DistributedDataParallel.__init__ = (
        lambda self, module, device_ids=None, output_device=None, **rest: made(self, module, **rest)
    )


def llama(mesh):
    """A model; cut by its own plan of tensor parallelism where there is a mesh for it."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=False,
        )
    )
    if mesh is None:
        return model
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    folder = folder[0]
    model.save_pretrained(folder)  # by the first rank alone
    dist.barrier()
    return transformers.LlamaForCausalLM.from_pretrained(folder, tp_plan="auto", device_mesh=mesh)


def train(path, plan, batch):
    os.environ.update(
        environment(path) if path else {}, ACCELERATE_TORCH_DEVICE="cpu"
    )  # else its launcher has set them
    dist.init_process_group("gloo")
    stand_in()
    import accelerate
    from accelerate.utils import DistributedType

    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed

        module = sys.modules.get("deepspeed.comm.torch")
        if hasattr(module, "build_shm_op"):
            module.build_shm_op = lambda: None
    size = lambda name: int(plan.get(name, 1))
    micro, replicas = size("mbs"), size("dp")
    given = batch // (micro * replicas)
    of_deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"
    helper = accelerate.Accelerator(**({} if of_deepspeed else {"gradient_accumulation_steps": given}))
    mesh, parts = helper.torch_device_mesh, helper.parallelism_config
    cut = mesh["tp"] if mesh is not None and parts is not None and parts.tp_size > 1 else None
    model = llama(cut)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if helper.distributed_type == DistributedType.DEEPSPEED:
        config = helper.state.deepspeed_plugin.deepspeed_config
        config["train_micro_batch_size_per_gpu"], config["zero_force_ds_cpu_optimizer"] = micro, False
        config.setdefault("zero_allow_untested_optimizer", True)
    plugin = helper.state.fsdp_plugin if helper.distributed_type == DistributedType.FSDP else None
    if plugin is not None and plugin.fsdp_version == 1:
        plugin.sync_module_states = False
    model, optimizer = helper.prepare(model, optimizer)
    replica = dist.get_rank() // (size("tp") * size("cp"))
    counts, losses, sums, at = [], [], [on_cpu.checksum(on_cpu.weights_of([model]))], 0
    for _ in range(STEPS):
        counts.append(0)
        losses.append([])
        while True:
            seed = torch.Generator().manual_seed(1000 * replica + at)
            ids = torch.randint(0, VOCAB, (micro, LENGTH), generator=seed)
            at += 1
            counts[-1] += 1
            with helper.accumulate(model):
                loss = model(input_ids=ids, labels=ids).loss
                helper.backward(loss)
                if helper.sync_gradients and not of_deepspeed:
                    helper.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses[-1].append(float(loss.detach()))
            if helper.sync_gradients:
                break
        sums.append(on_cpu.checksum(on_cpu.weights_of([model])))
    groups = {}
    if mesh is not None:
        names = {"dp_shard": "dp", "dp_replicate": "dp", "tp": "tp", "cp": "cp"}
        groups = {
            names[name]: on_cpu.members(mesh[name].get_group())
            for name in mesh.mesh_dim_names
            if name in names and mesh[name].size() > 1
        }
        if {"dp_shard", "dp_replicate"} <= {name for name in mesh.mesh_dim_names if mesh[name].size() > 1}:
            groups.pop("dp")  # two axes of one degree
    on_cpu.close(
        {
            "steps": len(sums) - 1,
            "micro_batches": counts,
            "losses": [[sum(x) / len(x) for x in losses]],
            "sums": sums,
            "groups": groups,
            "kind": str(helper.distributed_type.value),
            "replicas": replicas,
            "instead": [],
        }
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    ap.add_argument("--plan", required=True)
    ap.add_argument("--batch", type=int, required=True)
    o = ap.parse_args()
    train(os.path.abspath(o.file), dict(word.split("=", 1) for word in o.plan.split()), o.batch)
