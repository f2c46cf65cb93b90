"""Sweeps, validations and offline tuning on a Ray cluster: each part is a task, and results are those of one machine to the byte.

Ray itself is imported when a function is called: `pip install meshwright[ray]`.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright._functions import offline_question, validate_question
from meshwright._work import Replay, Sweep, Validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypedDict

    from typing_extensions import Unpack

    from meshwright._answers import Replays, SweepAnswer, Validation
    from meshwright._functions import Runs
    from meshwright._work import Answer, Work

    class ClusterOptions(TypedDict, total=False):
        """Connection to a Ray cluster, and its tasks."""

        address: str | None
        """Address of the cluster, `"auto"` unless given; not read where this process has a connection already."""
        cpus_per_task: int
        """CPUs of a task, 1 unless given."""
        retries: int
        """Times that a task whose worker dies runs again, 3 unless given."""
        progress: Callable[[int, int], object] | None
        """Function that is told how much is done, and of how much."""


__all__ = ["sweep", "tune_offline", "validate"]

PARTS_PER_CPU = 16
"""Parts for each CPU of the cluster, so that the last one is a small part of the whole."""

TASKS_PER_CPU = 2
"""Tasks that wait or run for each CPU: results of more would only fill the memory of the cluster."""


def meshwright_part(work: Work[Any], index: int, cpus: int) -> bytes:
    """Task: results of a part, on as many threads as the task has CPUs.

    Compressed they are a thirtieth, which Ray sends with its reply and does not pass through its object store.
    """
    os.environ["RAYON_NUM_THREADS"] = str(cpus)
    return zlib.compress(work.part(index).encode(), 1)


def cluster_cpus(address: str | None) -> int:
    """CPUs of the cluster, to which this process connects unless it has."""
    import ray

    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def run(
    work: Callable[[int], Work[Answer]],
    out: str | os.PathLike[str],
    parts: int | None,
    *,
    address: str | None = "auto",
    cpus_per_task: int = 1,
    retries: int = 3,
    progress: Callable[[int, int], object] | None = None,
) -> Answer:
    """Answer of work, by its number of parts, whose missing parts are worked through on the cluster."""
    cpus = cluster_cpus(address)
    return run_on(cpus, work(parts or cpus * PARTS_PER_CPU), Path(out), cpus_per_task, retries, progress)


def run_on(
    cpus: int,
    work: Work[Answer],
    folder: Path,
    cpus_per_task: int,
    retries: int,
    progress: Callable[[int, int], object] | None,
) -> Answer:
    """Answer of work whose missing parts are worked through by a cluster of so many CPUs."""
    import ray

    waiting = work.missing(folder)[::-1]
    done = 0
    task = ray.remote(meshwright_part).options(num_cpus=cpus_per_task, max_retries=retries)
    shared = ray.put(work)
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < TASKS_PER_CPU * cpus:
                index = waiting.pop()
                running[task.remote(shared, index, cpus_per_task)] = index
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                lines = zlib.decompress(ray.get(reference)).decode()
                work.store(folder, running.pop(reference), lines)
                done += work.done(lines)
            if progress is not None:
                progress(done, work.total)
    finally:
        for reference in running:
            ray.cancel(reference)
    return work.merge(folder)


def sweep(
    file: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    shards: int | None = None,
    **cluster: Unpack[ClusterOptions],
) -> SweepAnswer:
    """Plans workloads on all purchase options of a sweep file, shard by shard on the workers of a Ray cluster.

    Connects to `address`, unless this process has a connection already. Results arrive in `out` as shards finish, and a sweep
    that was ended goes on with those that are missing, if it has as many `shards`. A task whose worker dies runs again, up to
    `retries` times. At most two results for each CPU are in the cluster's memory. `progress(done, all)` counts options.
    """
    return run(lambda parts: Sweep.read(file, parts), out, shards, **cluster)


def validate(
    runs: Runs,
    *,
    out: str | os.PathLike[str],
    witnesses: Runs | None = None,
    only: Mapping[str, str] | Iterable[str] = (),
    cross_validated: bool = False,
    fit: str | None = None,
    set: Mapping[str, str] | None = None,
    parts: int | None = None,
    **cluster: Unpack[ClusterOptions],
) -> Validation:
    """Scores predictions against measured runs, as `meshwright.validate` does; the rows are predicted in `parts` on a Ray cluster.

    Predictions arrive in `out` as parts finish, and are not asked for again; `validate.json` there is the document of the
    answer, the same as of one machine. Connection, retries and memory are those of `sweep`. `progress(done, all)` counts parts.
    """
    question = validate_question(runs, witnesses, only, cross_validated, fit, set)
    return run(lambda parts: Validate(question, parts), out, parts, **cluster)


def tune_offline(
    runs: Runs,
    *,
    out: str | os.PathLike[str],
    tolerance: float = 0.05,
    cross_validated: bool = False,
    held_out: bool = False,
    fit: str | None = None,
    set: Mapping[str, str] | None = None,
    parts: int | None = None,
    **cluster: Unpack[ClusterOptions],
) -> Replays:
    """Replays measured choices, as `meshwright.tune_offline` does; models are worked through in `parts` on a Ray cluster.

    Scores arrive in `out` as parts finish, and are not asked for again; `tune-offline.json` there is the document of the
    answer, the same as of one machine. Connection, retries and memory are those of `sweep`. `progress(done, all)` counts parts.
    """
    question = offline_question(runs, tolerance, cross_validated, held_out, fit, set)
    return run(lambda parts: Replay(question, parts), out, parts, **cluster)
