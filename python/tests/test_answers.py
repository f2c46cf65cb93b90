"""The other questions from Python, each against the command line."""

from __future__ import annotations

import csv
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from test_plan import SMALL, command

import meshwright as mw

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests/published/runs.csv"
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --seq-length 4096 --vocab-size 128256 \\
  --max-position-embeddings 4096 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 \\
  --global-batch-size 64 --bf16 --use-distributed-optimizer --untie-embeddings-and-output-weights --normalization RMSNorm
"""


def printed(*arguments: object) -> Any:
    """Document that the command line prints."""
    return json.loads(command(*map(str, arguments), "--format", "json").stdout)


def annotated(record: mw.Record) -> set[str]:
    """Entries that the class of a record promises."""
    return {name for name in type(record).__annotations__ if not name.startswith("_") and name != "notes"}


def test_explain() -> None:
    named = mw.explain(*SMALL, plan="tp=2 zero=1", global_batch=128)
    assert named.to_dict() == printed("explain", *SMALL, "--plan", "tp=2 zero=1", "--global-batch", 128)
    best = mw.explain(*SMALL).prediction
    recommended = mw.plan(*SMALL).recommended
    assert best is not None and recommended is not None and best.plan == recommended.plan
    assert mw.explain(*SMALL, plan=best).prediction == best
    assert len(named.ranks) == 1 and named.ranks[0].memory["weights"] > 0.0 and named.notes
    assert annotated(named) <= set(named.to_dict()) and pickle.loads(pickle.dumps(named)) == named
    with pytest.raises(mw.QuestionError, match="^--plan: "):
        mw.explain(*SMALL, plan="tp=tea")


def test_budget() -> None:
    assert mw.budget("llama3-8b", micro_batch=2).to_dict() == printed("budget", "llama3-8b", "--micro-batch", 2)
    [muon] = mw.budget("llama3-8b", optimizer="muon").budgets
    assert muon.states_gib == pytest.approx(muon.weights_gib + muon.gradients_gib + muon.optimizer_gib)
    assert annotated(muon) == set(muon.to_dict())


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed"])
def test_emit(framework: str, tmp_path: Path) -> None:
    answer = mw.plan(*SMALL, global_batch=128, framework=framework)
    best = answer.recommended
    assert best is not None
    files = mw.emit(answer, framework)
    command("emit", framework, *SMALL, "--global-batch", "128", "--plan", best.plan, "--out", str(tmp_path / "line"))
    paths = files.write(tmp_path / "python")
    assert [path.name for path in paths] == list(files.files)
    for path in paths:
        other = tmp_path / "line" / path.name
        assert path.read_bytes() == other.read_bytes() and path.stat().st_mode == other.stat().st_mode
    timing = mw.emit(answer, framework, steps=4321)
    assert (
        list(timing.files) == list(files.files)
        and timing.files != files.files
        and "4321" in "".join(timing.files.values())
    )
    with pytest.raises(FileExistsError, match="force=True"):
        files.write(tmp_path / "python")
    files.write(tmp_path / "python", force=True)
    with pytest.raises(mw.QuestionError, match="did you mean `megatron`"):
        mw.emit(best, "megatorn")


def test_predict_takes_paths_texts_rows_and_tables() -> None:
    lines = command("predict", "--runs", str(RUNS)).stdout.splitlines()
    found = mw.predict(RUNS)
    assert [prediction.to_dict() for prediction in found] == list(map(json.loads, lines))
    with RUNS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert mw.predict(rows) == found == mw.predict(RUNS.read_text(encoding="utf-8"))
    pandas = pytest.importorskip("pandas")
    assert mw.predict(pandas.read_csv(RUNS, dtype=str, keep_default_na=False)) == found
    table = pandas.read_csv(RUNS)
    few = [prediction.to_dict() for prediction in mw.predict(table)]
    assert [prediction.to_dict() for prediction in mw.predict(table.to_dict("records"))] == few
    assert [prediction["step_time_s"] for prediction in few] == [prediction.step_time_s for prediction in found]
    assert list(found.to_pandas()["id"]) == [row["id"] for row in rows]
    assert annotated(found[0]) == set(found[0].to_dict()) and found._repr_html_().count("<tr>") == len(rows) + 1
    with pytest.raises(mw.QuestionError, match="lacks the columns"):
        mw.predict([{"id": "a"}])
    with pytest.raises(mw.QuestionError, match="the rows give model and cluster"):
        mw.predict(RUNS, set={"cluster.nic": "1 Gb/s"})


@pytest.mark.skipif(
    os.environ.get("MESHWRIGHT_PROFILE") == "dev", reason="the published wheel is optimised, this one is not"
)
def test_a_thousand_rows_take_less_than_a_third_of_a_second() -> None:
    with RUNS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows = (rows * 2)[:1000]
    before = time.process_time()
    assert len(mw.predict(rows)) == 1000
    assert time.process_time() - before < 0.3


def test_validate() -> None:
    found = mw.validate(RUNS, only={"gpu": "H100"})
    assert found.to_dict() == printed("validate", "--runs", RUNS, "--only", "gpu=H100")
    assert annotated(found) <= set(found.to_dict()) and len(found.to_pandas()) == len(found.time)


def test_import_and_lint(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    imported = mw.import_(script)
    assert imported.to_dict() == printed("import", script)
    assert mw.import_(script, text=SCRIPT.replace("--micro-batch-size 1", "--micro-batch-size 2")) != imported
    assert annotated(imported) <= set(imported.to_dict())
    lint = mw.lint(script, "dgx-h100-8")
    assert lint.to_dict() == printed("lint", script, "dgx-h100-8")
    assert lint.prediction is not None and lint.prediction.tp == 2
    assert annotated(lint) <= set(lint.to_dict())
    with pytest.raises(mw.QuestionError, match="--measured"):
        mw.lint(script, "dgx-h100-8", measured=["a lot"])


SWEEP = """name = "small"
[[workload]]
model = "llama3-8b"
tokens = "100 B"
[options]
gpu = ["h100-sxm", "b200-sxm"]
gpus = [64, 128]
terms = ["on-demand", "contract"]
"""


def test_a_sweep_in_shards_has_the_bytes_of_a_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SWEEP, encoding="utf-8")
    document = printed("sweep", file, "--out", tmp_path / "line")
    told: list[tuple[int, int]] = []
    answer = mw.sweep(file, progress=lambda done, every: told.append((done, every)))
    assert answer.to_dict() == document and annotated(answer.records[0]) <= set(answer.records[0].to_dict())
    assert all(done <= every for done, every in told)
    out = tmp_path / "python"
    assert mw.sweep(file, out=out, shards=3).to_dict() == document
    whole = (tmp_path / "line/results.jsonl").read_bytes()
    assert (out / "results.jsonl").read_bytes() == whole
    [lost] = out.glob("shards/*-2-of-3.jsonl")
    kept = [path for path in out.glob("shards/*.jsonl") if path != lost]
    times = [path.stat().st_mtime_ns for path in kept]
    lost.unlink()
    mw.sweep(file, out=out, shards=3)
    assert (out / "results.jsonl").read_bytes() == whole and times == [path.stat().st_mtime_ns for path in kept]
    assert len(answer.to_pandas()) == 8 and answer.options == 8
