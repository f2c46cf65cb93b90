#!/usr/bin/env python3
"""Starts emitted `sbatch` scripts under a stand-in of Slurm, on two nodes of this machine, up to the ranks' first steps.

    slurm.py --meshwright target/debug/meshwright [--only megatron,deepspeed]

The stand-ins are `slurm/bin/{sbatch,srun,scontrol}`; torchrun and `accelerate launch` are the real ones. As root each node has a host
name of its own and an address of its own on the loopback; else the nodes are named by their addresses. Megatron, torchtitan, DeepSpeed
and Accelerate take two training steps (`slurm/programs`, `training/on_*.py`); nanotron and Megatron-Bridge, whose kernels need a GPU,
are stood in for by a program that joins by the launcher's environment and adds up the ranks.

Judged are: the ranks are 0 to 3, once each, in a world of 4, two on each node; Slurm starts one task a node; a variable that the
script marks as to be set, and that is not, ends it with a sentence that names it; an array runs each of its folders.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "training")]
import draw
from shrink import shrunk, toml

PROGRAMS, BIN = os.path.join(HERE, "slurm", "programs"), os.path.join(HERE, "slurm", "bin")
CLUSTER = """name = "Two nodes of two"
gpu = "h100-sxm"
gpus = 4
gpus_per_node = 2
scale_up_gpus = 2
host = "x86"
host_memory = "1 TB"
source = "made up"

[[level]]
name = "leaf"
gpus = 4
bandwidth = { value = "400 Gb/s", source = "made up" }
efficiency = 0.85
hop_latency = 0.5
"""
BATCH, PLANS = (
    8,
    {
        "megatron": "tp=2 pp=2 zero=1",
        "torchtitan": "tp=2 zero=3",
        "deepspeed": "zero=2",
        "accelerate": "zero=3",
        "nanotron": "tp=2 pp=2 zero=0",
        "megatron-bridge": "tp=2 pp=2 zero=1",
    },
)
REAL = ("megatron", "torchtitan", "deepspeed", "accelerate")


def has_hosts():
    """Whether a node can have a host name of its own."""
    return subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode == 0


def model():
    """Llama 3 8B, small."""
    import tomllib

    with open(os.path.join(draw.ROOT, "models", "llama3-8b.toml"), "rb") as file:
        return toml(shrunk(tomllib.load(file), 4))


class Job:
    """An emitted folder and the environment that its job starts in."""

    def __init__(self, o, framework, *more):
        self.framework, self.folder = (
            framework,
            os.path.join(o.out, "-".join(["slurm", framework, *[word.strip("-") for word in more]])),
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        for name, text in (("model.toml", model()), ("cluster.toml", CLUSTER)):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
        plan = [] if more and more[0] == "--top" else ["--plan", PLANS[framework]]
        done = subprocess.run(
            [
                o.meshwright,
                "emit",
                framework,
                os.path.join(self.folder, "model.toml"),
                os.path.join(self.folder, "cluster.toml"),
                "--global-batch",
                str(BATCH),
                "--seq-len",
                "64",
                *plan,
                *(more or ("--steps", "50")),
                "--out",
                self.folder,
                "--force",
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{framework}: not emitted: {done.stderr}")
        self.ranks = os.path.join(self.folder, "ranks")
        if framework in ("deepspeed", "accelerate"):  # the user's program
            os.symlink(os.path.join(PROGRAMS, "train.py"), os.path.join(self.folder, "train.py"))
        if framework == "torchtitan":
            import on_torchtitan

            on_torchtitan.assets(self.folder)
        named = has_hosts()
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w") as file:
            file.write("127.0.0.1 localhost\n127.0.0.7 gpu07\n127.0.0.8 gpu08\n")
        self.nodes = ("gpu07", "gpu08") if named else ("127.0.0.7", "127.0.0.8")
        self.variables = {
            **os.environ,
            "PATH": BIN + os.pathsep + os.environ["PATH"],
            "NODES": " ".join(self.nodes),
            "NODELIST": "gpu[07-08]",
            "HOSTS": hosts if named else "",
            "RANKS": self.ranks,
            "CONTAINER": "none",
            "MEGATRON_LM": PROGRAMS,
            "NANOTRON": PROGRAMS,
            "FRAMEWORK": framework,
            "BATCH": str(BATCH),
            "CUDA_VISIBLE_DEVICES": "",
            "TORCHDYNAMO_DISABLE": "1",
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        if os.path.isdir(own := os.path.join(PROGRAMS, {"megatron-bridge": "bridge"}.get(framework, framework))):
            self.variables["PYTHONPATH"] = own
        if not (more and more[0] == "--top"):
            self.variables["PLAN"] = json.dumps(draw.resolved(self.folder))

    def run(self, script="launch.sbatch", **more):
        """The finished job."""
        shutil.rmtree(self.ranks, ignore_errors=True)
        os.makedirs(self.ranks)
        variables = {name: value for name, value in (self.variables | more).items() if value is not None}
        return subprocess.run(
            ["sbatch", script], cwd=self.folder, env=variables, capture_output=True, text=True, timeout=240
        )

    def reports(self):
        """Reports that the ranks wrote, by rank."""
        found = [
            json.load(open(os.path.join(self.ranks, name)))
            for name in sorted(os.listdir(self.ranks))
            if name.endswith(".json")
        ]
        return sorted(found, key=lambda report: report["rank"])

    def tasks(self):
        """Command lines of `srun`."""
        path = os.path.join(self.ranks, "srun")
        return open(path).read().splitlines() if os.path.exists(path) else []

    def marked(self):
        """Variables that its scripts want set."""
        text = "".join(
            open(os.path.join(self.folder, name)).read()
            for name in sorted(os.listdir(self.folder))
            if name.endswith((".sh", ".sbatch"))
        )
        return sorted(set(re.findall(r'^: "\$\{(\w+):\?set', text, re.M)))


def launched(job, done):
    """Faults of a job that must have started its ranks."""
    if done.returncode:
        return [
            f"exit {done.returncode}: "
            + "\n    ".join(
                [line for line in done.stderr.splitlines() if "Error" in line][:6] or done.stderr.splitlines()[-6:]
            )
        ]
    wrong, ranks = [], job.reports()
    if [report["rank"] for report in ranks] != [0, 1, 2, 3] or any(report["world"] != 4 for report in ranks):
        wrong.append(f"ranks {[(report['rank'], report['world']) for report in ranks]}")
    if [report["host"] for report in ranks] != [job.nodes[0]] * 2 + [job.nodes[1]] * 2:
        wrong.append(f"nodes {[report['host'] for report in ranks]}")
    if job.variables["HOSTS"] and any(report["name"] != report["host"] for report in ranks):
        wrong.append(f"host names {[report['name'] for report in ranks]}")
    if [report["local"] for report in ranks] != [0, 1, 0, 1]:
        wrong.append(f"local ranks {[report['local'] for report in ranks]}")
    tasks = job.tasks()
    if len(tasks) != 1 or "--ntasks-per-node=1" not in tasks[0]:
        wrong.append(f"tasks {tasks}")
    losses = [x for report in ranks for x in report["losses"]]
    if job.framework in REAL and not (
        losses and all(map(math.isfinite, losses)) and all(report["how"] == job.framework for report in ranks)
    ):
        wrong.append(f"losses {losses} of {[report['how'] for report in ranks]}")
    return wrong


def unset(job):
    """Faults of jobs without a variable that they need."""
    wrong = []
    for name in [*job.marked(), "SLURM_JOB_NODELIST"]:
        script = ["bash", "launch.sbatch"] if name == "SLURM_JOB_NODELIST" else ["sbatch", "launch.sbatch"]
        variables = {key: value for key, value in job.variables.items() if key != name}
        variables |= {"SLURM_SUBMIT_DIR": job.folder} if name == "SLURM_JOB_NODELIST" else {}
        os.makedirs(job.ranks, exist_ok=True)
        done = subprocess.run(script, cwd=job.folder, env=variables, capture_output=True, text=True, timeout=60)
        naming = [line for line in done.stderr.splitlines() if name in line]
        if done.returncode == 0 or not naming:
            wrong.append(f"without {name}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return wrong


def array(o):
    """Faults of an array of the three best plans."""
    job, wrong = Job(o, "megatron", "--top", "3"), []
    done = job.run(
        "array.sbatch",
        DATA="/data",
        TOKENIZER="t",
        SAVE="/tmp/save",
        LOAD="/tmp/save",
        STEPS="50",
        MEGATRON_LM=os.path.join(PROGRAMS, "alone"),
    )
    if done.returncode or len(job.tasks()) != 3:
        wrong.append(f"exit {done.returncode}, tasks {job.tasks()}: {done.stderr[-800:]}")
    ranks = [report["rank"] for report in job.reports()]
    if ranks != [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3:
        wrong.append(f"ranks {ranks} of three jobs of four")
    return wrong


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meshwright", required=True)
    ap.add_argument("--out", default="target/slurm")
    ap.add_argument("--only", default=",".join([*PLANS, "array"]))
    o, failed = ap.parse_args(), 0
    o.out, o.meshwright = os.path.abspath(o.out), os.path.abspath(o.meshwright)
    print(
        "two nodes with host names and addresses of their own"
        if has_hosts()
        else "two nodes named by their addresses: no host names of their own here"
    )
    for framework in o.only.split(","):
        since = time.time()
        if framework == "array":
            wrong, what = array(o), "each of three plans in its folder, stand-in"
        else:
            job = Job(o, framework)
            wrong = launched(job, job.run()) + unset(job)
            what = f"{'two steps of its own' if framework in REAL else 'stand-in'}; without {', '.join(job.marked())}: refused with a sentence"
        failed += bool(wrong)
        print(
            f"{'FAILED' if wrong else 'ok'} {framework}: {what} ({time.time() - since:.0f} s)"
            + "".join(f"\n    {fault}" for fault in wrong),
            flush=True,
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
