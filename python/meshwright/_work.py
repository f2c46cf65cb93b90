"""Work in parts, whose results are joined to those of undivided work, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from meshwright import _native
from meshwright._answers import Replays, SweepAnswer, Validation
from meshwright._record import Record, Unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Answer = TypeVar("Answer", bound=Record)


class Work(Generic[Answer]):
    """Question in a number of parts, small enough to be sent to a worker. Results of a part are lines of JSON."""

    __slots__ = ("digest", "parts", "total")

    digest: str
    """Fingerprint of the question; a file of results has it in its name, so that those of another one are never taken for it."""
    parts: int
    """Number of parts, counted from 1."""
    total: int
    """Number that progress goes up to."""

    def part(self, index: int, progress: Callable[[int, int], object] | None = None) -> str:
        """Results of a part."""
        raise NotImplementedError

    def merge(self, out: Path) -> Answer:
        """Answer of the stored parts, written into the folder too."""
        raise NotImplementedError

    def done(self, lines: str) -> int:
        """Contribution of a part's results to the progress."""
        return 1

    def path(self, out: Path, index: int) -> Path:
        """File of a part."""
        return out / "shards" / f"{self.digest}-{index}-of-{self.parts}.jsonl"

    def missing(self, out: Path) -> list[int]:
        """Parts without results."""
        return [index for index in self.indices() if not self.path(out, index).exists()]

    def indices(self) -> Iterable[int]:
        """Parts, counted from 1."""
        return range(1, self.parts + 1)

    def store(self, out: Path, index: int, lines: str) -> None:
        """Writes the results of a part."""
        replace(self.path(out, index), lines)


class Sweep(Work[SweepAnswer]):
    """A sweep file; its progress counts options."""

    __slots__ = ("origin", "text")

    def __init__(self, text: str, origin: str, parts: int) -> None:
        _, self.digest, self.total, machines = _native.sweep_head(text, origin)
        self.text = text
        self.origin = origin
        self.parts = max(1, min(parts, machines))

    def __reduce__(self) -> tuple[object, ...]:
        return Sweep, (self.text, self.origin, self.parts)

    @classmethod
    def read(cls, file: str | os.PathLike[str], parts: int) -> Sweep:
        """Work of a sweep file."""
        return cls(Path(file).read_text(encoding="utf-8"), os.fspath(file), parts)

    def part(self, index: int, progress: Callable[[int, int], object] | None = None) -> str:
        return _native.sweep_shard(self.text, self.origin, index, self.parts, progress)

    def done(self, lines: str) -> int:
        return lines.count("\n")

    def answer(self, lines: str) -> SweepAnswer:
        """Answer of results in memory."""
        return answered(*_native.sweep_answer(self.text, self.origin, lines))

    def merge(self, out: Path) -> SweepAnswer:
        files = [self.path(out, index) for index in self.indices()]
        return answered(*_native.sweep_merge(self.text, self.origin, files, out / "results.jsonl"))


def answered(document: str, records: list[str]) -> SweepAnswer:
    """Answer of a document without its records, and of these, each a text."""
    return SweepAnswer({**json.loads(document), "records": Unread(records)})


class Rows(Work[Answer]):
    """A question about measured runs; its progress counts parts."""

    __slots__ = ("question",)
    name: str

    def __init__(self, question: dict[str, Any], parts: int) -> None:
        self.question = json.dumps(question)
        self.digest = hashlib.sha256(f"{self.name} {_native.VERSION} {self.question}".encode()).hexdigest()[:16]
        self.parts = self.total = max(1, parts)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (json.loads(self.question), self.parts)

    def document(self, lines: str) -> str:
        """Document of the results of all parts in their order."""
        raise NotImplementedError

    def answer(self, document: str) -> Answer:
        """Answer of a document."""
        raise NotImplementedError

    def merge(self, out: Path) -> Answer:
        lines = "".join(self.path(out, index).read_text(encoding="utf-8") for index in self.indices())
        document = self.document(lines)
        replace(out / f"{self.name}.json", document)
        return self.answer(document)


class Validate(Rows[Validation]):
    """Scores of predictions, in parts of the rows."""

    __slots__ = ()
    name = "validate"

    def part(self, index: int, progress: Callable[[int, int], object] | None = None) -> str:
        return _native.validate_part(self.question, index, self.parts)

    def document(self, lines: str) -> str:
        return _native.validate_document(self.question, lines)

    def answer(self, document: str) -> Validation:
        return Validation(json.loads(document))


class Replay(Rows[Replays]):
    """Scores of offline tuning, in parts of the models."""

    __slots__ = ()
    name = "tune-offline"

    def part(self, index: int, progress: Callable[[int, int], object] | None = None) -> str:
        return _native.replay_part(self.question, index, self.parts, progress)

    def document(self, lines: str) -> str:
        return _native.replay_document(self.question, lines)

    def answer(self, document: str) -> Replays:
        return Replays(json.loads(document))


def replace(path: Path, text: str) -> None:
    """Writes a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(text.encode())
    os.replace(beside, path)
