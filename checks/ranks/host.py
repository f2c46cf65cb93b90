"""Host time of one layer of torchtitan, on a CPU, with matrices too small to matter.

    python3 checks/ranks/host.py [--steps N] [--cases fsdp-eager,…]

prints one JSON object a case: the time of a step with few and with many layers, and of one layer, in ms of CPU time. Python, dispatch and
hooks are those of a run on a GPU; a kernel launch there takes about what the tiny kernel takes here. Only ratios of cases carry over to a
GPU's host. The scale comes from `rank.py` on a GPU, whose eager layers under tensor parallelism are bound by the host.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time

FEW, MANY = 4, 16  # layers
CASES = {
    "single-eager": {"gpus": 1, "compiled": False},
    "single-compiled": {"gpus": 1, "compiled": True},
    "fsdp-eager": {"gpus": 4, "compiled": False},
    "fsdp-compiled": {"gpus": 4, "compiled": True},
    "fsdp-eager-full": {"gpus": 4, "compiled": False, "recompute": "full"},
    "fsdp-compiled-full": {"gpus": 4, "compiled": True, "recompute": "full"},
    "fsdp-tp-eager": {"gpus": 16, "tp": 4, "compiled": False},
    "fsdp-tp-compiled": {"gpus": 16, "tp": 4, "compiled": True},
}


def measured(case, layers, steps):
    """CPU time of the fastest of `steps` steps, in ms."""
    time.perf_counter = time.process_time
    import torch

    import rank

    torch.set_num_threads(1)
    spec = rank.train_spec.get_train_spec("llama3")
    small = dataclasses.replace(spec.model_args["debugmodel"], dim=64, n_heads=8, n_kv_heads=8, vocab_size=256)
    spec.model_args["debugmodel"] = small
    rank.STEPS, rank.WARMUPS = steps, 4
    given = {"model": "llama3", "flavor": "debugmodel", "batch": 1, "sequence": 16, "recompute": "none", **case}
    return min(rank.measure({**given, "layers": layers})["times_us"]) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40, help="steps of which the fastest counts")
    parser.add_argument("--cases", default=",".join(CASES), help="names of the cases to run")
    parser.add_argument("--layers", type=int, help="measure one case with so many layers, in this process")
    o = parser.parse_args()
    if o.layers:
        print(measured(CASES[o.cases], o.layers, o.steps))
        return
    for name in o.cases.split(","):
        times = {}
        for layers in FEW, MANY:
            again = [sys.executable, "-W", "ignore", __file__, "--cases", name, "--steps", str(o.steps)]
            out = subprocess.run([*again, "--layers", str(layers)], check=True, capture_output=True, text=True).stdout
            times[layers] = round(float(out.split()[-1]), 2)
        layer = (times[MANY] - times[FEW]) / (MANY - FEW)
        print(json.dumps({"case": name, "step_ms": times, "layer_ms": round(layer, 2)}), flush=True)


if __name__ == "__main__":
    main()
