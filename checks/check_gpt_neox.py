#!/usr/bin/env python3
"""Does GPT-NeoX itself accept this emitted YAML?   (CPU only; marks of what the user sets are filled in)

  check_gpt_neox.py gpt_neox.yml --gpt-neox-path CHECKOUT [--world-size N]

Levels: parse   NeoXArgs.from_ymls(): the data class, which refuses unknown keys and wrong types, with what it derives and checks
        engine  deepspeed_config through DeepSpeedConfig on a torch "fake" process group of N ranks, and the refusals of get_model()
        stages  DeepSpeed's partition_balanced() over the model's layers, as PipelineModule calls it
        hand    the arguments as its own launcher would hand them to train.py, read again by NeoXArgs.from_dict()
"""

import argparse
import base64
import io
import json
import os
import sys
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--gpt-neox-path", required=True)
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "gpt-neox", "levels": {}}
world = o.world_size
os.environ.update(
    DS_ACCELERATOR="cpu",
    RANK="0",
    LOCAL_RANK="0",
    WORLD_SIZE=str(world),
    LOCAL_SIZE="1",
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT="29513",
)
FILLED = {
    "data_path": "data/text_document",
    "vocab_file": "data/tokenizer.json",
    "train_iters": 100,
    "lr_decay_iters": 100,
    "save": "out",
}


def fail(level, e):
    sys.stdout = stdout
    fc.reject(out, level, e, o.verbose)


def stand_ins():
    """Puts empty modules in the place of those that the arguments' module imports and does not use."""
    import importlib.machinery
    import importlib.metadata
    import importlib.util
    import packaging
    import packaging.version

    if importlib.util.find_spec("pkg_resources") is None:
        sys.modules["pkg_resources"] = types.SimpleNamespace(packaging=packaging)
    for name in ("lm_dataformat", "tiktoken", "ftfy", "sentencepiece"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = importlib.util.module_from_spec(
                importlib.machinery.ModuleSpec(name, None)
            )  # `find_spec` refuses one without
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: (
        "2.6.3" if name == "flash-attn" else version(name)
    )  # compiled for GPUs; its number is asked for


stdout, sys.stdout = sys.stdout, io.StringIO()
try:
    import torch
    import yaml
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    stand_ins()
    sys.path.insert(0, os.path.abspath(o.gpt_neox_path))
    import deepspeed
    import logging
    from megatron.neox_arguments import NeoXArgs

    logging.disable(logging.WARNING)
    text = open(o.file).read()
    for key, value in FILLED.items():
        text = text.replace(f"\n{key}: TO_BE_SET", f"\n{key}: {value}")
    left = [
        line.split(": ")[0] for line in text.splitlines() if not line.startswith("#") and line.endswith(": TO_BE_SET")
    ]
    if left:
        raise ValueError(f"FILLED has no value for {left}")
    filled = o.file + ".filled.yml"
    with open(filled, "w") as f:
        f.write(text)
    args = NeoXArgs.from_ymls([filled])
    settings = yaml.safe_load(text)
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    fail("parse", e)
try:
    mp, pp = args.model_parallel_size, max(args.pipe_parallel_size, 1)
    dp = world // (mp * pp)
    if args.global_num_gpus != world:
        raise ValueError(f"global_num_gpus is {args.global_num_gpus}, the plan has {world}")
    if args.train_batch_size != args.train_micro_batch_size_per_gpu * args.gradient_accumulation_steps * dp:
        raise ValueError(
            f"train_batch_size {args.train_batch_size} is not {args.train_micro_batch_size_per_gpu} x {args.gradient_accumulation_steps} x dp {dp}"
        )
    unknown = sorted(key for key in settings if key not in NeoXArgs.__dataclass_fields__)
    if unknown:
        raise ValueError(f"keys that it does not have: {unknown}")
    if args.zero_stage in (2, 3) and (args.pipe_parallel_size >= 1 or mp > 1):
        raise ValueError("get_model() exits: ZeRO 2 and 3 beside a pipeline or tensor parallelism")
    for name, size in (("hidden_size", args.hidden_size), ("num_attention_heads", args.num_attention_heads)):
        if size % mp:
            raise ValueError(f"mpu.divide(): {name} {size} over {mp}")
    gated = args.activation in ("geglu", "reglu", "bilinear", "swiglu", "glu")
    width = args.intermediate_size or 4 * args.hidden_size
    inner, outer = (
        (int(width * 2 / 3) // 2, int(width * 2 / 3)) if gated else (width, width)
    )  # ParallelMLP, for multiples of 1
    outer = 2 * ((outer + 1) // 2)
    if gated and outer != 2 * inner:
        raise ValueError(f"ParallelMLP: {outer} columns are not two times {inner} rows")
    if inner % mp or outer % mp:
        raise ValueError(f"mpu.divide(): width {inner} over {mp}")
    if not gated and not args.use_bias_in_mlp:
        raise ValueError("ParallelMLP adds a bias that is not there")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    deepspeed.utils.logger.setLevel(logging.ERROR)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # no compiler needed
    deepspeed.comm.init_distributed(dist_backend="fake", verbose=False, auto_mpi_discovery=False)
    from deepspeed.runtime.config import DeepSpeedConfig

    mpu = types.SimpleNamespace(
        get_data_parallel_world_size=lambda: dp,
        get_model_parallel_world_size=lambda: mp,
        get_tensor_model_parallel_world_size=lambda: mp,
        get_pipeline_model_parallel_world_size=lambda: pp,
    )
    config = DeepSpeedConfig(json.loads(json.dumps(args.deepspeed_config)), mpu)
    if (config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps, config.train_batch_size) != (
        args.train_micro_batch_size_per_gpu,
        args.gradient_accumulation_steps,
        args.train_batch_size,
    ):
        raise ValueError(
            f"DeepSpeedConfig has a global batch of {config.train_batch_size}, NeoXArgs {args.train_batch_size}"
        )
    half = "bf16" if config.bfloat16_config.enabled else "fp16" if config.float16_config.enabled else "fp32"
    stage, gradients = int(config.zero_config.stage), str(config.grad_accum_dtype)
    # _do_optimizer_sanity_check(), of DeepSpeed and of the fork that GPT-NeoX asks for.
    if stage == 0 and half == "fp16" and gradients != "fp16":
        raise NotImplementedError("unsupported mix of model dtype and gradient accumulation type")
    if stage == 0 and half == "bf16" and gradients != "fp32":
        raise NotImplementedError("bf16 must add gradients in fp32 without ZeRO")
    out["sizes"] = {
        "tp": mp,
        "cp": 1,
        "pp": pp,
        "dp": dp,
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "global_batch": config.train_batch_size,
        "zero_stage": stage,
        "half": half,
        "gradients": gradients,
        "seq": args.seq_length,
        "sp": args.sequence_parallel,
        "recompute": "full" if args.checkpoint_activations else "none",
        "inner": inner,
    }
    out["levels"]["engine"] = "ok"
except (Exception, SystemExit) as e:
    fail("engine", e)
try:
    from deepspeed.runtime.utils import partition_balanced

    weights = [0, 0] + [1] * args.num_layers + [0, 0, 0]
    bounds = partition_balanced(weights=weights, num_parts=pp)
    out["stages"] = [sum(weights[a:b]) for a, b in zip(bounds, bounds[1:])]
    if 0 in out["stages"]:
        raise ValueError(f"a stage without a layer: {out['stages']}")
    out["levels"]["stages"] = "ok"
except (Exception, SystemExit) as e:
    fail("stages", e)
try:
    args.user_script = "train.py"
    handed = args.get_deepspeed_main_args()
    values = json.loads(base64.urlsafe_b64decode(handed[handed.index("--megatron_config") + 1]))
    again = NeoXArgs.from_dict(values)
    differ = [
        key
        for key in (
            "train_batch_size",
            "zero_stage",
            "model_parallel_size",
            "pipe_parallel_size",
            "precision",
            "num_layers",
        )
        if getattr(again, key) != getattr(args, key)
    ]
    if differ:
        raise ValueError(f"NeoXArgs.from_dict() reads other values of {differ}")
    out["levels"]["hand"] = "ok"
except (Exception, SystemExit) as e:
    fail("hand", e)
sys.stdout = stdout
fc.report(True, out)
