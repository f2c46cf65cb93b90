"""Speed of a sweep of 10,240 options on Ray with two workers against one: `python python/measure/ray_speed.py [rounds]`.

A local cluster of two nodes with one CPU each runs the same sweep, warmed up, as two tasks at a time and as one. Each round prints both
times, their ratio, and the load of the machine before it: on a machine of two cores, whatever else runs takes from the two workers more
than from the one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import meshwright.ray

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


def measured(workers: int, folder: Path) -> tuple[float, int]:
    """Wall seconds of the sweep on a cluster of so many workers, and its options."""
    import ray
    from ray.cluster_utils import Cluster

    quiet: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    for _ in range(workers):
        cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        for name, gpus in (("warm", [8, 16]), ("timed", [256, 384, 512, 768, 1024, 1536, 2048, 3072])):
            file = folder / f"{name}.toml"
            file.write_text(SWEEP.format(gpus=gpus), encoding="utf-8")
            start = time.perf_counter()
            answer = meshwright.ray.sweep(file, out=folder / f"{name}-{workers}", shards=32)
        return time.perf_counter() - start, answer.options
    finally:
        ray.shutdown()
        cluster.shutdown()


def main(rounds: int = 3) -> None:
    """Prints each round."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            load = os.getloadavg()[0]
            one, options = measured(1, Path(folder))
            two, _ = measured(2, Path(folder))
            same = Path(folder, "timed-1/results.jsonl").read_bytes() == Path(folder, "timed-2/results.jsonl").read_bytes()
        print(f"{options} options: {one:.1f} s, {two:.1f} s, ratio {one / two:.2f}, load {load:.1f}, same bytes: {same}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
