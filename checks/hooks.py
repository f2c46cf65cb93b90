#!/usr/bin/env python3
"""Host time of the hooks by which DeepSpeed's ZeRO 3 gathers and frees the weights of each module, and of a loop over experts; prints
`checks/hooks.tsv` anew.

    python checks/hooks.py            in the environment of checks/environment.sh; one process, no GPU

A hook is Python, whatever the device: a process group that moves nothing (PyTorch's `fake`) stands for 16 ranks, so what is timed is
DeepSpeed's own code and the launch of its operators. Each figure is the time of a layer with DeepSpeed less that of the same layer
without it, over the experts of the layer; processor time, the least of many repeats, since other work only adds. Layers run under checkpointing without
re-entry, so `backward` has a second forward pass in it.

The loop is that of Transformers 4.57 (`modeling_qwen3_moe.py`, `Qwen3MoeSparseMoeBlock.forward`), with tokens dealt to all experts.
"""

import os
import sys
import time

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
import deepspeed
import torch
import torch.distributed as dist
from torch.nn.functional import one_hot, silu
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

EXPERTS, LAYERS, WIDTH, INNER, CHOSEN, TOKENS, REPEATS = 32, 2, 64, 32, 8, 64, 12
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.0, "torch_adam": True}},
    # What Transformers' `auto` makes of a hidden size, and no weight that stays whole, as none of an expert's does.
    "zero_optimization": {
        "stage": 3,
        "stage3_prefetch_bucket_size": int(0.9 * WIDTH * WIDTH),
        "stage3_param_persistence_threshold": 0,
        "reduce_bucket_size": WIDTH * WIDTH,
    },
}


class Expert(torch.nn.Module):
    """Three maps without a bias."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))


class Loop(torch.nn.Module):
    """A layer that runs its experts one after the other."""

    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        chosen = (torch.arange(TOKENS)[:, None] * CHOSEN + torch.arange(CHOSEN)) % EXPERTS
        weights = torch.full((TOKENS, CHOSEN), 1 / CHOSEN, dtype=x.dtype)
        out, mask = torch.zeros_like(x), one_hot(chosen, EXPERTS).permute(2, 1, 0)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            choice, token = torch.where(mask[expert].squeeze(0))
            mine = self.experts[expert](x[None, token].reshape(-1, WIDTH)) * weights[token, choice, None]
            out.index_add_(0, token, mine.to(x.dtype))
        return x + out


class Chain(torch.nn.Module):
    """As many maps as the experts of a loop have, one after the other."""

    def __init__(self):
        super().__init__()
        self.maps = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3 * EXPERTS))

    def forward(self, x):
        for one in self.maps:
            x = one(x)
        return x


class Layers(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = torch.nn.ModuleList(kind() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x.sum()


def timed(kind, zero, leaf):
    """Microseconds of a layer's forward and backward pass."""
    torch.manual_seed(0)
    model, x = Layers(kind), torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    if zero:
        if leaf:
            deepspeed.utils.set_z3_leaf_modules(model, [kind])
        model, *_ = deepspeed.initialize(model=model, config=CONFIG)
        backward = model.backward
    else:
        model, backward = model.to(torch.bfloat16), torch.Tensor.backward
    best = [float("inf")] * 2
    for _ in range(REPEATS):
        start = time.process_time()
        loss = model(x)
        middle = time.process_time()
        backward(loss)
        end = time.process_time()
        model.step() if zero else model.zero_grad()
        best = [min(best[0], middle - start), min(best[1], end - middle)]
    return [1e6 * seconds / LAYERS for seconds in best]


def row(name, with_zero, plain, count):
    return "\t".join([name, *(f"{(a - b) / count:.0f}" for a, b in zip(with_zero, plain))])


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # compiled, for the CPU alone
    # On a GPU the number of devices is known; the CPU's stand-in asks `numactl` each time.
    type(deepspeed.accelerator.get_accelerator()).device_count = lambda *_: 8
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
    deepspeed.comm.init_distributed(dist_backend="fake", verbose=False, auto_mpi_discovery=False)
    print("part\tforward\tbackward")
    chain, loop = timed(Chain, False, False), timed(Loop, False, False)
    print(row("loop, an expert", loop, [0, 0], EXPERTS))
    print(row("hooks, a module", timed(Chain, True, False), chain, 3 * EXPERTS))
    print(row("hooks, an expert", timed(Loop, True, False), loop, EXPERTS))
    print(row("hooks, an expert of a leaf", timed(Loop, True, True), loop, EXPERTS))
