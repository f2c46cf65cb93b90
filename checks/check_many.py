#!/usr/bin/env python3
"""Runs one check_*.py over many files: the framework is imported once, and each file is judged in a fork of that process.

  check_many.py --checker check_megatron.py --cases cases.json [--jobs 2] [--path DIR] [--timeout 300]

cases.json: [{"file": …, "world_size": N, "options": ["--level", "build"], "ranks": 1}, …]; `ranks` over 1 are so many processes
that talk through gloo, as `--level train` wants. Prints one JSON line for each file; exits 1 if any was rejected.
"""

import argparse
import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback

PRELOADED = {
    "check_megatron.py": [
        "torch",
        "megatron.training.arguments",
        "megatron.training.training",
        "megatron.core.models.gpt.gpt_model",
        "megatron.core.models.gpt.gpt_layer_specs",
        "megatron.core.parallel_state",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_deepspeed.py": [
        "torch",
        "deepspeed",
        "deepspeed.runtime.engine",
        "deepspeed.runtime.zero.muon.muon_optimizer",
        "deepspeed.module_inject.auto_ep_layer",
        "torch._dynamo",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_accelerate.py": [
        "torch",
        "accelerate",
        "accelerate.commands.launch",
        "transformers.models.llama.modeling_llama",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_megatron_bridge.py": [
        "torch",
        "transformers",
        "megatron.bridge",
        "megatron.bridge.training.config",
        "megatron.bridge.training.utils.omegaconf_utils",
    ],
    "check_axolotl.py": [
        "torch",
        "transformers",
        "accelerate",
        "deepspeed",
        "axolotl.utils.schemas.config",
        "axolotl.utils.distributed",
        "torch._dynamo",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_llama_factory.py": [
        "torch",
        "transformers",
        "accelerate",
        "deepspeed",
        "datasets",
        "omegaconf",
        "peft.utils",
        "transformers.dynamic_module_utils",
        "transformers.generation.logits_process",
        "transformers.trainer_utils",
        "transformers.training_args_seq2seq",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_gpt_neox.py": [
        "torch",
        "deepspeed",
        "deepspeed.launcher.runner",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_ms_swift.py": [
        "torch",
        "transformers.training_args_seq2seq",
        "transformers.integrations.deepspeed",
        "accelerate",
        "deepspeed",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_llm_foundry.py": [
        "torch",
        "transformers.modeling_utils",
        "transformers.models.llama.modeling_llama",
        "omegaconf",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_olmo_core.py": [
        "torch",
        "numpy",
        "pandas",
        "rich",
        "torch.distributed.tensor.parallel",
        "torch.distributed.pipelining",
        "torch.distributed.fsdp",
        "torch.testing._internal.distributed.fake_pg",
    ],
    "check_primus.py": [
        "torch",
        "yaml",
        "megatron.training.arguments",
        "megatron.training.training",
        "primus.backends.megatron.argument_builder",
        "primus.core.config.primus_config",
    ],
    "check_nanotron.py": ["torch", "transformers"],
    "check_torchtitan.py": [
        "torch",
        "torchtitan.config",
        "torchtitan.trainer",
        "torchtitan.models.llama3",
        "torchtitan.models.qwen3",
        "torchtitan.models.deepseek_v3",
        "torch.testing._internal.distributed.fake_pg",
    ],
    # Those of training/, which are judged by steps that they run.
    "on_megatron.py": [
        "torch",
        "megatron.training.arguments",
        "megatron.training.training",
        "megatron.core.models.gpt.gpt_layer_specs",
        "megatron.core.optimizer",
        "torch.distributed.nn.functional",
    ],
    "on_torchtitan.py": [
        "torch",
        "torchtitan.config",
        "torchtitan.trainer",
        "torchtitan.models.llama3",
        "torchtitan.models.qwen3",
        "torchtitan.models.deepseek_v3",
    ],
    "on_olmo_core.py": [
        "torch",
        "numpy",
        "pandas",
        "rich",
        "torch.distributed.tensor.parallel",
        "torch.distributed.pipelining",
        "torch.distributed.fsdp",
    ],
    "on_llama_factory.py": [
        "torch",
        "transformers",
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "datasets",
        "peft",
        "transformers.trainer",
        "transformers.models.llama.modeling_llama",
        "transformers.models.auto.modeling_auto",
        "pandas",
    ],
    "on_axolotl.py": [
        "torch",
        "transformers",
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "datasets",
        "peft",
        "transformers.trainer",
        "transformers.models.llama.modeling_llama",
        "transformers.models.auto.modeling_auto",
        "pandas",
    ],
    "on_deepspeed.py": [
        "torch",
        "deepspeed",
        "deepspeed.runtime.engine",
        "deepspeed.pipe",
        "transformers.models.llama.modeling_llama",
    ],
    "on_accelerate.py": [
        "torch",
        "accelerate",
        "accelerate.commands.launch",
        "transformers.models.llama.modeling_llama",
        "torch.distributed.fsdp",
        "deepspeed",
    ],
}


def preload(checker):
    names = PRELOADED.get(checker, [])
    out, sys.stdout = sys.stdout, io.StringIO()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # forks share what is asked of CUDA: nothing
    if checker.startswith("on_"):
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # steps run as they are written
    if checker == "check_megatron_bridge.py":  # its providers want Transformer Engine, and a Hopper
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import te_stub
        import torch

        torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
        te_stub.install(names=te_stub.BRIDGE)
    if checker in ("check_torchtitan.py", "on_torchtitan.py"):  # it asks for its device when it is imported
        import torch

        torch._utils._get_available_device_type = lambda: "cpu"
    for name in names:
        try:
            __import__(name)
        except Exception as e:
            print(f"{name} is not preloaded: {e}", file=sys.stderr)
    if "torch" in sys.modules:  # without a device, asking for one does no harm to forks
        sys.modules["torch"].cuda._is_in_bad_fork = lambda: False
    sys.stdout = out
    gc.collect()
    gc.freeze()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def child(checker, case, write, rank, port, timeout):
    """Judges one file and never returns; the first rank's report goes to `write`, and so do the errors of all."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(write if rank == 0 else silent, 1)
    os.dup2(silent, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    signal.alarm(timeout)
    ranks = case.get("ranks", 1)
    if ranks > 1:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    world = ["--world-size", str(case["world_size"])] if case.get("world_size") else []
    sys.argv = [checker, case["file"], *world, *case.get("options", [])]
    code = 0
    try:
        runpy.run_path(checker, run_name="__main__")
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else (0 if e.code is None else 2)
    except BaseException:
        os.write(write, json.dumps({"accepted": False, "rank": rank, "error": traceback.format_exc()[-1500:]}).encode())
        code = 3
    sys.stdout.flush()
    os._exit(code)


def start(checker, case, timeout):
    """Process of each rank, and the pipe of the first."""
    read, write = os.pipe()
    port, pids = free_port(), []
    for rank in range(case.get("ranks", 1)):
        pid = os.fork()
        if pid == 0:
            os.close(read)
            child(checker, case, write, rank, port, timeout)
        pids.append(pid)
    os.close(write)
    return case, pids, read, time.time()


def written(text):
    """JSON objects of a text, one behind another, with anything before the first."""
    found, at = [], text.find("{")
    while at >= 0:
        try:
            report, at = json.JSONDecoder().raw_decode(text, at)
            found.append(report)
        except ValueError:
            at += 1
        at = text.find("{", at)
    return found


def finish(job):
    """The report of a file."""
    case, pids, read, since = job
    data = b""
    while block := os.read(read, 65536):
        data += block
    os.close(read)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    code = next((code for code in codes if code), 0)
    reports = written(data.decode(errors="replace"))
    # A rank that fails takes the others with it: the first to say so is the one.
    report = next((report for report in reports if not report.get("accepted")), reports[0] if reports else None)
    if report is None:
        report = {"accepted": False, "error": f"no report, exit codes {codes}: " + data[-300:].decode(errors="replace")}
    return {"file": case["file"], "rc": code, "seconds": round(time.time() - since, 1), **report}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--checker", required=True)
    ap.add_argument("--cases", required=True)
    ap.add_argument("--jobs", type=int, default=2)
    ap.add_argument("--path")
    ap.add_argument("--timeout", type=int, default=300)
    o = ap.parse_args()
    checker = (
        o.checker if os.path.exists(o.checker) else os.path.join(os.path.dirname(os.path.abspath(__file__)), o.checker)
    )
    if o.path:
        sys.path.insert(0, os.path.abspath(o.path))
    preload(os.path.basename(checker))
    rejected, live = 0, []
    for case in json.load(open(o.cases)):
        while live and sum(len(pids) for _, pids, *_ in live) + case.get("ranks", 1) > max(
            o.jobs, case.get("ranks", 1)
        ):
            report = finish(live.pop(0))
            rejected += report["rc"] != 0
            print(json.dumps(report, default=str), flush=True)
        live.append(start(checker, case, o.timeout))
    for job in live:
        report = finish(job)
        rejected += report["rc"] != 0
        print(json.dumps(report, default=str), flush=True)
    sys.exit(1 if rejected else 0)


main()
