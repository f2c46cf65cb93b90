#!/usr/bin/env python3
"""Two optimizer steps of an emitted axolotl YAML, on gloo ranks: its own configuration, validators, synthetic data, loader and Trainer (`axolotl.train`)
on a small Llama, over FSDP2, DeepSpeed or copies of adapters. Started once a rank, with the environment of torchrun.

Stood in for: flash attention by PyTorch's; numba's compiled packing by the same Python; the model and the tokenizer by toys.
"""

import argparse
import contextlib
import importlib.machinery
import os
import sys
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
os.environ.update(
    AXOLOTL_DO_NOT_TRACK="1",
    DO_NOT_TRACK="1",
    DS_ACCELERATOR="cpu",
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    AXOLOTL_LOG_LEVEL="ERROR",
    LOG_LEVEL="ERROR",
)
import on_accelerate
import on_cpu
import toys
import torch
import torch.distributed as dist
import yaml

STEPS = 2
ABSENT = [
    "trl",
    "bitsandbytes",
    "flash_attn",
    "ring_flash_attn",
    "liger_kernel",
    "lm_eval",
    "fire",
    "colorama",
    "art",
    "gradio",
    "xformers",
    "schedulefree",
    "modal",
    "posthog",
    "wandb",
    "mlflow",
    "comet_ml",
    "evaluate",
    "nltk",
    "tensorboard",
    "langdetect",
    "s3fs",
    "gcsfs",
    "adlfs",
    "ocifs",
    "zstandard",
    "fastcore",
    "mistral_common",
    "opentelemetry",
    "sentencepiece",
    "torchvision",
    "termcolor",
    "axolotl.contribs",
]


def numba():
    """A compiler that leaves functions as they are."""
    module = types.ModuleType("numba")
    module.njit = module.jit = lambda function=None, **_: function or (lambda inner: inner)
    module.prange, module.__spec__ = range, importlib.machinery.ModuleSpec("numba", None)
    sys.modules.setdefault("numba", module)


def train(path):
    folder = toys.folder("axolotl")
    os.chdir(os.path.dirname(path))
    settings = yaml.safe_load(open(path))
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    dist.init_process_group("gloo")
    on_accelerate.stand_in()
    toys.made_once(folder, settings["sequence_len"])
    toys.Absent(ABSENT)
    numba()
    toys.without_fused_adam()
    import transformers.training_args as ta

    ta.is_torch_bf16_gpu_available = lambda: True
    torch.cuda.can_device_access_peer = lambda *_: True
    import accelerate.parallelism_config as meshes

    mesh = meshes.ParallelismConfig.build_device_mesh
    meshes.ParallelismConfig.build_device_mesh = lambda self, _: mesh(self, "cpu")
    filled = {
        "base_model": folder,
        "output_dir": os.path.join(folder, "out"),
        "lora_r": 4,
        "lora_alpha": 8,
        "lora_target_modules": ["q_proj", "v_proj"],
    }
    settings = {key: filled.get(key, value) if value == "TO_BE_SET" else value for key, value in settings.items()}
    settings |= {
        "output_dir": filled["output_dir"],
        "max_steps": STEPS,
        "attn_implementation": "sdpa",
        "dataset_prepared_path": os.path.join(folder, "prepared"),
        "dataset_num_proc": 1,
        "dataloader_pin_memory": False,
        "dataloader_num_workers": 0,
        "tokenizer_type": "PreTrainedTokenizerFast",
        "use_tensorboard": False,
        "tf32": False,
    }
    settings["datasets"] = [one | {"length": 64} for one in settings["datasets"]]
    if "deepspeed" in settings:
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    with contextlib.redirect_stdout(sys.stderr):
        import axolotl.cli.config as config
        import axolotl.train as training
        from axolotl.cli.args import TrainerCliArgs
        from axolotl.common.datasets import load_datasets
        from axolotl.core.trainers import AxolotlTrainer
        from axolotl.utils.dict import DictDefault

        gpu = {
            "bf16": True,
            "fp8": True,
            "tf32": True,
            "n_gpu": dist.get_world_size(),
            "n_node": 1,
            "compute_capability": "sm_90",
        }
        config.gpu_capabilities = lambda: (gpu, {"torch_version": torch.__version__.split("+")[0]})
        recorded = toys.record(AxolotlTrainer)
        training.save_trained_model = training.save_initial_configs = training.create_model_card = (
            training.setup_model_card
        ) = lambda *_, **__: None
        training.cleanup_distributed = lambda *_, **__: None
        cfg = config.load_cfg(DictDefault(settings))
        if cfg.device_map:
            cfg.device_map = {"": "cpu"}
        training.train(cfg=cfg, dataset_meta=load_datasets(cfg=cfg, cli_args=TrainerCliArgs()))
    on_cpu.close(recorded() | {"groups": {}, "instead": ["attention", "numba"]})


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    train(os.path.abspath(ap.parse_args().file))
