"""Answers of the other questions: one plan in detail, budgets, launch files, predicted runs, findings, sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright._plan import Plan, Problem
from meshwright._record import Quantities, Record

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas


class Rank(Record):
    """Memory of one pipeline rank."""

    __slots__ = ()
    _quantities = frozenset({"memory"})

    rank: int
    peak_mem_gib: float
    memory: Quantities


class Explanation(Record):
    """One plan in detail: its time term by term, its memory rank by rank, why it does not run."""

    __slots__ = ("notes",)
    _kinds = {"problem": Problem, "ranks": Rank}

    notes: tuple[str, ...]
    """Assumptions of the answer, in sentences."""
    schema: int
    problem: Problem
    runs: bool
    reasons: tuple[dict[str, str], ...]
    ranks: tuple[Rank, ...]

    def __init__(self, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
        super().__init__(document)
        object.__setattr__(self, "notes", notes)

    def __reduce__(self) -> tuple[object, ...]:
        return Explanation, (self._document, self.notes)

    @property
    def prediction(self) -> Plan | None:
        """The plan with its step time and memory; none if its degrees do not divide."""
        found = self._document["prediction"]
        return None if found is None else Plan(found, self._document.get("arguments"))

    def _rows(self) -> Iterator[dict[str, Any]]:
        from meshwright._record import flat

        yield from (flat(rank) for rank in self._document["ranks"])


class Budget(Record):
    """Memory of a model under one optimizer recipe, before any split."""

    __slots__ = ()

    recipe: str
    note: str
    bytes_per_parameter: float
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    states_bytes: float
    states_gib: float
    activations_gib: float
    fewest_gpus: int


class Budgets(Record):
    """Memory of a model by optimizer recipe."""

    __slots__ = ()
    _kinds = {"budgets": Budget}

    schema: int
    model: str
    parameters: dict[str, int]
    seq_len: int
    micro_batch: int
    hbm_gib: float
    budgets: tuple[Budget, ...]

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["budgets"]


class LaunchFiles:
    """Files that a framework's launcher reads, by name; the first is what it runs."""

    __slots__ = ("files", "notes")

    def __init__(self, files: dict[str, str], notes: tuple[str, ...] = ()) -> None:
        self.files = files
        self.notes = notes

    def __repr__(self) -> str:
        return f"LaunchFiles({', '.join(self.files)})"

    def __str__(self) -> str:
        return "\n".join(self.files.values())

    def write(self, folder: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Writes the files into a folder, made if missing, and returns their paths; `force` replaces existing ones.

        Raises `FileExistsError` before anything is written.
        """
        from pathlib import Path

        into = Path(folder)
        paths = [into / name for name in self.files]
        for path in paths:
            if path.exists() and not force:
                raise FileExistsError(f"{path} already exists: force=True replaces it")
        into.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, self.files.values()):
            beside = path.with_name(f".{path.name}.new")
            beside.write_bytes(text.encode())
            beside.chmod(0o755 if path.suffix == ".sh" else 0o644)
            beside.replace(path)
        return paths


class Prediction(Record):
    """Prediction of one run."""

    __slots__ = ()
    _quantities = frozenset({"terms"})

    id: str
    status: str
    reason: str
    step_time_s: float | None
    tokens_per_s_per_gpu: float | None
    tflops_per_gpu_causal: float | None
    tflops_per_gpu_full: float | None
    mfu: float | None
    peak_mem_gib: float | None
    stack: str | None
    gpu: str | None
    step_time_p05_s: float | None
    step_time_p95_s: float | None
    peak_mem_p05_gib: float | None
    peak_mem_p95_gib: float | None
    oom_probability: float | None
    near_limit: bool | None
    device_mem_gib: float | None
    fits: bool | None
    terms: Quantities | None


class Predictions(tuple[Prediction, ...]):
    """Predictions in the order of their rows."""

    __slots__ = ()

    def to_pandas(self) -> pandas.DataFrame:
        """Table of the predictions, one row a run; needs pandas."""
        import pandas

        return pandas.DataFrame.from_records(list(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        from meshwright._record import flat

        yield from (flat(prediction._document) for prediction in self)

    def _repr_html_(self) -> str:
        from meshwright._record import table

        shown = ("id", "status", "step_time_s", "tokens_per_s_per_gpu", "mfu", "peak_mem_gib", "reason")
        return table([{key: row[key] for key in shown} for row in self._rows()])


class Validation(Record):
    """Errors of the predictions of measured runs, by class."""

    __slots__ = ()

    schema: int
    fit: str
    cross_validated: bool
    only: tuple[str, ...]
    runs: int
    time: tuple[dict[str, Any], ...]
    memory: tuple[dict[str, Any], ...]
    oom: dict[str, int]
    points: tuple[dict[str, Any], ...]

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["time"]


class RuleSummary(Record):
    """Loss of one rule of choosing trials, in the mean over choices."""

    __slots__ = ()

    rule: str
    """tune, model (the order of the prediction), random, space-filling or auto-configurator."""
    loss: tuple[float, ...]
    """Relative loss of step time after 1, 2, … trials; 1 where nothing has run."""
    within: tuple[float, ...]
    """Share of the choices within the tolerance of the fastest, after 1, 2, … trials."""
    stopped: float
    """Share of the choices where the rule stopped."""


class Replays(Record):
    """Measured choices replayed: the loss of each rule after each trial."""

    __slots__ = ()
    _kinds = {"rules": RuleSummary}

    schema: int
    fit: str
    cross_validated: bool
    held_out: bool
    tolerance: float
    rules: tuple[RuleSummary, ...]
    choices: tuple[dict[str, Any], ...]
    """Scores by choice."""

    def _rows(self) -> Iterator[dict[str, Any]]:
        for rule in self._document["rules"]:
            for at, (loss, within) in enumerate(zip(rule["loss"], rule["within"])):
                yield {"rule": rule["rule"], "trials": at + 1, "loss": loss, "within": within}


class Imported(Record):
    """Model, workload and plan that a launch file describes, with findings about it."""

    __slots__ = ()

    schema: int
    file: str
    kind: str
    command: str
    plan: str
    findings: tuple[dict[str, Any], ...]

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["findings"]


class Lint(Record):
    """Findings of a launch file on a cluster, with its prediction and faster plans."""

    __slots__ = ()
    _kinds = {"problem": Problem, "ranks": Rank, "prediction": Plan, "best": Plan}

    schema: int
    file: str
    kind: str
    framework: str
    command: str
    ok: bool
    problem: Problem | None
    prediction: Plan | None
    chance_of_oom: float | None
    ranks: tuple[Rank, ...]
    crossings: tuple[dict[str, Any], ...]
    changes: tuple[dict[str, Any], ...]
    best: Plan | None
    diagnosis: dict[str, Any] | None
    findings: tuple[dict[str, Any], ...]

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["findings"]


class Option(Record):
    """One option of a sweep: its machine and terms, and the days and dollars of all workloads on it."""

    __slots__ = ()

    option: int
    label: str
    choice: dict[str, str]
    status: str
    reason: str | None
    gpu: str
    gpus: int
    totals: dict[str, float] | None
    jobs: tuple[dict[str, Any], ...]


class SweepAnswer(Record):
    """Options of a sweep, their Pareto front of dollars and days, and what to buy."""

    __slots__ = ()
    _kinds = {"records": Option}

    schema: int
    sweep: str
    digest: str
    options: int
    infeasible: int
    front: tuple[int, ...]
    """Options on the Pareto front."""
    records: tuple[Option, ...]
    break_even: tuple[dict[str, Any], ...]
    marginals: tuple[dict[str, Any], ...]
    fleet: dict[str, Any] | None

    def _rows(self) -> Iterator[dict[str, Any]]:
        from meshwright._record import flat

        for record in self._document["records"]:
            totals = flat(record["totals"] or {})
            kept = ("option", "label", "status", "reason", "gpu", "gpus")
            yield {**{key: record[key] for key in kept}, **record["choice"], **totals}
