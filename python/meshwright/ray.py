"""Sweeps on a Ray cluster: each shard is a task, and the results are those of one machine to the byte.

Ray itself is imported when a function is called: `pip install meshwright[ray]`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright._sweep import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright._answers import SweepAnswer

__all__ = ["sweep"]

SHARDS_PER_CPU = 16
"""Shards for each CPU of the cluster, so that the last one is a small part of the whole."""

TASKS_PER_CPU = 2
"""Tasks that wait or run for each CPU: results of more would only fill the memory of the cluster."""


def meshwright_shard(work: Work, index: int, cpus: int) -> str:
    """Task: results of a shard, on as many threads as the task has CPUs."""
    os.environ["RAYON_NUM_THREADS"] = str(cpus)
    return work.shard(index)


def sweep(
    file: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    address: str | None = "auto",
    shards: int | None = None,
    cpus_per_task: int = 1,
    retries: int = 3,
    progress: Callable[[int, int], object] | None = None,
) -> SweepAnswer:
    """Plans workloads on all purchase options of a sweep file, shard by shard on the workers of a Ray cluster.

    Connects to `address`, unless this process has a connection already. Results arrive in `out` as shards finish, and a sweep
    that was ended goes on with those that are missing, if it has as many `shards`. A task whose worker dies runs again, up to
    `retries` times. At most two results for each CPU are in the cluster's memory. `progress(done, all)` counts options.
    """
    import ray

    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    work = Work.read(file, shards or cpus * SHARDS_PER_CPU)
    folder = Path(out)
    waiting = work.missing(folder)[::-1]
    done = 0
    task = ray.remote(meshwright_shard).options(num_cpus=cpus_per_task, max_retries=retries)
    shared = ray.put(work)
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < TASKS_PER_CPU * cpus:
                index = waiting.pop()
                running[task.remote(shared, index, cpus_per_task)] = index
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                lines = ray.get(reference)
                work.store(folder, running.pop(reference), lines)
                done += lines.count("\n")
            if progress is not None:
                progress(done, work.options)
    finally:
        for reference in running:
            ray.cancel(reference)
    return work.merge(folder)
