"""Work on a local Ray cluster of two workers, one of which is killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_answers import RUNS, SWEEP
from test_tune import MEASURED

import meshwright as mw
from meshwright._functions import offline_question, validate_question
from meshwright._work import Replay, Validate

ray = pytest.importorskip("ray", reason="Ray is not installed")


@contextmanager
def two_workers() -> Iterator[Callable[[], None]]:
    """Cluster of two workers; gives what kills one of them."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    workers = [cluster.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        yield lambda: cluster.remove_node(workers.pop(), allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    import meshwright.ray

    file = tmp_path / "small.toml"
    file.write_text(SWEEP.replace("[64, 128]", "[8, 16, 32, 64]"), encoding="utf-8")
    whole = mw.sweep(file, out=tmp_path / "one")
    with two_workers() as kill:
        told: list[int] = []

        def count(done: int, every: int) -> None:
            told.append(done)
            if len(told) == 2:
                kill()

        out = tmp_path / "two"
        assert meshwright.ray.sweep(file, out=out, shards=8, progress=count) == whole
        assert (out / "results.jsonl").read_bytes() == (tmp_path / "one/results.jsonl").read_bytes()
        assert told[-1] == whole.options

        lost = next(iter(out.glob("shards/*.jsonl")))
        lost.unlink()
        again: list[int] = []
        assert meshwright.ray.sweep(file, out=out, shards=8, progress=lambda done, _: again.append(done)) == whole
        assert len(again) == 1


def test_validation_and_offline_tuning_have_the_bytes_of_one_machine(tmp_path: Path) -> None:
    import meshwright.ray

    scored = Validate(validate_question(RUNS, None, (), True, None, None), 1)
    replayed = Replay(offline_question(MEASURED, 0.05, False, False, None, None), 1)
    with two_workers() as kill:
        parts: list[tuple[int, int]] = []

        def count(done: int, every: int) -> None:
            parts.append((done, every))
            if done == 2:
                kill()

        found = meshwright.ray.validate(RUNS, out=tmp_path, cross_validated=True, parts=6, progress=count)
        whole = scored.document(scored.part(1))
        assert (tmp_path / "validate.json").read_text(encoding="utf-8") == whole
        assert found == scored.answer(whole) and parts[-1] == (6, 6)
        answer = meshwright.ray.tune_offline(MEASURED, out=tmp_path, parts=3)
        whole = replayed.document(replayed.part(1))
        assert (tmp_path / "tune-offline.json").read_text(encoding="utf-8") == whole
        assert answer == replayed.answer(whole)
        again: list[int] = []
        meshwright.ray.tune_offline(MEASURED, out=tmp_path, parts=3, progress=lambda done, _: again.append(done))
        assert again == []
