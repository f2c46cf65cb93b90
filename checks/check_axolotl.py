#!/usr/bin/env python3
"""Does axolotl itself accept this emitted YAML?   (CPU only; marks of what the user sets are filled in)

  check_axolotl.py axolotl.yaml [--world-size N] [--level schema|mesh]

Levels: schema  AxolotlInputConfig, and AxolotlConfigWCapabilities for that many Hopper GPUs: every validator; an unknown key, which
                axolotl ignores, is refused here
        mesh    _get_parallel_config_kwargs(), prepare_optim_env()'s variables, and Accelerate's ParallelismConfig with its device mesh on a
                torch "fake" process group of that many ranks; with DeepSpeed, the JSON through deepspeed's own DeepSpeedConfig
"""

import argparse
import json
import os
import sys
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc
import yaml

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--world-size", type=int)
ap.add_argument("--level", default="mesh", choices=["schema", "mesh"])
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "axolotl", "levels": {}}
FILLED = {
    "base_model": "meta-llama/Meta-Llama-3-8B",
    "output_dir": "out",
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_target_modules": ["q_proj"],
}
os.environ.update(AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu")


def fail(level, e):
    fc.reject(out, level, e, o.verbose)


def stand_in(name):
    """Module that a validator only asks to be there: it needs a GPU to be built."""
    module = types.ModuleType(name)
    module.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec(name, None)
    sys.modules.setdefault(name, module)


emitted = yaml.safe_load(open(o.file))
filled = {key: FILLED.get(key, value) if value == "TO_BE_SET" else value for key, value in emitted.items()}
filled["datasets"] = [
    {
        key: {"path": "tatsu-lab/alpaca", "type": "alpaca"}.get(key) if value == "TO_BE_SET" else value
        for key, value in one.items()
    }
    for one in emitted["datasets"]
]
os.chdir(os.path.dirname(os.path.abspath(o.file)))  # the JSON's name is relative
world = o.world_size or 8
try:
    import torch

    for name in ("ring_flash_attn", "flash_attn"):
        stand_in(name)
    import transformers.modeling_flash_attention_utils as flash
    import transformers.utils as utils

    for name in ("is_flash_attn_greater_or_equal", "is_flash_attn_greater_or_equal_2_10"):
        for module in (flash, utils):
            if not hasattr(module, name):
                setattr(module, name, lambda *a, **k: True)
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.schemas.config import AxolotlConfigWCapabilities, AxolotlInputConfig

    fields = {name for field, info in AxolotlInputConfig.model_fields.items() for name in (field, info.alias) if name}
    unknown = sorted(set(filled) - fields)
    if unknown:
        raise ValueError(f"keys that axolotl ignores: {unknown}")
    from axolotl.utils.schemas.fsdp import FSDPConfig

    unknown = sorted(set(filled.get("fsdp_config") or {}) - set(FSDPConfig.model_fields))
    if unknown:
        raise ValueError(f"keys of fsdp_config that axolotl ignores: {unknown}")
    AxolotlInputConfig(**json.loads(json.dumps(filled)))
    gpu = {
        "bf16": True,
        "fp8": True,
        "tf32": True,
        "n_gpu": min(world, 8),
        "n_node": max(1, world // 8),
        "compute_capability": "sm_90",
    }
    c = AxolotlConfigWCapabilities(
        **json.loads(json.dumps(filled)),
        capabilities=gpu,
        env_capabilities={"torch_version": torch.__version__.split("+")[0]},
    )
    out["levels"]["schema"] = "ok"
except (Exception, SystemExit) as e:
    fail("schema", e)
tp, cp = c.tensor_parallel_size or 1, c.context_parallel_size or 1
out["sizes"] = {
    "tp": tp,
    "cp": cp,
    "pp": 1,
    "dp": world // (tp * cp),
    "micro_batch": c.micro_batch_size,
    "seq": c.sequence_len,
    "global_batch": c.micro_batch_size * c.gradient_accumulation_steps * (world // (tp * cp)),
    "zero_stage": 3 if c.fsdp_config else 0,
}
if o.level == "mesh":
    try:
        if c.deepspeed:
            os.environ.update(
                WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511"
            )
            import torch.distributed as dist
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
            from deepspeed.runtime.config import DeepSpeedConfig
            import deepspeed
            import logging

            deepspeed.utils.logger.setLevel(logging.ERROR)
            sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # no compiler needed
            deepspeed.comm.init_distributed(dist_backend="fake", verbose=False, auto_mpi_discovery=False)
            ds = DeepSpeedConfig(json.load(open(c.deepspeed)))
            out["sizes"]["zero_stage"] = int(ds.zero_config.stage)
            wanted = (
                c.micro_batch_size,
                c.gradient_accumulation_steps,
                world * c.micro_batch_size * c.gradient_accumulation_steps,
            )
            got = (ds.train_micro_batch_size_per_gpu, ds.gradient_accumulation_steps, ds.train_batch_size)
            if wanted != got:
                raise ValueError(
                    f"the Trainer wants batches of {wanted} (micro, accumulation, all), the JSON says {got}"
                )
        else:
            os.environ.update(WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0")
            import torch.distributed as dist
            from torch.testing._internal.distributed.fake_pg import FakeStore

            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
            from axolotl.utils.distributed import _get_parallel_config_kwargs

            sizes = _get_parallel_config_kwargs(
                world, tp, cp, c.dp_shard_size, c.dp_replicate_size, bool(c.fsdp_config)
            )
            from accelerate.parallelism_config import ParallelismConfig

            if c.fsdp_config:
                os.environ["ACCELERATE_ALLOW_CP_STANDALONE"] = "true"  # setup_parallelism_envs
                mesh = ParallelismConfig(**sizes).build_device_mesh("cpu")
                out["mesh"] = dict(zip(mesh.mesh_dim_names, mesh.shape))
                product = 1
                for size in mesh.shape:
                    product *= size
                if product != world:
                    raise ValueError(f"the mesh {out['mesh']} is not of {world} ranks")
        out["levels"]["mesh"] = "ok"
    except (Exception, SystemExit) as e:
        fail("mesh", e)
fc.report(True, out)
