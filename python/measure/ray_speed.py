"""Speed of a sweep of 10,240 options on Ray with two workers against one: `python python/measure/ray_speed.py [rounds]`.

A local cluster of two nodes with one CPU each runs the same sweep, warmed up, as two tasks at a time and as one. Each round prints both
times, their ratio, and the load of the machine before it: on a machine of two cores, whatever else runs takes from the two workers more
than from the one. So each run also prints where its CPU seconds went (Linux only), and the ratio that they allow on two idle cores:

    ratio = (tasks + join/2)/((tasks + driver + Ray)/2 + join/2)

for one worker has a core to itself, two share both cores with the driver and Ray's own processes, and the join runs on both cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import meshwright.ray
from meshwright._work import Sweep

SHARDS = 32
SWEEP = """name = "speed"
[[workload]]
model = "llama3-8b"
tokens = "1 T"
[options]
gpu = ["h100-sxm", "b200-sxm"]
gpus = {gpus}
nic = ["200 Gb/s", "400 Gb/s", "800 Gb/s", "1600 Gb/s"]
oversubscription = [1, 2]
price = {{ from = "1.05 $/h", to = "5 $/h", step = 0.05 }}
"""


class Run(NamedTuple):
    """Wall seconds of a sweep, and CPU seconds of its tasks, of the driver before and in the join, and of Ray."""

    wall: float
    tasks: float
    driver: float
    join: float
    ray: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s (CPU: tasks {self.tasks:.2f}, driver {self.driver:.2f}, join {self.join:.2f}, Ray {self.ray:.2f})"

    @property
    def bound(self) -> float:
        """Ratio that the CPU seconds allow."""
        return (self.tasks + self.join / 2) / ((self.tasks + self.driver + self.ray) / 2 + self.join / 2)


def cpu() -> dict[str, float]:
    """CPU seconds of this process, of its descendants that are workers, and of the others: Ray's own."""
    parents: dict[int, int] = {}
    seconds: dict[int, tuple[str, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(") ")
        except OSError:
            continue
        number, _, name = head.partition(" (")
        fields = tail.split()
        parents[int(number)] = int(fields[1])
        seconds[int(number)] = (name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def mine(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and mine(parents[pid]))

    sums = {"driver": 0.0, "tasks": 0.0, "ray": 0.0}
    for pid, (name, spent) in seconds.items():
        if mine(pid):
            sums["driver" if pid == os.getpid() else "tasks" if name.startswith("ray::") else "ray"] += spent
    return sums


def measured(workers: int, folder: Path) -> Run:
    """The sweep on a cluster of so many workers."""
    import ray
    from ray.cluster_utils import Cluster

    quiet: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    for _ in range(workers):
        cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        for name, gpus in (("warm", [8, 16]), ("timed", [256, 384, 512, 768, 1024, 1536, 2048, 3072])):
            file, out = folder / f"{name}.toml", folder / f"{name}-{workers}"
            file.write_text(SWEEP.format(gpus=gpus), encoding="utf-8")
            before, start = cpu(), time.perf_counter()
            meshwright.ray.sweep(file, out=out, shards=SHARDS)
            wall = time.perf_counter() - start
            spent = {kind: seconds - before[kind] for kind, seconds in cpu().items()}
        start = time.process_time()
        answer = Sweep.read(file, SHARDS).merge(out)
        join = time.process_time() - start
        assert answer.options == 10_240
        return Run(wall, spent["tasks"], spent["driver"] - join, join, spent["ray"])
    finally:
        ray.shutdown()
        cluster.shutdown()


def main(rounds: int = 3) -> None:
    """Prints each round."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            load = os.getloadavg()[0]
            one, two = (measured(workers, Path(folder)) for workers in (1, 2))
            same = (
                Path(folder, "timed-1/results.jsonl").read_bytes() == Path(folder, "timed-2/results.jsonl").read_bytes()
            )
        print(f"one worker: {one}\ntwo workers: {two}", flush=True)
        print(
            f"ratio {one.wall / two.wall:.2f}, allowed {two.bound:.2f}, load {load:.1f}, same bytes: {same}", flush=True
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
