"""A sweep in shards, whose results are joined to those of an undivided sweep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright import _native
from meshwright._answers import SweepAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Work:
    """A sweep file with its number of shards; small enough to be sent to a worker."""

    __slots__ = ("digest", "options", "origin", "shards", "text")

    def __init__(self, text: str, origin: str, shards: int) -> None:
        _, self.digest, self.options, machines = _native.sweep_head(text, origin)
        self.text = text
        self.origin = origin
        self.shards = max(1, min(shards, machines))

    def __reduce__(self) -> tuple[object, ...]:
        return Work, (self.text, self.origin, self.shards)

    @classmethod
    def read(cls, file: str | os.PathLike[str], shards: int) -> Work:
        """Work of a sweep file."""
        return cls(Path(file).read_text(encoding="utf-8"), os.fspath(file), shards)

    def indices(self) -> Iterable[int]:
        """Shards, counted from 1."""
        return range(1, self.shards + 1)

    def shard(self, index: int, progress: Callable[[int, int], object] | None = None) -> str:
        """Results of a shard, one line an option."""
        return _native.sweep_shard(self.text, self.origin, index, self.shards, progress)

    def path(self, out: Path, index: int) -> Path:
        """File of a shard; its name has the digest of the sweep, so that results of another one are never taken for it."""
        return out / "shards" / f"{self.digest}-{index}-of-{self.shards}.jsonl"

    def missing(self, out: Path) -> list[int]:
        """Shards without results."""
        return [index for index in self.indices() if not self.path(out, index).exists()]

    def store(self, out: Path, index: int, lines: str) -> None:
        """Writes the results of a shard, whole or not at all."""
        path = self.path(out, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_bytes(lines.encode())
        os.replace(beside, path)

    def answer(self, lines: str) -> SweepAnswer:
        """Answer of results in memory."""
        return SweepAnswer(json.loads(_native.sweep_answer(self.text, self.origin, lines)))

    def merge(self, out: Path) -> SweepAnswer:
        """Joins the shards into `results.jsonl`."""
        files = [self.path(out, index) for index in self.indices()]
        document = _native.sweep_merge(self.text, self.origin, files, out / "results.jsonl")
        return SweepAnswer(json.loads(document))
