#!/usr/bin/env python3
"""Two optimizer steps of an emitted LLaMA-Factory YAML, on gloo ranks: its own parser, loader, dataset, collator and Trainer (`run_sft`) on a small
Llama, over what the launch sets up: copies, FSDP2 by accelerate.yaml, or DeepSpeed. Started once a rank, with the environment of torchrun.

Stood in for: flash attention by PyTorch's, and the model, the corpus and the tokenizer by toys.
"""

import argparse
import contextlib
import functools
import os
import sys
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
os.environ.update(
    DS_ACCELERATOR="cpu",
    DISABLE_VERSION_CHECK="1",
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    LLAMAFACTORY_VERBOSITY="ERROR",
)
import on_accelerate
import on_cpu
import toys
import torch
import torch.distributed as dist
import yaml

STEPS = 2


def recomputation():
    """Layers of transformers 5.23 are recomputed as partial functions of themselves; release 0.9.5 looks for methods."""
    from llamafactory.model.model_utils import checkpointing

    made = checkpointing.get_custom_gradient_checkpointing_func

    def adapted(function):
        own = made(function)
        bound = lambda layer: functools.partial(
            types.MethodType(layer.func, layer.args[0]), *layer.args[1:], **layer.keywords
        )
        return lambda layer, *args, **kwargs: own(
            bound(layer) if isinstance(layer, functools.partial) and not hasattr(layer.func, "__self__") else layer,
            *args,
            **kwargs,
        )

    checkpointing.get_custom_gradient_checkpointing_func = adapted


def train(path):
    folder = toys.folder("llama-factory")
    os.chdir(os.path.dirname(path))
    settings = yaml.safe_load(open(path))
    if os.path.exists("accelerate.yaml") and "deepspeed" not in settings:
        os.environ.update(on_accelerate.environment("accelerate.yaml"))
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    dist.init_process_group("gloo")
    on_accelerate.stand_in()
    toys.made_once(folder, settings["cutoff_len"])
    toys.Absent(["trl", "torchaudio", "av", "librosa", "jieba", "nltk", "rouge_chinese", "matplotlib"])
    import transformers.training_args as ta

    transformers = __import__("transformers")
    transformers.logging.set_verbosity_error()
    ta.is_torch_bf16_gpu_available = lambda: True
    toys.without_fused_adam()
    from llamafactory.hparams import parser

    parser._check_extra_dependencies = lambda *_: None
    filled = {
        "model_name_or_path": folder,
        "dataset": "toy",
        "dataset_dir": folder,
        "template": "default",
        "output_dir": os.path.join(folder, "out"),
        "lora_rank": 4,
        "lora_target": "all",
    }
    settings = {key: filled.get(key, value) if value == "TO_BE_SET" else value for key, value in settings.items()}
    settings |= {
        "dataset": "toy",
        "dataset_dir": folder,
        "output_dir": filled["output_dir"],
        "max_steps": STEPS,
        "flash_attn": "sdpa",
        "preprocessing_num_workers": 1,
        "overwrite_cache": True,
        "dataloader_pin_memory": False,
    }
    if "deepspeed" in settings:
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    model, data, training, tuning, generating = parser.get_train_args(settings)
    from llamafactory.train.sft import workflow

    recomputation()
    recorded = toys.record(workflow.CustomSeq2SeqTrainer)
    workflow.CustomSeq2SeqTrainer.save_model = lambda self, *_, **__: None
    workflow.CustomSeq2SeqTrainer.save_metrics = workflow.CustomSeq2SeqTrainer.save_state = (
        workflow.CustomSeq2SeqTrainer.log_metrics
    ) = lambda self, *_, **__: None
    workflow.create_modelcard_and_push = lambda *_, **__: None
    with contextlib.redirect_stdout(sys.stderr):
        workflow.run_sft(model, data, training, tuning, generating, callbacks=[])
    on_cpu.close(recorded() | {"groups": {}, "instead": ["attention"]})


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    train(os.path.abspath(ap.parse_args().file))
