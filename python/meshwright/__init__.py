"""The fastest parallel layout of a training run on a cluster, and how sure that is.

>>> import meshwright as mw
>>> answer = mw.plan("llama3-8b", "dgx-h100-8", global_batch=128)
>>> answer.recommended in answer.plans
True
>>> answer.certificate.proof
'optimal'
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from meshwright import _native
from meshwright._native import QuestionError
from meshwright._answers import (
    Budget,
    Budgets,
    Explanation,
    Imported,
    LaunchFiles,
    Lint,
    Option,
    Prediction,
    Predictions,
    Rank,
    Replays,
    RuleSummary,
    SweepAnswer,
    Validation,
)
from meshwright._functions import budget, emit, explain, import_, lint, predict, sweep, tune_offline, validate
from meshwright._plan import Answer, Certificate, Plan, Problem, Recommendation
from meshwright._question import ECONOMY, Cluster, Model, Workload, given, problem, settings
from meshwright._record import Quantities, Record
from meshwright._tune import Applied, EnteredOutcome, Launch, LaunchedTrial, Study, StudyStatus, TriedPlan, tune

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from typing_extensions import Unpack

    from meshwright._question import PlanOptions, Settings

__all__ = [
    "Answer",
    "Applied",
    "Budget",
    "Budgets",
    "Certificate",
    "Cluster",
    "EnteredOutcome",
    "Explanation",
    "Imported",
    "Launch",
    "LaunchFiles",
    "LaunchedTrial",
    "Lint",
    "Model",
    "Option",
    "Plan",
    "Prediction",
    "Predictions",
    "Problem",
    "Quantities",
    "QuestionError",
    "Rank",
    "Recommendation",
    "Record",
    "Replays",
    "RuleSummary",
    "Study",
    "StudyStatus",
    "SweepAnswer",
    "TriedPlan",
    "Validation",
    "Workload",
    "budget",
    "emit",
    "explain",
    "import_",
    "lint",
    "plan",
    "predict",
    "sweep",
    "tune",
    "tune_offline",
    "validate",
]

__version__ = _native.VERSION


def plan(
    model: object,
    cluster: object,
    *,
    workload: Workload | None = None,
    fix: Settings | None = None,
    forbid: Settings | None = None,
    framework: str | None = None,
    top: int | None = None,
    tokens: float | str | None = None,
    objective: Literal["step-time", "time-to-train", "cost", "energy", "memory", "gpu-time"] | None = None,
    exotic: bool = False,
    allow_idle: bool = False,
    pareto: bool = False,
    pareto_tolerance: float | None = None,
    sensitivity: bool = False,
    refine: int | None = None,
    place: int | None = None,
    measured: str | os.PathLike[str] | None = None,
    time_limit_s: float | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[PlanOptions],
) -> Answer:
    """Ranks the layouts of a model on a cluster, as `meshwright plan` does.

    `model` is a name, a file, a `Model`, a dict, or a config of `transformers`; `cluster` a name, a file, or a `Cluster`. The
    options are those of the command line; `measured` is a CSV of own runs, as `predict` reads it. `progress(done, all)` is called about twenty times a second; an exception that it
    raises, and Ctrl-C, end the search. Other threads run meanwhile.

    Raises `QuestionError`, with the text of the command line, if the question is invalid. If no plan fits, the answer has none, and
    `nearest_miss` says what came nearest.
    """
    asked: dict[str, Any] = dict(options)
    length = tokens if tokens is None or isinstance(tokens, str) else f"{tokens:.0f} tokens"
    economy = {"tokens": length, "objective": objective}
    economy.update({name: asked.pop(name) for name in ECONOMY if name in asked})
    plans: dict[str, Any] = {
        "fix": settings(fix),
        "forbid": settings(forbid),
        "for": framework,
        "top": top,
        "exotic": exotic,
        "allow_idle": allow_idle,
        "pareto": pareto,
        "pareto_tolerance": pareto_tolerance,
        "sensitivity": sensitivity,
        "time_limit": time_limit_s,
        "memory_limit": asked.pop("memory_limit", None),
        "economy": given(economy),
        "refine": {} if refine is None else {"refine": refine},
        "place": {} if place is None else {"place": place},
        "measured": None if measured is None else os.fspath(measured),
    }
    question = {"problem": problem(model, cluster, workload, asked), "plans": given(plans)}
    document, notes = _native.plan(json.dumps(question), progress)
    return Answer(json.loads(document), tuple(notes))
