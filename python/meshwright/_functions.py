"""Functions beside `plan`, each a command of the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from meshwright import _native
from meshwright._answers import (
    Budgets,
    Explanation,
    Imported,
    LaunchFiles,
    Lint,
    Prediction,
    Predictions,
    Replays,
    SweepAnswer,
    Validation,
)
from meshwright._plan import Answer, Plan
from meshwright._question import Workload, as_model, given, problem, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas
    from typing_extensions import Unpack

    from meshwright._question import WorkloadOptions

    Runs = Union[str, os.PathLike[str], Iterable[Mapping[str, Any]], pandas.DataFrame]
    """Runs: the path of a CSV file, its text, rows as dicts, or a pandas table (columns: docs/runs.md)."""


def explain(
    model: object,
    cluster: object,
    *,
    plan: Plan | str | None = None,
    place: bool = False,
    workload: Workload | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[WorkloadOptions],
) -> Explanation:
    """Shows one plan in detail, as `meshwright explain` does; without a plan, the one that `plan` recommends.

    Raises `QuestionError` if the question is invalid, or no plan runs.
    """
    question = {
        "problem": problem(model, cluster, workload, options),
        "plan": None if plan is None else str(plan),
        "place": place,
    }
    document, notes = _native.explain(json.dumps(question), progress)
    return Explanation(json.loads(document), tuple(notes))


def budget(
    model: object,
    *,
    optimizer: str | None = None,
    seq_len: int | None = None,
    micro_batch: int | None = None,
    gpu: str | None = None,
) -> Budgets:
    """Estimates weights, gradients, optimizer states and activations, as `meshwright budget` does."""
    of_model = as_model(model)
    question = {
        "model": of_model.name,
        "optimizer": optimizer,
        "seq_len": seq_len,
        "micro_batch": micro_batch,
        "gpu": gpu,
        "texts": of_model.texts,
    }
    return Budgets(json.loads(_native.budget(json.dumps(given(question)))))


def emit(
    plan: Plan | Answer | Explanation,
    framework: str,
    *,
    refine: bool = False,
    steps: int | None = None,
    release: str | None = None,
) -> LaunchFiles:
    """Writes a plan as the files that a framework's launcher reads, as `meshwright emit` does.

    `plan` is a plan of an answer, or an answer, whose recommended plan is taken. `steps` writes a timing run of so many steps
    on synthetic data, `release` those of a release, such as `core_r0.16` of Megatron-LM. Raises `QuestionError` if the framework cannot express the plan, with the reasons.
    """
    chosen = (
        plan.recommended if isinstance(plan, Answer) else plan.prediction if isinstance(plan, Explanation) else plan
    )
    if chosen is None or chosen._arguments is None:
        raise _native.QuestionError("there is no plan to write files for")
    question = {
        "framework": framework,
        "problem": chosen._arguments,
        "plan": chosen.plan,
        "refine": refine,
        "steps": steps,
        "release": release,
    }
    files, notes = _native.emit(json.dumps(question))
    return LaunchFiles(dict(files), tuple(notes))


def predict(runs: Runs, *, fit: str | None = None, set: Mapping[str, str] | None = None) -> Predictions:
    """Predicts runs one by one, as `meshwright predict` does. A run that cannot be predicted says so in its `reason`."""
    question = {"runs": csv_text(runs), "constants": _constants(fit, set)}
    return Predictions(map(Prediction, json.loads(_native.predict(json.dumps(question)))))


def validate(
    runs: Runs,
    *,
    witnesses: Runs | None = None,
    only: Mapping[str, str] | Iterable[str] = (),
    cross_validated: bool = False,
    fit: str | None = None,
    set: Mapping[str, str] | None = None,
) -> Validation:
    """Scores predictions against measured runs, as `meshwright validate` does."""
    question = validate_question(runs, witnesses, only, cross_validated, fit, set)
    return Validation(json.loads(_native.validate(json.dumps(question))))


def validate_question(
    runs: Runs,
    witnesses: Runs | None,
    only: Mapping[str, str] | Iterable[str],
    cross_validated: bool,
    fit: str | None,
    set: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Question of `validate`."""
    return {
        "runs": csv_text(runs),
        "witnesses": None if witnesses is None else csv_text(witnesses),
        "only": settings(only),
        "cross_validated": cross_validated,
        "constants": _constants(fit, set),
    }


def tune_offline(
    runs: Runs,
    *,
    tolerance: float = 0.05,
    cross_validated: bool = False,
    held_out: bool = False,
    fit: str | None = None,
    set: Mapping[str, str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Replays:
    """Replays choices in which every layout was measured: the loss of tune, and of simpler rules, after each trial.

    A choice is a model on a number of GPUs with at least eight timed rows; those that failed are candidates too. `tolerance`
    is the share of the step time that does not matter. `cross_validated` predicts each run with constants fitted without its
    configuration, and `held_out` fits what tune knows before a choice to the given runs of other models. Published runs are
    replayed with both, runs that no constant was fitted to with neither. `progress(done, all)` counts choices.
    """
    from meshwright._work import Replay

    work = Replay(offline_question(runs, tolerance, cross_validated, held_out, fit, set), 1)
    return work.answer(work.document(work.part(1, progress)))


def offline_question(
    runs: Runs,
    tolerance: float,
    cross_validated: bool,
    held_out: bool,
    fit: str | None,
    set: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Question of `tune_offline`."""
    return {
        "runs": csv_text(runs),
        "tolerance": tolerance,
        "cross_validated": cross_validated,
        "held_out": held_out,
        "constants": _constants(fit, set),
    }


def import_(
    file: str | os.PathLike[str],
    *,
    text: str | None = None,
    kind: str | None = None,
    variables: Mapping[str, str] | None = None,
    vocab: int | None = None,
    model: str | None = None,
    release: str | None = None,
    cluster: str | None = None,
    arguments: Iterable[str] = (),
) -> Imported:
    """Reads a launch script or a framework's configuration, as `meshwright import` does; `text` stands for the file's content."""
    question = {
        "file": _launch_file(file, text, kind, variables, vocab, model, release),
        "cluster": cluster,
        "arguments": list(arguments),
    }
    return Imported(json.loads(_native.import_(json.dumps(question))))


def lint(
    file: str | os.PathLike[str],
    cluster: str,
    *,
    text: str | None = None,
    kind: str | None = None,
    variables: Mapping[str, str] | None = None,
    vocab: int | None = None,
    model: str | None = None,
    release: str | None = None,
    gpus: int | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    document_len: int | None = None,
    optimizer: str | None = None,
    stack: str | None = None,
    hbm_profile: str | None = None,
    set: Mapping[str, str] | None = None,
    measured: Iterable[str] = (),
    quick: bool = False,
    arguments: Iterable[str] = (),
) -> Lint:
    """Checks a launch file against a cluster, as `meshwright lint` does."""
    question = {
        "file": _launch_file(file, text, kind, variables, vocab, model, release),
        "cluster": cluster,
        "gpus": gpus,
        "global_batch": global_batch,
        "seq_len": seq_len,
        "document_len": document_len,
        "optimizer": optimizer,
        "stack": stack,
        "hbm_profile": hbm_profile,
        "set": settings(set),
        "measured": list(measured),
        "quick": quick,
        "arguments": list(arguments),
    }
    return Lint(json.loads(_native.lint(json.dumps(given(question)))))


def sweep(
    file: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    shards: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> SweepAnswer:
    """Plans workloads on all purchase options of a sweep file, as `meshwright sweep` does.

    With `out`, results are written there shard by shard; a sweep that was ended goes on after its last finished shard, and
    `results.jsonl` has the bytes of an undivided sweep. `progress(done, all)` counts options.
    """
    from meshwright._work import Sweep

    if out is None:
        whole = Sweep.read(file, 1)
        return whole.answer(whole.part(1, progress))
    work = Sweep.read(file, shards)
    for index in work.missing(Path(out)):
        work.store(Path(out), index, work.part(index, progress))
    return work.merge(Path(out))


def _launch_file(
    file: str | os.PathLike[str],
    text: str | None,
    kind: str | None,
    variables: Mapping[str, str] | None,
    vocab: int | None,
    model: str | None,
    release: str | None,
) -> dict[str, Any]:
    return {
        "file": os.fspath(file),
        "text": text,
        "kind": kind,
        "var": settings(variables),
        "vocab": vocab,
        "model": model,
        "release": release,
    }


def _constants(fit: str | None, overrides: Mapping[str, str] | None) -> dict[str, Any]:
    return given({"fit": fit, "set": settings(overrides)})


def csv_text(runs: Runs) -> str:
    """CSV of runs."""
    if isinstance(runs, (str, os.PathLike)):
        path = os.fspath(runs)
        return path if "\n" in path else Path(path).read_text(encoding="utf-8")
    to_csv = getattr(runs, "to_csv", None)
    if to_csv is not None:
        return str(to_csv(index=False))
    import csv
    import io

    rows = list(cast("Iterable[Mapping[str, Any]]", runs))
    columns = dict.fromkeys(key for row in rows for key in row)
    written = io.StringIO()
    writer = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return written.getvalue()


def _cell(value: object) -> object:
    """Cell of a CSV: blank for None and for the NaN that pandas has in its place, 0 or 1 for a bool."""
    if value is None or value != value:
        return ""
    return int(value) if isinstance(value, bool) else value
