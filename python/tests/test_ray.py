"""A sweep on a local Ray cluster of two workers, one of which is killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from test_answers import SWEEP

import meshwright as mw

ray = pytest.importorskip("ray", reason="Ray is not installed")


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    import meshwright.ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    file = tmp_path / "small.toml"
    file.write_text(SWEEP.replace("[64, 128]", "[8, 16, 32, 64]"), encoding="utf-8")
    whole = mw.sweep(file, out=tmp_path / "one")
    quiet: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **quiet})
    workers = [cluster.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        told: list[int] = []

        def kill(done: int, every: int) -> None:
            told.append(done)
            if len(told) == 2:
                cluster.remove_node(workers.pop(), allow_graceful=False)

        out = tmp_path / "two"
        assert meshwright.ray.sweep(file, out=out, shards=8, progress=kill) == whole
        assert (out / "results.jsonl").read_bytes() == (tmp_path / "one/results.jsonl").read_bytes()
        assert told[-1] == whole.options and len(workers) == 1

        lost = next(iter(out.glob("shards/*.jsonl")))
        lost.unlink()
        again: list[int] = []
        assert meshwright.ray.sweep(file, out=out, shards=8, progress=lambda done, _: again.append(done)) == whole
        assert len(again) == 1
    finally:
        ray.shutdown()
        cluster.shutdown()
