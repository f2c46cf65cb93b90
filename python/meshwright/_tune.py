"""Studies of tune: a folder of trials, what they say about the plans of a problem, and which plan to time next."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright import _native
from meshwright._functions import csv_text
from meshwright._question import given, problem, settings
from meshwright._record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Unpack

    from meshwright._functions import Runs
    from meshwright._question import Settings, Workload, WorkloadOptions


class TriedPlan(Record):
    """Plan of a study, with what is believed of it given the trials."""

    __slots__ = ()

    trial: int
    id: str | None
    plan: str
    status: str
    """open, waiting, ran, oom or failed."""
    step_s: float | None
    """Measured step time in seconds."""
    predicted_s: float
    predicted_gib: float
    median_s: float
    """Median of the step time at full scale in seconds."""
    p05_s: float
    p95_s: float
    best: float
    """Probability that it is the fastest."""
    runs: float
    """Probability that it runs."""
    gain: float
    """Expected relative gain of timing it."""


class StudyStatus(Record):
    """Plans of a study by what is believed of their step time, and whether further timing is worth it."""

    __slots__ = ("notes",)
    _kinds = {"plans": TriedPlan}

    notes: tuple[str, ...]
    """Assumptions of the answer, in sentences."""
    schema: int
    tolerance: float
    budget: int
    trials_left: int
    decided: bool
    leader: int | None
    """Number of the fastest trial so far."""
    expected_loss: float | None
    """Relative loss of stopping now, in the mean."""
    within_tolerance: float | None
    """Probability that the leader is within the tolerance of the fastest."""
    next: int | None
    """Number of the plan whose timing is worth most."""
    plans: tuple[TriedPlan, ...]

    def __init__(self, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
        super().__init__(document)
        object.__setattr__(self, "notes", notes)

    def __reduce__(self) -> tuple[object, ...]:
        return StudyStatus, (self._document, self.notes)

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["plans"]


class LaunchedTrial(Record):
    """Trial whose launch files were written."""

    __slots__ = ()

    trial: int
    plan: str
    median_s: float
    runs: float
    best: float
    files: tuple[str, ...]


class Launch(Record):
    """Trials to run now, and the Slurm array that runs them; `decided` if none is worth its time."""

    __slots__ = ()
    _kinds = {"trials": LaunchedTrial}

    decided: bool
    trials: tuple[LaunchedTrial, ...]
    array: str | None

    def _rows(self) -> Iterator[dict[str, Any]]:
        yield from self._document["trials"]


class EnteredOutcome(Record):
    """Outcome of a trial as it was entered."""

    __slots__ = ()

    trial: int
    status: str
    step_s: float | None
    error: float | None
    """Relative standard error of the step time."""
    steps: int | None


class Applied(Record):
    """Best trial, with its launch files at full scale."""

    __slots__ = ()

    trial: int
    plan: str
    tolerance: float
    within: float
    """Probability that it is within the tolerance of the fastest."""
    files: tuple[str, ...]


class Study:
    """Folder of a study. Processes that change it wait for each other."""

    __slots__ = ("dir",)

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        self.dir = Path(dir)

    def __repr__(self) -> str:
        return f"Study({os.fspath(self.dir)!r})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def status(self) -> StudyStatus:
        """Plans with what is believed of them, as `meshwright tune status` shows them."""
        document, notes = _native.tune_status(self.dir)
        return StudyStatus(json.loads(document), tuple(notes))

    def next(self, count: int = 1, *, steps: int = 30, anyway: bool = False) -> Launch:
        """Writes the launch files of the trials that are worth most, as `meshwright tune next` does.

        `steps` is the length of a trial; `anyway` goes on although the study is decided or its budget spent.
        """
        document, _ = _native.tune_next(self.dir, json.dumps({"count": count, "steps": steps, "anyway": anyway}))
        return Launch(json.loads(document))

    def add(
        self,
        *logs: str | os.PathLike[str],
        measured: Runs | None = None,
        trial: int | None = None,
        force: bool = False,
    ) -> tuple[EnteredOutcome, ...]:
        """Enters the outcomes of logs, and of `measured` rows, into their trials, as `meshwright tune add` does.

        Nothing is entered unless everything is understood. `trial` says which one a log is of that does not tell; `force`
        replaces outcomes that are there.
        """
        rows = None if measured is None else (name_of(measured), csv_text(measured))
        document, _ = _native.tune_add(self.dir, [os.fspath(log) for log in logs], rows, trial, force)
        return tuple(map(EnteredOutcome, json.loads(document)))

    def apply(self, out: str | os.PathLike[str] | None = None, *, force: bool = False) -> Applied:
        """Writes the launch files of the best trial at full scale, as `meshwright tune apply` does, by default into `best`."""
        document, _ = _native.tune_apply(self.dir, None if out is None else os.fspath(out), force)
        return Applied(json.loads(document))


def tune(
    model: object,
    cluster: object,
    dir: str | os.PathLike[str] = "trials",
    *,
    workload: Workload | None = None,
    fix: Settings | None = None,
    forbid: Settings | None = None,
    framework: str | None = None,
    candidates: Runs | None = None,
    plans_to_try: int | None = None,
    tolerance: float | None = None,
    budget: int | None = None,
    trial_gpus: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[WorkloadOptions],
) -> Study:
    """Starts a study in a folder, as `meshwright tune init` does: time a few plans, learn from them, stop when it is decided.

    The plans to try are the fastest `plans_to_try` by prediction, or the layouts of `candidates`, rows of runs whose `id` is
    kept. Timing ends when the next trial is expected to gain less than `tolerance`, a share, or after `budget` trials;
    `trial_gpus` times on fewer GPUs. `Study(dir)` opens a study that is there. Raises `QuestionError` with the text of the
    command line.
    """
    plans = given({"fix": settings(fix), "forbid": settings(forbid), "for": framework})
    limits = {"plans_to_try": plans_to_try, "tolerance": tolerance, "budget": budget, "trial_gpus": trial_gpus}
    question: dict[str, Any] = {
        "problem": problem(model, cluster, workload, options),
        "plans": plans,
        "limits": given(limits),
    }
    if candidates is not None:
        question["candidates"] = {"origin": name_of(candidates), "text": csv_text(candidates)}
    _native.tune_start(json.dumps(question), os.fspath(dir), force, progress)
    return Study(dir)


def name_of(runs: Runs) -> str:
    """Name of runs in messages: the path of a file, else `runs`."""
    is_path = isinstance(runs, (str, os.PathLike)) and "\n" not in os.fspath(runs)
    return os.fspath(runs) if is_path else "runs"  # type: ignore[arg-type]
