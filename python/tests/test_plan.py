"""`plan` from Python: the document of the command line, exceptions, progress, signals and threads."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import meshwright as mw
from meshwright import _native

SMALL: tuple[str, str] = ("llama3-8b", "dgx-h100-8")
TINY: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Output of the command that the wheel installs."""
    script = shutil.which("meshwright", path=sysconfig.get_path("scripts"))
    assert script is not None
    return subprocess.run([script, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def answer() -> mw.Answer:
    return mw.plan(*SMALL, global_batch=128)


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({"global_batch": 128}, "--global-batch 128"),
        (
            {"fix": {"tp": 2, "pp": (1, 4)}, "forbid": ["zero=3"], "top": 3},
            "--fix tp=2 --fix pp=1..4 --forbid zero=3 --top 3",
        ),
        ({"tokens": "1 T", "objective": "cost", "precision": "fp8"}, "--tokens 1T --objective cost --precision fp8"),
        (
            {"tokens": 1e12, "price": "2 $/h", "checkpoints": "async", "spares": 2, "memory_limit": "2 GiB"},
            "--tokens 1T --price 2$/h --checkpoints async --spares 2 --memory-limit 2GiB",
        ),
        ({"framework": "megatron", "set": {"cluster.nic": "800 Gb/s"}}, "--for megatron --set cluster.nic=800Gb/s"),
    ],
)
def test_the_document_is_that_of_the_command_line(asked: dict[str, Any], flags: str) -> None:
    printed = json.loads(command("plan", *SMALL, "--format", "json", *flags.split()).stdout)
    found = mw.plan(*SMALL, **asked).to_dict()
    # the question is repeated as it was written
    printed["arguments"]["options"].pop("set"), found["arguments"]["options"].pop("set")
    assert found == printed


def test_a_refusal_has_the_words_of_the_command_line() -> None:
    said = command("plan", "llama3-8", "dgx-h100-8").stderr
    with pytest.raises(mw.QuestionError) as refused:
        mw.plan("llama3-8", "dgx-h100-8")
    assert said == f"error: {refused.value}\n"
    assert isinstance(refused.value, ValueError)
    with pytest.raises(mw.QuestionError, match="unknown field `global_batches`"):
        mw.plan(*SMALL, global_batches=128)  # type: ignore[call-arg]


def test_a_model_may_be_a_config_a_dict_or_a_text() -> None:
    class Config:
        def to_dict(self) -> dict[str, Any]:
            return {**TINY, "dtype": object()}

    plans = [mw.plan(model, "dgx-h100-8").plans for model in (TINY, Config(), mw.Model.from_config(TINY))]
    assert plans[0] == plans[1] == plans[2] and plans[0]
    with pytest.raises(TypeError, match="a int is no model"):
        mw.plan(7, "dgx-h100-8")
    cluster = Path(__file__).parents[2].joinpath("clusters/dgx-h100-8.toml").read_text(encoding="utf-8")
    assert mw.plan("llama3-8b", mw.Cluster.from_toml(cluster)).plans == mw.plan(*SMALL).plans
    slow = mw.plan("llama3-8b", mw.Cluster("h100-512", nic="50 Gb/s"), gpus=64)
    assert slow.plans[0].step_time_s > mw.plan("llama3-8b", "h100-512", gpus=64).plans[0].step_time_s


def test_options_override_those_of_the_workload() -> None:
    workload = mw.Workload(global_batch=128, seq_len=4096)
    assert mw.plan(*SMALL, workload=workload).problem.seq_len == 4096
    assert mw.plan(*SMALL, workload=workload, seq_len=2048).problem.seq_len == 2048
    packed = mw.plan(*SMALL, workload=workload, document_len=512)
    assert packed.plans[0].step_time_s < mw.plan(*SMALL, workload=workload).plans[0].step_time_s


def test_results_are_frozen_and_have_units_in_names(answer: mw.Answer) -> None:
    best = answer.recommended
    assert best is not None and best.step_time_s > 0.0
    assert best.terms["tp_comm"] == best.terms["tp_comm_s"] and best.memory["weights"] > 0.0
    assert sum(best.terms.values()) == pytest.approx(best.step_time_s)
    with pytest.raises(KeyError):
        best.terms["tea"]
    with pytest.raises(AttributeError, match="read-only"):
        best.tp = 3
    with pytest.raises(AttributeError, match="this Plan has no `tps`"):
        best.tps  # noqa: B018
    best.to_dict()["terms"].clear()
    assert best.terms
    for value in (answer, best, answer.problem, answer.certificate):
        assert pickle.loads(pickle.dumps(value)) == value and hash(value) == hash(value)
    assert pickle.loads(pickle.dumps(answer)).notes == answer.notes


def test_annotations_are_the_entries_of_the_document(answer: mw.Answer) -> None:
    best, why = answer.plans[0], answer.recommendation
    assert why is not None
    for record in (best, answer.problem, answer.certificate, why):
        named = {name for kind in type(record).__mro__[:-2] for name in kind.__dict__.get("__annotations__", {})}
        assert {name for name in named if not name.startswith("_")} == set(record.to_dict()), type(record)
    assert get_type_hints(_native.plan) is not None


def test_tables_for_pandas_and_notebooks(answer: mw.Answer) -> None:
    frame = pytest.importorskip("pandas") and answer.to_pandas()
    assert list(frame["step_time_s"]) == [plan.step_time_s for plan in answer.plans]
    assert {"rank", "plan", "terms.tp_comm_s", "memory.weights_gib"} <= set(frame.columns)
    html = answer._repr_html_()
    assert html.count("<tr>") == len(answer.plans) + 1 and "DGX" not in html.split("<table>")[1]


def test_no_plan_is_an_answer() -> None:
    answer = mw.plan("llama3-405b", "dgx-h100-8", refine=0)
    assert answer.recommended is None and answer.plans == () and answer.rejected["out-of-memory"] > 0


def test_progress_is_told_and_may_end_the_search() -> None:
    told: list[tuple[int, int]] = []
    mw.plan("llama3-405b", "h100-24576", progress=lambda done, every: told.append((done, every)))
    assert told and all(done <= every for done, every in told)

    def stop(done: int, every: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        mw.plan("llama3-405b", "h100-24576", progress=stop)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_a_search() -> None:
    # A job in the background of a shell ignores Ctrl-C unless it asks for it.
    ask = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import meshwright as mw; print('ready', flush=True); [mw.plan('llama3-405b', 'h100-24576') for _ in range(100)]"
    )
    with subprocess.Popen(
        [sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None and asking.stdout.readline() == "ready\n"
        time.sleep(0.3)
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=30)
    assert "KeyboardInterrupt" in said and asking.returncode != 0


def test_other_threads_run_during_a_search() -> None:
    found: list[mw.Answer] = []
    searches = [threading.Thread(target=lambda: found.append(mw.plan("llama3-405b", "h100-24576"))) for _ in range(2)]
    for search in searches:
        search.start()
    turns = 0
    while any(search.is_alive() for search in searches):
        turns += 1
        time.sleep(0.005)
    assert turns > 5 and len(found) == 2 and found[0] == found[1]


def test_memory_stays_flat_over_many_calls() -> None:
    resource = pytest.importorskip("resource")

    def refused() -> None:
        with pytest.raises(mw.QuestionError):
            mw.plan("nothing", "dgx-h100-8")

    peak = []
    for _ in range(3):
        for _ in range(1000):
            refused()
        mw.plan(*SMALL, top=1, refine=0)
        peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert peak[2] <= peak[1] * 1.02


def test_the_command_is_installed() -> None:
    assert command("--version").stdout.startswith("meshwright ")
    assert command("plan", "nothing", "dgx-h100-8").returncode == 2
    assert command("plan", "llama3-405b", "dgx-h100-8", "--no-refine").returncode == 1
