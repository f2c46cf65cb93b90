#!/usr/bin/env python3
"""Does LLaMA-Factory itself accept this emitted YAML?   (CPU only; marks of what the user sets are filled in)

  check_llama_factory.py llama_factory.yaml [--world-size N]

Levels: parse   get_train_args(): its parser, which refuses unknown keys, and its checks, on a torch "fake" process group of N ranks
        engine  DeepSpeed: the JSON through the Trainer's own trainer_config_process(), which refuses a batch that is not that of all ranks, and
                through DeepSpeedConfig; FSDP: accelerate.yaml through Accelerate's loader, validation and plugin
"""

import argparse
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc
import yaml

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "llama-factory", "levels": {}}
world = o.world_size
FILLED = {
    "model_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "dataset": "identity",
    "template": "llama3",
    "output_dir": "out",
    "lora_rank": 16,
    "lora_target": "all",
}
os.environ.update(
    DISABLE_VERSION_CHECK="1",
    HF_HUB_OFFLINE="1",
    DS_ACCELERATOR="cpu",
    WORLD_SIZE=str(world),
    RANK="0",
    LOCAL_RANK="0",
    LOCAL_WORLD_SIZE=str(min(world, 8)),
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT="29512",
    ACCELERATE_TORCH_DEVICE="cpu",
)


def fail(level, e):
    fc.reject(out, level, e, o.verbose)


emitted = yaml.safe_load(open(o.file))
marks = {key for key, value in emitted.items() if value == "TO_BE_SET"}
filled = {**emitted, **{key: FILLED.get(key) for key in marks}}
os.chdir(os.path.dirname(os.path.abspath(o.file)))  # names of other files are relative
stdout, sys.stdout = sys.stdout, sys.stderr
try:
    if marks - FILLED.keys():
        raise ValueError(f"marks that this check does not fill: {', '.join(sorted(marks - FILLED.keys()))}")
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    import transformers.training_args as ta
    from llamafactory.hparams import parser

    ta.TrainingArguments._setup_devices = property(
        lambda self: torch.device("cpu")
    )  # its device is asked for on a GPU alone
    ta.TrainingArguments.world_size = property(lambda self: world)
    ta.TrainingArguments.process_index = property(lambda self: 0)
    ta.TrainingArguments.local_process_index = property(lambda self: 0)
    ta.TrainingArguments.parallel_mode = property(lambda self: ta.ParallelMode.DISTRIBUTED)
    ta.is_torch_bf16_gpu_available = lambda: True
    parser._check_extra_dependencies = lambda *a: None  # flash attention is not installed without a GPU
    deepspeed_file = filled.pop("deepspeed", None)  # below, by the same code that the arguments call
    model, data, training, tuning, _ = parser.get_train_args(dict(filled))
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("parse", e)
out["sizes"] = {
    "tp": 1,
    "cp": 1,
    "pp": 1,
    "dp": world,
    "micro_batch": training.per_device_train_batch_size,
    "seq": data.cutoff_len,
    "global_batch": training.per_device_train_batch_size * training.gradient_accumulation_steps * world,
    "zero_stage": 0,
    "recompute": "none" if model.disable_gradient_checkpointing else "full",
}
try:
    if deepspeed_file:
        import deepspeed
        import logging

        deepspeed.utils.logger.setLevel(logging.ERROR)
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # no compiler needed
        deepspeed.comm.init_distributed(dist_backend="fake", verbose=False, auto_mpi_discovery=False)
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        config = HfTrainerDeepSpeedConfig(deepspeed_file)
        config.trainer_config_process(training)
        config.trainer_config_finalize(training, None, 100)
        from deepspeed.runtime.config import DeepSpeedConfig

        out["sizes"]["zero_stage"] = int(DeepSpeedConfig(json.load(open(deepspeed_file))).zero_config.stage)
    elif os.path.exists("accelerate.yaml"):
        from accelerate.commands.config import load_config_from_file
        from accelerate.commands.launch import _validate_launch_command, launch_command_parser
        from accelerate.utils.launch import prepare_multi_gpu_env

        load_config_from_file("accelerate.yaml")
        import accelerate.commands.launch as launch

        launch.is_cuda_available = lambda *a, **k: True
        torch.cuda.device_count = lambda: 8
        args = launch_command_parser().parse_args(
            ["--config_file", "accelerate.yaml", "--machine_rank", "0", "train.py"]
        )
        args, _, _ = _validate_launch_command(args)
        if int(args.num_processes) != world:
            raise ValueError(f"accelerate.yaml has {args.num_processes} processes, the plan {world}")
        env = prepare_multi_gpu_env(args)
        os.environ.update({key: value for key, value in env.items() if key.startswith(("FSDP", "ACCELERATE"))})
        if any(key.startswith("PARALLELISM_CONFIG") for key in env):
            raise ValueError("a mesh that LLaMA-Factory does not know")
        from accelerate.utils import FullyShardedDataParallelPlugin

        plugin = FullyShardedDataParallelPlugin()
        if plugin.activation_checkpointing:
            raise ValueError("activation checkpointing by FSDP beside LLaMA-Factory's own")
        out["sizes"]["zero_stage"], out["reshard"] = 3, plugin.reshard_after_forward
    out["levels"]["engine"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("engine", e)
sys.stdout = stdout
fc.report(True, out)
