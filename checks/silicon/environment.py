"""Versions, GPU and host of a run."""

import json
import os
import platform
import subprocess

import torch

QUERY = (
    "name,driver_version,memory.total,power.limit,power.max_limit,clocks.max.sm,clocks.max.memory,clocks.sm,clocks.mem,"
    "ecc.mode.current,persistence_mode,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,temperature.gpu,clocks_throttle_reasons.active"
)


def cpu_model():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(
                (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
            )
    except OSError:
        return platform.machine()


def smi(fields):
    """Fields of `nvidia-smi --query-gpu`, or the reason that there are none."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"failed": str(error)}
    values = [value.strip() for value in out.stdout.strip().split("\n")[0].split(",")]
    names = fields.split(",")
    if out.returncode or len(values) != len(names):
        return {"failed": (out.stdout + out.stderr).strip()[:400]}
    return dict(zip(names, values))


def version(of):
    try:
        return str(of())
    except Exception as error:
        return f"unknown: {error}"


def write(run):
    """Writes environment.json."""

    def triton():
        import triton

        return triton.__version__

    about = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": version(torch.backends.cudnn.version),
        "triton": version(triton),
        "nccl": version(lambda: ".".join(map(str, torch.cuda.nccl.version()))) if run.gpu else None,
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "dry": not run.gpu,
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
    }
    if run.gpu:
        p = torch.cuda.get_device_properties(0)
        about.update(
            gpu=p.name,
            multiprocessors=p.multi_processor_count,
            memory_bytes=p.total_memory,
            l2_bytes=p.L2_cache_size,
            capability=list(torch.cuda.get_device_capability(0)),
            nvidia_smi=smi(QUERY),
        )
        if "failed" in about["nvidia_smi"]:  # an old or new driver may lack one field of the query
            about["nvidia_smi"] |= smi(
                "name,driver_version,power.limit,clocks.max.sm,clocks.max.memory,ecc.mode.current"
            )
    with open(os.path.join(run.folder, "environment.json"), "w") as file:
        json.dump(about, file, indent=1)
    print(json.dumps(about), flush=True)
