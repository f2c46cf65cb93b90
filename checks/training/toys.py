"""A small Llama with a tokenizer of bytes and a corpus, and what a Trainer of Hugging Face does, recorded."""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types

import on_cpu
import torch
import torch.distributed as dist

WIDTH = 64


class Empty(type):
    """Of a class that stands in: constants are empty words, other names classes."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return "" if name.isupper() else Empty(name, (torch.nn.Module,), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Packages that a training imports and does not use: each name in them is a class."""

    def __init__(self, names):
        self.names = [name for name in names if "." in name or importlib.machinery.PathFinder.find_spec(name) is None]
        sys.meta_path.append(self)

    def find_spec(self, name, path=None, target=None):
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if any(name == own or name.startswith(own + ".") for own in self.names)
            else None
        )

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Empty("module", (), {}), name)
        return module

    def exec_module(self, module):
        pass


def folder(name):
    """One folder for all ranks of a run."""
    path = os.path.join(tempfile.gettempdir(), f"{name}-{os.getppid()}-{os.environ['MASTER_PORT']}")
    os.makedirs(path, exist_ok=True)
    return path


def made_once(path, length):
    """Model, tokenizer and corpus, by the first rank."""
    if dist.get_rank() == 0:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        import transformers

        words = {
            sign: at
            for at, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|bos|>", "<|eos|>", "<|pad|>"])
        }
        made = Tokenizer(models.BPE(vocab=words, merges=[]))
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>"
        )
        tokenizer.save_pretrained(path)
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=len(words),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=max(length, 128),
            tie_word_embeddings=False,
            bos_token_id=256,
            eos_token_id=257,
            pad_token_id=258,
        )
        transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
        rows = [
            {"instruction": f"row {row}", "input": "", "output": "some words that stand for a corpus " * 4}
            for row in range(2000)
        ]
        json.dump(rows, open(os.path.join(path, "toy.json"), "w"))
        json.dump({"toy": {"file_name": "toy.json"}}, open(os.path.join(path, "dataset_info.json"), "w"))
    dist.barrier()


def without_fused_adam():
    """PyTorch's Adam in the place of the fused one, which takes tensors of one device only."""
    made = torch.optim.AdamW.__init__
    torch.optim.AdamW.__init__ = lambda self, *args, **kwargs: made(
        self, *args, **{name: value for name, value in kwargs.items() if name != "fused"}
    )


def record(kind):
    """Records the training of a subclass of `Trainer`: losses and micro-batches of each step, and weights around them."""
    import transformers

    counts, losses, sums, step = [0], [[]], [], kind.training_step

    class Sums(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **_):
            sums.append(on_cpu.checksum(on_cpu.weights_of([model])))

        def on_step_end(self, args, state, control, model=None, **_):
            sums.append(on_cpu.checksum(on_cpu.weights_of([model])))
            counts.append(0)
            losses.append([])

    def training_step(self, *args, **kwargs):
        loss = step(self, *args, **kwargs)
        counts[-1] += 1
        losses[-1].append(float(loss.detach()))
        return loss

    made = kind.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.add_callback(Sums())

    kind.training_step, kind.__init__ = training_step, init
    return lambda: {
        "steps": len(sums) - 1,
        "micro_batches": counts[:-1],
        "losses": [[sum(x) for x in losses[:-1]]],
        "sums": sums,
    }
