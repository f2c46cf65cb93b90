"""Plans with their prediction, and the answer of `plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright._record import Quantities, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Problem(Record):
    """Problem of a question: model, cluster and workload, with every default filled in."""

    __slots__ = ()

    model: str
    cluster: str
    gpu: str
    gpus: int
    global_batch: int
    seq_len: int
    precision: str
    recipe_bytes_per_parameter: float
    stack: str
    hbm_gib: float
    hbm_budget_gib: float
    imbalance: float


class Plan(Record):
    """A plan with its predicted step time and memory."""

    __slots__ = ("_arguments",)
    _quantities = frozenset({"terms", "memory"})

    _arguments: Mapping[str, Any] | None
    """Question that the plan answers, for `emit` and `explain`."""

    plan: str
    tp: int
    cp: int
    pp: int
    vpp: int
    dp: int
    ep: int
    etp: int
    zero: int
    shard_group: int | None
    reshard_after_forward: bool
    micro_batch: int
    micro_batches: float
    schedule: str
    recompute: str
    sequence_parallel: bool
    cp_kind: str
    dispatcher: str
    order: str
    split: str
    offload_optimizer: float
    offload_activations: float
    step_time_s: float
    step_time_p05_s: float
    step_time_p95_s: float
    mfu: float
    tokens_per_s_per_gpu: float
    tflops_per_gpu: float
    peak_mem_gib: float
    peak_mem_p05_gib: float
    peak_mem_p95_gib: float
    oom_probability: float
    interval_class: str
    interval_runs: int
    headroom_gib: float
    basis: str
    terms: Quantities
    """Step time by term, in seconds."""
    terms_basis: dict[str, str]
    memory: Quantities
    """Memory of the fullest GPU by tenant, in GiB."""

    def __init__(self, document: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(document)
        object.__setattr__(self, "_arguments", arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return Plan, (self._document, self._arguments)

    def __str__(self) -> str:
        return self.plan


class Certificate(Record):
    """Counts of a search, and how far its first plan is proved to be the fastest."""

    __slots__ = ()

    size: int
    evaluated: int
    simulated: int
    rejected: int
    dominated: int
    cut: tuple[dict[str, Any], ...]
    proof: str | dict[str, Any]


class Recommendation(Record):
    """Why one of the ranked plans is recommended, and what speaks against the others."""

    __slots__ = ()
    _kinds = {"fastest": Plan}

    rank: int
    given_up: str | None
    p_best: tuple[float, ...]
    fastest: Plan | None
    fastest_declined_for: tuple[str, ...]
    step_given_runs_s: tuple[float, ...]
    """Medians of the step times given `measured` runs, and 90 % intervals; empty where no run was given."""
    step_given_runs_p05_s: tuple[float, ...]
    step_given_runs_p95_s: tuple[float, ...]


class Answer(Record):
    """Answer of `plan`: ranked plans, the one to launch, and the certificate of the search."""

    __slots__ = ("notes",)
    _kinds = {"problem": Problem, "certificate": Certificate}

    notes: tuple[str, ...]
    """Assumptions of the answer, in sentences."""
    schema: int
    problem: Problem
    tied_with_first: int
    plans_to_time: tuple[int, ...]
    considered: int
    evaluated: int
    rejected: dict[str, int]
    certificate: Certificate
    nearest_miss: dict[str, str] | None

    def __init__(self, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
        super().__init__(document)
        object.__setattr__(self, "notes", notes)

    def __reduce__(self) -> tuple[object, ...]:
        return Answer, (self._document, self.notes)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Ranked plans, best first; empty if none fits."""
        arguments = self._document.get("arguments")
        return tuple(Plan(plan, arguments) for plan in self._document["plans"])

    @property
    def recommendation(self) -> Recommendation | None:
        """Reasons for the recommended plan; none where another objective than the step time ranks the plans."""
        found = self._document.get("recommended")
        return None if found is None else Recommendation(found)

    @property
    def recommended(self) -> Plan | None:
        """The plan to launch; none if no plan fits."""
        plans, why = self.plans, self.recommendation
        if not plans:
            return None
        return plans[0 if why is None else why.rank - 1]

    def _rows(self) -> Iterator[dict[str, Any]]:
        why = self.recommendation
        chances = why.p_best if why else ()
        for at, plan in enumerate(self._document["plans"]):
            shown: dict[str, float] = {"rank": at + 1}
            if at < len(chances):
                shown["p_best"] = chances[at]
            yield {**shown, **flat_plan(plan)}

    def _repr_html_(self) -> str:
        from meshwright._record import table

        problem = self.problem
        rows = [{key: row[key] for key in ("rank", *SHOWN) if key in row} for row in self._rows()]
        title = f"{problem.model} on {problem.gpus:,} × {problem.gpu}, {problem.global_batch:,} sequences of {problem.seq_len:,} tokens"
        return f"<p>{title}</p>{table(rows)}"


SHOWN = ("plan", "step_time_s", "mfu", "tokens_per_s_per_gpu", "peak_mem_gib", "oom_probability", "p_best")
"""Columns of an answer in a notebook."""


def flat_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Row of a plan in a table, without the basis of each term."""
    from meshwright._record import flat

    return flat({key: value for key, value in plan.items() if key != "terms_basis"})
