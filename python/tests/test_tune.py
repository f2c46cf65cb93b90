"""Studies of tune and offline replays from Python, against the command line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from test_answers import ROOT, RUNS, annotated
from test_plan import SMALL, command

import meshwright as mw
from meshwright._functions import offline_question, validate_question
from meshwright._work import Replay, Validate

LOG = ROOT / "tests/logs/megatron-llama3-8b.log"
MEASURED = ROOT / "tests/published/nanotron-sweep.csv"
SHAPE: dict[str, Any] = {
    "framework": "Megatron-LM",
    "gpu": "H100",
    "gpus_total": 8,
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "vocab": 128256,
    "seq_len": 8192,
    "global_batch": 128,
    "pp": 1,
    "cp": 1,
    "zero_stage": 1,
    "recompute": "none",
    "gated_mlp": 1,
}
ROWS = [{**SHAPE, "id": f"tp{tp}", "tp": tp, "dp": 8 // tp, "micro_batch": 1} for tp in (1, 2, 4, 8)]


def test_a_study_is_that_of_the_command_line(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    note = lambda done, every: told.append((done, every))  # noqa: E731
    study = mw.tune(
        *SMALL, tmp_path / "study", global_batch=128, fix={"cp": 1, "zero": 1, "mbs": 1}, plans_to_try=4, progress=note
    )
    status = study.status()
    printed = command("tune", "status", "--format", "json", "--dir", str(study.dir)).stdout
    assert status.to_dict() == json.loads(printed) and pickle.loads(pickle.dumps(status)) == status
    assert annotated(status) == set(status.to_dict()) and annotated(status.plans[0]) == set(status.plans[0].to_dict())
    assert status.leader is None and not status.decided and len(status.plans) == 4 and len(status.to_pandas()) == 4
    assert all(done <= every for done, every in told)

    launch = study.next(2)
    assert [trial.trial for trial in launch.trials][0] == status.next and launch.array is not None
    assert annotated(launch) == set(launch.to_dict()) and annotated(launch.trials[0]) == set(launch.trials[0].to_dict())
    assert all(Path(file).exists() for trial in launch.trials for file in trial.files)
    with pytest.raises(mw.QuestionError, match="no trial has run"):
        study.apply()
    [entered] = study.add(LOG)
    assert (
        entered.status == "ran"
        and entered.step_s == pytest.approx(14.8913)
        and annotated(entered) < set(entered.to_dict())
    )
    assert mw.Study(study.dir).status().leader == entered.trial
    applied = study.apply(tmp_path / "best")
    assert applied.trial == entered.trial and annotated(applied) == set(applied.to_dict())
    assert {Path(file).parent for file in applied.files} == {tmp_path / "best"}
    with pytest.raises(mw.QuestionError, match="outcome already.*\n\nhint: --force"):
        study.add(LOG)
    with pytest.raises(mw.QuestionError, match="a study is there already"):
        mw.tune(*SMALL, study.dir, plans_to_try=2)


def test_runs_of_the_user_are_candidates_and_outcomes(tmp_path: Path) -> None:
    study = mw.tune(*SMALL, tmp_path / "own", global_batch=128, candidates=ROWS)
    before = study.status()
    assert {plan.id for plan in before.plans} == {row["id"] for row in ROWS}
    study.add(measured=[{**ROWS[1], "outcome": "ok", "step_time_s": 14.9}])
    study.add(measured=[{**ROWS[0], "outcome": "oom", "step_time_s": ""}])
    after = {plan.id: plan for plan in study.status().plans}
    assert after["tp2"].median_s == pytest.approx(14.9, rel=1e-3) and after["tp1"].best == 0.0
    with pytest.raises(mw.QuestionError, match="^runs, line 2: "):
        study.add(measured=[{**ROWS[2], "micro_batch": 9}])
    pandas = pytest.importorskip("pandas")
    other = mw.tune(*SMALL, tmp_path / "table", global_batch=128, candidates=pandas.DataFrame(ROWS))
    assert other.status().plans == before.plans


@pytest.mark.parametrize("cross_validated", [False, True])
def test_parts_of_a_validation_are_the_whole(cross_validated: bool) -> None:
    work = Validate(validate_question(RUNS, None, {"gpu": "H100"}, cross_validated, None, None), 7)
    document = work.document("".join(map(work.part, work.indices())))
    flag = ["--cross-validated"] if cross_validated else []
    arguments = ("validate", "--runs", str(RUNS), "--only", "gpu=H100", "--format", "json", *flag)
    assert document == command(*arguments).stdout
    with pytest.raises(mw.QuestionError, match="predictions of"):
        work.document(work.part(1))


def test_offline_tuning_beats_chance() -> None:
    replays = mw.tune_offline(MEASURED)
    assert annotated(replays) == set(replays.to_dict()) and annotated(replays.rules[0]) == set(
        replays.rules[0].to_dict()
    )
    rules = {rule.rule: rule for rule in replays.rules}
    assert len(replays.choices) == 24 and set(rules) == {
        "tune",
        "model",
        "random",
        "space-filling",
        "auto-configurator",
    }
    for rule in replays.rules:
        assert list(rule.loss) == sorted(rule.loss, reverse=True) and list(rule.within) == sorted(rule.within)
    assert rules["tune"].loss[4] < 0.3 * rules["random"].loss[4] and rules["tune"].stopped > 0.0
    assert len(replays.to_pandas()) == 5 * 8
    work = Replay(offline_question(MEASURED, 0.05, False, False, None, None), 3)
    assert work.answer(work.document("".join(map(work.part, work.indices())))) == replays
    with pytest.raises(mw.QuestionError, match="tolerance 2"):
        mw.tune_offline(MEASURED, tolerance=2.0)

    def stop(done: int, every: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        mw.tune_offline(MEASURED, progress=stop)
