"""Peak memory of one training step, tensor by tensor, from the framework's own code and without a GPU.

The framework builds its model, shards it and trains two steps on fake tensors (shapes and dtypes, no data) in a world of any size
whose collectives do nothing (`torch.distributed`'s `fake` backend). A dispatch mode sees every storage that an operator makes and
when it ends: that ledger, replayed, gives the peak of the second step (the first has no optimizer state before its end), the
holders of the memory then, what the decoder's layers keep for the backward, and, through a replay of the caching allocator with one
pool a stream, the memory that would be reserved.

    oracle.py torchtitan llama3-8b  "tp=1 dp=8 mbs=2 seq=8192 ac=selective loss=whole"
    oracle.py accelerate qwen3-8b   "dp=8 mbs=1 seq=4096 ac=none"
    oracle.py megatron   llama3-70b "tp=4 dp=2 layers=12 mbs=1 seq=4096 loss=fused"
    oracle.py maxtext    llama3-8b  "tpu=v5p dp=64 mbs=2 seq=4096 remat=minimal"
    oracle.py published             the peaks that six published runs measured, beside the oracle's
    oracle.py remake [torchtitan]   the rows of tests/memory/*.csv anew; a row that has a model and a plan alone is new

Models are those of tests/memory/models.csv. A configuration of 8 to 70 billion parameters takes 15 to 130 s and 1 to 2 GB. Tensors lie
on the fake CPU, because autograd's engine refuses fake CUDA tensors where there is no driver; where the CPU would take another kernel
than CUDA (attention, RMSNorm), CUDA's stand in. Not seen: `torch.compile`, Transformer Engine, FP8, pipelines, context parallelism;
workspaces of kernels other than FlashAttention 2's backward; NCCL, which is outside torch.

MaxText is no PyTorch: XLA compiles its step ahead of time for TPUs that are not there, which takes one to three minutes, and says what
memory it assigns.

Keys of a plan, with defaults:
    tp=1 dp=8 mbs=1 seq=8192 accum=1    degrees, sequences of one micro-batch, their tokens, micro-batches a step
    layers=0 kv_heads=0                 where not the model's
    zero=2                              or 1, 3 (deepspeed)
    ac=none                             or full, or selective (torchtitan: operators)
    loss=chunked                        or whole (torchtitan), fused (megatron)
    qkv=fused                           or split: three projections (torchtitan)
    attention=flash                     or efficient, or repeated: keys and values copied to every head first, as torchtitan of 2024
    norm=fused                          or composite: RMSNorm as torch before 2.9 ran it
    optimizer=fused                     or foreach
    params=fp32                         or bf16: the model in 16 bits, autocast=1 with autocast all the same (accelerate)
    lora=0 targets=attention dropout=0  rank of adapters, or targets=all; per cent (accelerate)
    reshard=1                           0: gathered weights stay until the backward (FSDP)
    drop_output=1                       0: the caller holds the model's output during the backward
    workspace=64                        MiB of cuBLAS: one workspace of 32 on Hopper for the forward's thread, one for the backward's
    steps=2                             the last is reported
    tpu=v5p remat=full                  the chip (v4, v5e, v5p, v6e), and MaxText's policy (maxtext)
"""

import argparse
import collections
import csv
import importlib
import json
import os
import pathlib
import subprocess
import sys
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # `torch.compile` is not modelled: decorated functions run as they are written

ROWS = pathlib.Path(__file__).parents[2] / "tests" / "memory"
# Framework: the module that builds it, and the function there.
FRAMEWORKS = {
    "torchtitan": ("on_torchtitan", "torchtitan"),
    "accelerate": ("on_transformers", "accelerate"),
    "deepspeed": ("on_transformers", "deepspeed"),
    "megatron": ("on_megatron", "megatron"),
}
Model = collections.namedtuple(
    "Model", "hidden ffn layers heads kv_heads head_dim vocab tied experts top_k moe_ffn qk_norm"
)
DEFAULTS = {
    "tp": 1, "dp": 8, "mbs": 1, "seq": 8192, "accum": 1, "layers": 0, "kv_heads": 0, "zero": 2, "ac": "none", "loss": "chunked",
    "qkv": "fused", "attention": "flash", "norm": "fused", "optimizer": "fused", "reshard": 1, "steps": 2, "drop_output": 1,
    "workspace": 64, "tpu": "v5p", "remat": "full", "params": "fp32", "autocast": 0, "lora": 0, "targets": "attention", "dropout": 0,
}  # fmt: skip
ASSIGNED = ("arguments_gib", "temporaries_gib", "assigned_gib")  # columns of maxtext.csv beside the model and the plan
COLUMNS = (
    "model plan parameters peak_in weights_gib gradients_gib optimizer_gib kept_gib rest_gib allocated_gib reserved_gib expandable_gib"
).split()

# Peaks that their publishers measured in bf16 without `torch.compile`: framework, model, plan, field of the answer, GiB.
#   torchtitan: benchmarks/llama3_h100_202412_torchtitan.md, `max_reserved`, Llama 3 8B on 8 and 128 H100
#   megatron:   SimuMax's runs of Megatron-LM 23e00ed with Transformer Engine 2.11 on B200, `max_memory_allocated`
PUBLISHED = [
    (
        "torchtitan",
        "llama3-8b",
        "dp=8 mbs=2 ac=selective loss=whole qkv=split attention=repeated",
        "reserved_gib",
        82.4,
    ),
    (
        "torchtitan",
        "llama3-8b",
        "dp=128 mbs=2 ac=selective loss=whole qkv=split attention=repeated",
        "reserved_gib",
        67.0,
    ),
    ("megatron", "llama3-70b", "tp=2 dp=4 layers=12 seq=4096 loss=fused accum=4", "peak_gib", 60.68),
    ("megatron", "llama3-70b", "tp=4 dp=2 layers=12 seq=4096 loss=fused accum=4", "peak_gib", 39.07),
    ("megatron", "llama3-70b", "tp=8 dp=1 layers=12 seq=4096 loss=fused accum=4", "peak_gib", 28.29),
    ("megatron", "llama3-405b", "tp=8 dp=1 layers=4 kv_heads=16 seq=4096 loss=fused accum=4", "peak_gib", 38.57),
]


def parsed(text):
    """A plan from its text, with defaults."""
    plan = dict(DEFAULTS)
    for item in text.split():
        key, value = item.split("=")
        if key not in plan:
            sys.exit(f"{key}: no key of a plan; there are {', '.join(plan)}")
        plan[key] = type(plan[key])(value)
    return types.SimpleNamespace(**plan)


def models():
    """Models of tests/memory/models.csv by name."""
    with open(ROWS / "models.csv") as file:
        rows = list(csv.reader(file))[1:]
    sizes = {name: Model(*map(int, sizes)) for name, *sizes in rows}
    return {name: size._replace(tied=bool(size.tied), qk_norm=bool(size.qk_norm)) for name, size in sizes.items()}


def answered(framework, model, text):
    """One configuration's answer, from a process of its own: frameworks change global state."""
    command = [sys.executable, "-W", "ignore", __file__, framework, model, text]
    return json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    )


def published():
    """Each measured peak beside the oracle's; more than 3 % apart is a failure."""
    worst = 0.0
    for framework, model, text, field, measured in PUBLISHED:
        found = answered(framework, model, text)[field]
        off = found / measured - 1
        worst = max(worst, abs(off))
        print(
            f"{framework:10} {model:11} {text:75} {field:12} {measured:6.2f} measured {found:6.2f} here {100 * off:+5.1f} %"
        )
    sys.exit(worst > 0.03)


def row(model, text, answer):
    """One line of tests/memory/*.csv."""
    if ASSIGNED[0] in answer:
        return [model, text, *(f"{answer[key]:.3f}" for key in ASSIGNED)]
    at_peak = answer["at_peak"]
    held = [at_peak.get(tenant, 0.0) for tenant in ("weights", "gradients", "optimizer")]
    rest = answer["peak_gib"] - sum(held) - at_peak.get("forward", 0.0)
    gib = [*held, answer["after_forward"].get("forward", 0.0), rest]
    gib += [answer[key] for key in ("peak_gib", "reserved_gib", "reserved_expandable_gib")]
    return [model, text, answer["parameters"], answer["peak_in"], *(f"{value:.3f}" for value in gib)]


def remake(framework):
    """Writes a framework's file anew, line by line, so that what is done stays where the rest fails."""
    path = ROWS / f"{framework}.csv"
    with open(path) as file:
        plans = [(line["model"], line["plan"]) for line in csv.DictReader(file)]
    made = path.with_suffix(".new")
    with open(made, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "plan", *ASSIGNED) if framework == "maxtext" else COLUMNS)
        for model, text in plans:
            writer.writerow(row(model, text, answered(framework, model, text)))
            file.flush()
            print(framework, model, text, flush=True)
    made.replace(path)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("framework", choices=[*FRAMEWORKS, "maxtext", "published", "remake"])
    arguments.add_argument("model", nargs="?", default="llama3-8b")
    arguments.add_argument("plan", nargs="?", default="")
    given = arguments.parse_args()
    if given.framework == "published":
        published()
    elif given.framework == "remake":
        for framework in [given.model] if given.model in (*FRAMEWORKS, "maxtext") else FRAMEWORKS:
            remake(framework)
    else:
        plan = parsed(given.plan)
        known = models()
        if given.model not in known:
            sys.exit(f"{given.model}: no model of tests/memory/models.csv; there are {', '.join(known)}")
        size = known[given.model]
        size = size._replace(**{key: getattr(plan, key) for key in ("layers", "kv_heads") if getattr(plan, key)})
        if given.framework == "maxtext":
            answer = importlib.import_module("on_maxtext").measured(size, plan)
        else:
            module, function = FRAMEWORKS[given.framework]
            framework = getattr(importlib.import_module(module), function)
            answer = importlib.import_module("job").measured(framework, size, plan)
        print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
