"""Steps and memory of one rank of torchtitan runs on 8 to 512 GPUs, on one NVIDIA GPU.

    python3 checks/ranks --out FOLDER [--seconds N] [--cases 4,5] [--dry]

The rank runs torchtitan's own trainer (0.2.2: `pip install torchtitan==0.2.2`, beside PyTorch 2.11 or newer) with the meshes, shards and
wrappers of the whole run; collectives are answered at once by `loopback.py`. So kernels, launches and memory are a run's, and links are
not. FOLDER/ranks.jsonl gets one JSON object a case: its options, raw times of four steps and of their passes in µs, peaks in bytes.
`--dry` runs the smallest models of each kind on a CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def case_of(flavor, gpus, recompute, batch, model="llama3", compiled=True, sequence=8192, **degrees):
    """Options of a case; a parallel degree that is not given is 1, and ranks left over share the data by FSDP."""
    return {
        "model": model,
        "flavor": flavor,
        "gpus": gpus,
        "batch": batch,
        "sequence": sequence,
        "recompute": recompute,
        "compiled": compiled,
        **degrees,
    }


CASES = [
    case_of("8B", 64, "none", 1),
    case_of("8B", 8, "selective", 2),
    case_of("8B", 64, "full", 2, tp=2),
    case_of("8B", 64, "none", 1, compiled=False),
    case_of("8B", 64, "full", 4, sequence=4096, compiled=False, tp=2),
    case_of("70B", 256, "full", 2, tp=8),
    case_of("70B", 256, "selective", 1, tp=8),
    case_of("30B-A3B", 64, "full", 2, model="qwen3", sequence=4096, ep=8),
    case_of("16B", 64, "full", 4, model="deepseek_v3", sequence=4096, ep=8),
    case_of("8B", 64, "none", 8, pp=4),
    case_of("30B-A3B", 64, "full", 2, model="qwen3", sequence=4096, ep=8, compiled=False),
    case_of("8B", 512, "full", 1, sequence=65536, cp=8),
    case_of("70B", 512, "full", 1, tp=1, sequence=4096),
    case_of("8B", 64, "none", 2, tp=8),
    case_of("30B-A3B", 8, "full", 2, model="qwen3", sequence=4096, tp=4, ep=2, etp=4, compiled=False),
    case_of("30B-A3B", 8, "selective", 12, model="qwen3", layers=16, tp=4, ep=2, etp=4),
    case_of("30B-A3B", 8, "selective", 6, model="qwen3", layers=16, ep=8),
    case_of("30B-A3B", 8, "selective", 6, model="qwen3", layers=16, ep=4),
    case_of("30B-A3B", 8, "full", 2, model="qwen3", sequence=4096, tp=4, ep=2),
    case_of("8B", 8, "none", 1, tp=4, compiled=False),
    case_of("30B-A3B", 8, "selective", 6, model="qwen3", layers=8, ep=8, profile=True),
    case_of("30B-A3B", 8, "selective", 12, model="qwen3", layers=8, tp=4, ep=2, etp=4, profile=True),
    case_of("30B-A3B", 64, "full", 4, model="qwen3", sequence=4096, layers=8, ep=8, compiled=False, profile=True),
    case_of("8B", 8, "none", 1, sequence=2048, layers=8, compiled=False, profile=True),
    case_of("8B", 8, "none", 1, sequence=2048, layers=8, tp=4, compiled=False, profile=True),
    case_of("8B", 8, "none", 1, sequence=2048, layers=8, tp=4, profile=True),
    case_of(
        "30B-A3B", 8, "none", 1, model="qwen3", sequence=2048, layers=8, tp=4, ep=2, etp=4, compiled=False, profile=True
    ),
    case_of("30B-A3B", 8, "none", 1, model="qwen3", sequence=2048, layers=8, tp=4, ep=2, compiled=False, profile=True),
    case_of("8B", 512, "full", 1, sequence=65536, layers=8, cp=8, profile=True),
    case_of("70B", 512, "full", 1, sequence=4096, layers=16, profile=True),
]
DRY = [
    case_of("debugmodel", 16, "full", 2, tp=2),
    case_of("debugmodel", 16, "none", 8, compiled=False, pp=2),
    case_of("debugmodel", 8, "full", 2, compiled=False, model="deepseek_v3", ep=4),
    case_of("debugmodel_moe", 16, "selective", 2, compiled=False, model="qwen3"),
    case_of("debugmodel_moe", 8, "full", 2, compiled=False, model="qwen3", tp=4, ep=2, etp=4),
]
CASE_S, LIMIT_S = 15, 100  # seconds that a case takes at the least, and after which it is stopped


def run(case, limit):
    """The record of a case: what rank.py found, or why it failed."""
    command = [sys.executable, "-W", "ignore", os.path.join(HERE, "rank.py"), json.dumps(case)]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {**case, "failed": f"stopped after {limit:.0f} s"}
    last = out.stdout.strip().split("\n")[-1]
    if out.returncode == 0 and last.startswith("{"):
        return json.loads(last)
    errors = [line for line in out.stderr.strip().split("\n") if "Error" in line] or out.stderr.strip().split("\n")
    return {**case, "failed": errors[-1][:400]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--seconds", type=float, default=300, help="time budget of the whole run")
    parser.add_argument("--cases", help="indices of the cases to run, in this order, from 0; all without it")
    parser.add_argument("--dry", action="store_true", help="the smallest models, on a CPU")
    o = parser.parse_args()
    began = time.perf_counter()
    os.makedirs(o.out, exist_ok=True)
    failed = False
    cases = DRY if o.dry else CASES
    if o.cases:
        cases = [cases[int(index)] for index in o.cases.split(",")]
    with open(os.path.join(o.out, "ranks.jsonl"), "w") as file:
        for case in cases:
            if o.dry:
                case = {**case, "sequence": 64, "compiled": False}
            left = o.seconds - (time.perf_counter() - began)
            if left < CASE_S:
                record = {**case, "failed": "too little time left"}
            else:
                record = run(case, min(LIMIT_S, left))
            failed |= "failed" in record
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{time.perf_counter() - began:.0f} s: {json.dumps(record)}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
