"""Plans as objects of frameworks."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_plan import SMALL

import meshwright as mw
import meshwright.bridge


class Name:
    """Stand-in for a class or an enumeration of a framework."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *given: Any, **named: Any) -> SimpleNamespace:
        return SimpleNamespace(made_by=self.name, given=given, **named)

    def __getattr__(self, member: str) -> str:
        return f"{self.name}.{member}"


class Anything(ModuleType):
    """Stand-in for a module of a framework, which has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or Name(name)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for what an emitted recipe imports."""
    for name in (
        "torch torch.nn torch.nn.functional megatron megatron.core megatron.core.transformer megatron.core.transformer.enums "
        "megatron.bridge megatron.bridge.models megatron.bridge.models.gpt_provider megatron.bridge.models.mla_provider "
        "megatron.bridge.recipes megatron.bridge.recipes.common megatron.bridge.training megatron.bridge.training.comm_overlap "
        "megatron.bridge.training.config megatron.bridge.training.mixed_precision"
    ).split():
        monkeypatch.setitem(sys.modules, name, Anything(name))


def recipe() -> Any:
    """A recipe of the user."""
    parts = ("model", "train", "dataset", "optimizer", "ddp", "tokenizer", "scheduler")
    cfg = SimpleNamespace(**{part: SimpleNamespace() for part in parts})
    cfg.model.num_layers, cfg.train.train_iters = 7, 1000
    return cfg


@pytest.mark.usefixtures("megatron")
def test_a_plan_is_applied_to_a_recipe_of_megatron_bridge() -> None:
    cfg = recipe()
    explained = mw.explain(
        "llama3-70b", "h100-512", plan="tp=8 pp=4 vpp=5 zero=1 mbs=1 recompute=full", global_batch=512
    )
    assert meshwright.bridge.apply(explained, cfg) is cfg
    assert (cfg.model.tensor_model_parallel_size, cfg.model.pipeline_model_parallel_size) == (8, 4)
    assert cfg.model.virtual_pipeline_model_parallel_size == 5 and cfg.model.sequence_parallel
    assert (cfg.train.global_batch_size, cfg.train.micro_batch_size) == (512, 1)
    assert cfg.model.recompute_granularity == "full" and cfg.model.attention_backend == "AttnBackend.fused"
    assert cfg.ddp.use_distributed_optimizer
    assert cfg.mixed_precision.made_by == "get_mixed_precision_config" and cfg.comm_overlap.tp_comm_overlap
    # the model and the length of the run are the recipe's
    assert cfg.model.num_layers == 7 and cfg.train.train_iters == 1000
    assert not hasattr(cfg.model, "hidden_size") and vars(cfg.tokenizer) == vars(cfg.scheduler) == {}


def test_a_plan_as_a_configuration_of_deepspeed() -> None:
    answer = mw.plan(*SMALL, framework="deepspeed", global_batch=128)
    best = answer.recommended
    assert best is not None
    config = meshwright.bridge.deepspeed(answer)
    assert config["train_batch_size"] == 128 and config["zero_optimization"]["stage"] == best.zero
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * best.dp == 128
    with pytest.raises(mw.QuestionError, match="no DeepSpeed files are written for this"):
        meshwright.bridge.deepspeed(mw.explain("llama3-70b", "h100-512", plan="tp=8 pp=4 schedule=zb-v"))


def test_no_framework_is_imported_unasked() -> None:
    import subprocess

    heavy = "{'torch', 'ray', 'pandas', 'numpy', 'transformers', 'deepspeed', 'megatron'}"
    ask = f"import sys, meshwright, meshwright.bridge, meshwright.ray; sys.exit(len({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0
