"""Times and memory that the cost model needs, measured with PyTorch on one NVIDIA GPU (H100 or H200).

    python3 checks/silicon --out FOLDER [--only SECTION,...] [--seconds N] [--attention cudnn|flash] [--dry]

FOLDER/pytorch.jsonl gets one JSON object a line, as soon as it is measured: section, name, sizes, `bytes` or `flops` of one call, and
`times_us`, the raw samples of one call's time. Memory is in `*_bytes`; a case that failed has `failed`. FOLDER/environment.json tells
versions, GPU, driver, clocks and processor. tests/silicon/ holds the files that tests read.

A sample lasts 300 µs of device time or longer, after three warm-up calls; operands are normal random numbers, and operands smaller than
three times the L2 cache alternate with others. A section starts only if its expected time is left of `--seconds`, and a record tells
of each one left out. `--dry` runs tiny sizes on a CPU: control flow, shapes and records, no figures.

Sections, in order:
  host        copies over the host link: pinned, pageable, both ways at once, beside a GEMM or a copy within the device
  launch      host and device time of a launch, and CUDA graphs
  contention  a GEMM beside a copy within the device
  gemm        BF16 linear layers of Llama 3 8B and 70B: forward and both gradients
  sustained   one GEMM for 4 s, with clocks and power
  power       power and clocks of kernels alone, and of a GEMM between kernels that draw less
  fp8         FP8 GEMMs by the granularity of their scales, and casts
  grouped     grouped GEMMs of experts, against batched ones
  attention   SDPA of cuDNN and FlashAttention, forward and backward
  stream      norms, activations, losses, optimizers and permutations
  layer       one decoder layer: times, and memory of each phase
  step        training steps as torchtitan runs them: times, and memory of each phase
  transformers  training steps of Transformers' models under Accelerate, with and without adapters: times and memory
  mamba       Mamba-2's scan by chunks, by the kernels of mamba_ssm
  delta       the gated delta rule and a causal convolution, by those of flash-linear-attention
  kda         Kimi's delta attention, by the same
  flex        FlexAttention with sliding windows and sinks
"""

import time

STARTED = time.perf_counter()

import argparse
import os
import sys
import threading
import traceback
import warnings

import torch
import torch._dynamo
import torch._functorch.config

import attention
import contention
import environment
import fp8
import gemm
import grouped
import host
import hugging_face
import launch
import layer
import model
import power
import scan
import step
import stream
import table
from record import OutOfTime, Run

# Section, function, seconds that it is expected to take, seconds after which no case of it starts.
SECTIONS = [
    ("host", host.measure, 8, 14),
    ("launch", launch.measure, 2, 5),
    ("contention", contention.measure, 2, 5),
    ("gemm", gemm.measure, 6, 14),
    ("sustained", gemm.sustained, 6, 8),
    ("power", power.measure, 45, 60),
    ("fp8", fp8.measure, 8, 16),
    ("grouped", grouped.measure, 10, 30),
    ("attention", attention.measure, 5, 12),
    ("stream", stream.measure, 18, 30),
    ("layer", layer.measure, 25, 40),
    ("step", step.measure, 20, 110),
    ("transformers", hugging_face.measure, 20, 75),
    ("mamba", scan.mamba, 5, 150),
    ("delta", scan.delta, 5, 150),
    ("kda", scan.kda, 5, 150),
    ("flex", attention.flex, 15, 30),
]


def watchdog(run):
    """Ends the process once the budget is spent, whatever it waits for; the records are in the file already."""

    def end():
        print(f"{run.section}: STOPPED: the run's {run.seconds} s are spent", flush=True)
        run.write("section", failed="stopped: the run's time is spent")
        table.show(run.records)
        sys.stdout.flush()
        os._exit(3)

    timer = threading.Timer(max(1.0, run.left() - 1), end)
    timer.daemon = True
    timer.start()
    return timer


def section(run, name, fn, expected, budget):
    begin = time.perf_counter()
    if run.gpu and run.left() < expected + 3:
        run.section = name
        run.skip(f"{expected} s expected, {run.left():.0f} s left")
        run.write("section", failed="too little time left")
        return
    run.enter(name, budget)
    try:
        fn(run)
    except OutOfTime as error:
        run.skip(str(error))
        run.write("section", failed=str(error))
    except Exception as error:
        traceback.print_exc()
        run.write("section", failed=f"{type(error).__name__}: {str(error)[:300]}")
    torch._dynamo.reset()
    run.free()
    run.write("section", seconds=round(time.perf_counter() - begin, 2))
    print(f"{name}: {time.perf_counter() - begin:.1f} s, {run.left():.0f} s left", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--only", default="", help="sections, separated by commas")
    parser.add_argument("--seconds", type=float, default=200, help="time budget of the whole run")
    parser.add_argument(
        "--attention", choices=["cudnn", "flash"], default="cudnn", help="attention of the sections layer and step"
    )
    parser.add_argument("--dry", action="store_true", help="tiny sizes on a CPU")
    o = parser.parse_args()
    names = [s[0] for s in SECTIONS]
    only = [name for name in o.only.split(",") if name] or names
    if unknown := [name for name in only if name not in names]:
        parser.error(f"no section {', '.join(unknown)}: {', '.join(names)}")
    if not o.dry and not torch.cuda.is_available():
        parser.error("no CUDA device; --dry runs tiny sizes on a CPU")
    warnings.filterwarnings("ignore", category=FutureWarning)
    os.makedirs(o.out, exist_ok=True)
    torch.manual_seed(7)
    run = Run(o.out, o.seconds, o.dry, STARTED)
    model.prefer(o.attention)
    timer = watchdog(run)
    environment.write(run)
    for entry in SECTIONS:
        if entry[0] in only:
            section(run, *entry)
    timer.cancel()
    table.show(run.records)


if __name__ == "__main__":
    main()
