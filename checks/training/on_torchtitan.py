#!/usr/bin/env python3
"""Two optimizer steps of an emitted torchtitan configuration, on gloo ranks: torchtitan's own `ConfigManager` and `Trainer`, with its
data loader. Started once a rank, with the environment of torchrun.

Stood in for: FlexAttention, whose backward pass needs a GPU, by PyTorch's attention; the tokenizer and the corpus by toys; compilation
is off. DeepEP exchanges by gloo's all-to-all.
"""

import importlib
import json
import os
import sys
import tempfile
import types

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import on_cpu
import torch
import torch.distributed as dist

STEPS = 2


def assets(folder):
    """A tokenizer of bytes and a corpus, where emitted configurations look for them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer, corpus = (os.path.join(folder, "tests", "assets", name) for name in ("tokenizer", "c4_test"))
    os.makedirs(tokenizer)
    os.makedirs(corpus)
    words = {sign: at for at, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|bos|>", "<|eos|>"])}
    made = Tokenizer(models.BPE(vocab=words, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|bos|>", "<|eos|>"])
    made.save(os.path.join(tokenizer, "tokenizer.json"))
    json.dump(
        {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}, open(os.path.join(tokenizer, "tokenizer_config.json"), "w")
    )
    with open(os.path.join(corpus, "data.json"), "w") as file:
        for row in range(3000):
            file.write(json.dumps({"text": f"row {row} " + "some words that stand for a corpus " * 20}) + "\n")


def stand_in(config):
    """Replaces what only a GPU runs; what of the configuration that changed."""
    for name, value in dict(
        get_device_name=lambda *_: "cpu",
        memory_stats=lambda *_: {},
        reset_peak_memory_stats=lambda *_: None,
        empty_cache=lambda *_: None,
        get_device_capability=lambda *_: (9, 0),
        memory_allocated=lambda *_: 0,
        max_memory_allocated=lambda *_: 0,
        max_memory_reserved=lambda *_: 0,
        get_device_properties=lambda *_: types.SimpleNamespace(total_memory=64 << 30, name="cpu", major=9, minor=0),
    ).items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, value)
    on_cpu.sums_of_gradients()

    def attend(query, key, value, *, enable_gqa=False, scale=None, **_):
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=enable_gqa, scale=scale
        )
        return out, types.SimpleNamespace(lse=None)

    import torchtitan.models.common.attention as attention

    attention.FlexAttention.compiled_flex_attn = staticmethod(attend)
    changed = ["attention"] + (["compile"] if config.compile.enable else [])
    config.compile.enable = False
    for section in ("checkpoint", "profiler", "metrics"):
        part = getattr(config, section, None)
        for switch in ("enable", "enable_profiling", "enable_memory_snapshot", "enable_tensorboard", "enable_wandb"):
            if hasattr(part, switch):
                setattr(part, switch, False)
    return changed


def train(path):
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    on_cpu.barriers()
    on_cpu.exchanges()
    folder = tempfile.mkdtemp()
    assets(folder)
    os.chdir(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    module = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    importlib.invalidate_caches()
    from torchtitan.config import ConfigManager

    config = ConfigManager().parse_args(["--module", module, "--config", "train"])
    changed = stand_in(config)
    config.training.steps = STEPS
    trainer = config.build()
    counts, losses, sums = [], [], [on_cpu.checksum(on_cpu.weights_of(trainer.model_parts))]
    step, one = trainer.train_step, trainer.forward_backward_step

    def forward_backward(*, input_dict, **rest):
        counts[-1] += len(input_dict) if isinstance(input_dict, list) else 1
        loss = one(input_dict=input_dict, **rest)
        if not trainer.parallel_dims.pp_enabled or trainer.pp_has_last_stage:
            losses[-1].append(float(loss.detach().sum()))
        return loss

    def train_step(data):
        counts.append(0)
        losses.append([])
        step(data)
        sums.append(on_cpu.checksum(on_cpu.weights_of(trainer.model_parts)))

    trainer.forward_backward_step, trainer.train_step = forward_backward, train_step
    passes = on_cpu.counted_stages()
    trainer.train()
    dims = trainer.parallel_dims
    size = {"tp": dims.tp, "cp": dims.cp, "pp": dims.pp, "ep": dims.ep}
    groups = {
        name: on_cpu.members(dims.get_mesh(name).get_group()) if degree > 1 else [dist.get_rank()]
        for name, degree in size.items()
    }
    groups["dp"] = (
        on_cpu.members(dims.get_mesh("batch").get_group())
        if dims.dp_replicate * dims.dp_shard > 1
        else [dist.get_rank()]
    )
    on_cpu.close(
        {
            "steps": trainer.step,
            "micro_batches": counts,
            "losses": [[sum(x) for x in losses]] if losses[0] else [],
            "groups": groups,
            "passes": passes,
            "sums": sums,
            "instead": changed,
        }
    )


if __name__ == "__main__":
    train(sys.argv[1])
