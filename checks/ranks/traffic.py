"""Bytes that torchtitan's operators move to permute tokens to their experts and back, per element of a routed copy.

    python3 checks/ranks/traffic.py

They are counted in an eager step of Qwen3's smallest mixture over eight expert ranks, on a CPU: all operators between the router and the
layer's output whose tensors hold a row for each routed copy, but GEMMs, views and collectives. `stack.permute_traffic` is their ratio to one
pass each way, 2(1 + 1/k) + 4 bytes forward.
"""

import dataclasses
import math

import rank  # sets what torchtitan needs to run on a CPU
import loopback
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchtitan import train
from torchtitan.protocols import train_spec

import torch

CASE = {
    "model": "qwen3",
    "flavor": "debugmodel_moe",
    "gpus": 8,
    "batch": 2,
    "sequence": 256,
    "recompute": "none",
    "compiled": False,
    "ep": 8,
}


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [
            [(tuple(t.shape), t.element_size()) for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]
            for tree in (args, result)
        ]
        self.operators.append((function.overloadpacket.__name__, *tensors))
        return result


def moved(name, given, made):
    """Bytes that an operator moves, of which `given` and `made` are those of its large inputs and outputs."""
    match name:
        case "zeros" | "new_zeros":
            return made
        case "_to_copy" | "bmm" | "cat":
            return given + made
        case "index":  # gathers the rows that it writes
            return 2 * made
        case "slice_backward":  # fills with zeros, and copies its input there
            return 3 * given
    return 0


def scattered(name, inputs, size):
    """Bytes that `index_put` moves: it reads its values and writes them, and one that adds up reads the sums as well."""
    if name not in ("index_put", "index_put_"):
        return 0
    shape, element = inputs[-1]
    return math.prod(shape) * element * (3 if name == "index_put" else 2) if math.prod(shape) >= size else 0


def main():
    torch.manual_seed(7)
    loopback.start(CASE["gpus"])
    spec = train_spec.get_train_spec(CASE["model"])
    spec.model_args[CASE["flavor"]] = dataclasses.replace(spec.model_args[CASE["flavor"]], n_layers=1)
    args = rank.register(CASE)
    trainer = train.Trainer(rank.config_of(CASE))
    batches = trainer.batch_generator(trainer.dataloader)
    trainer.step = 2
    trainer.train_step(batches)
    recorder = Recorder()
    with recorder:
        trainer.train_step(batches)
    copies = CASE["batch"] * CASE["sequence"] * args.moe_args.top_k
    size = copies * args.dim

    def large(tensors):
        rows = [
            (shape, element) for shape, element in tensors if shape and shape[-1] in (args.dim, args.moe_args.top_k)
        ]
        return sum(math.prod(shape) * element for shape, element in rows if math.prod(shape) >= size)

    passes, backward = [0, 0], False
    for name, inputs, outputs in recorder.operators:
        backward |= "backward" in name
        passes[backward] += moved(name, large(inputs), large(outputs)) + scattered(name, inputs, size)
    once = 2 * (1 + 1 / args.moe_args.top_k) + 4
    for name, count, per in zip(("forward", "backward"), passes, (once, 1.2 * once)):
        print(f"{name}: {count / size:.1f} bytes per element, {count / size / per:.2f} times one pass each way")


if __name__ == "__main__":
    main()
