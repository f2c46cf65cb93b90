"""Questions: models, clusters, workloads and options as Python names them, and the JSON that the engine reads."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal, TypedDict

    Setting = Union[str, int, tuple[int, int], bool]
    Settings = Union[Mapping[str, Setting], Iterable[str]]
    """Settings of a plan: `{"tp": 8, "ep": (1, 64)}`, or texts such as `"tp=8"`."""

    class WorkloadOptions(TypedDict, total=False):
        """Batch, sequence length and software of one optimizer step; options left out take the command line's defaults."""

        gpus: int
        """Number of GPUs, instead of the cluster's own."""
        global_batch: int
        """Sequences per step."""
        seq_len: int
        """Tokens per sequence."""
        document_len: int
        """Tokens of the documents that are packed into a sequence, within which attention stays: their mean weighted by tokens."""
        precision: Literal["bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4"]
        """Number format of the GEMMs."""
        optimizer: str
        """Optimizer recipe, or its bytes per parameter."""
        stack: str
        """Software stack: a name or a TOML file."""
        hbm_profile: Literal["tight", "normal", "conservative"]
        """Share of the memory that a plan may fill."""
        risk: float
        """Largest accepted probability of running out of memory."""
        lora: bool
        """Whether low-rank adapters are trained on a frozen base."""
        lora_targets: Literal["all", "attention"]
        """Projections that have adapters."""
        imbalance: float
        """Tokens of the busiest expert rank relative to the mean."""
        fit: str
        """Fitted constants to predict with."""
        calibration: list[str]
        """Calibration files of the device."""
        set: Mapping[str, str]
        """Overrides of single values: `{"cluster.nic": "800 Gb/s"}`."""

    class PlanOptions(WorkloadOptions, total=False):
        """Options of a workload, and the money, time and memory of a question."""

        market: str
        """Prices, power and failures: a name or a TOML file."""
        terms: str
        """Terms of the market, such as `on-demand`."""
        price: str
        """Price of a GPU, instead of the market's: `"2.5 $/h"`."""
        checkpoints: Literal["sync", "async", "memory"]
        """How checkpoints are written."""
        storage: str
        """Bandwidth to storage: `"200 GB/s"`."""
        spares: int
        """Nodes that wait for others to fail."""
        memory_limit: str
        """Memory of this process at which a search stops: `"16 GiB"`."""


ECONOMY = ("market", "terms", "price", "checkpoints", "storage", "spares")
"""Options of a plan's money and time."""


class Model:
    """A model: a name of the catalogue, a TOML file, or a Hugging Face config."""

    __slots__ = ("name", "texts")

    def __init__(self, name: str | os.PathLike[str], texts: Mapping[str, str] | None = None) -> None:
        self.name = os.fspath(name)
        self.texts = dict(texts or {})

    @classmethod
    def from_toml(cls, text_or_path: str | os.PathLike[str]) -> Model:
        """Model of a TOML file, or of the text of one."""
        return cls(*_toml(text_or_path, "model.toml"))

    @classmethod
    def from_config(cls, config: object) -> Model:
        """Model of a Hugging Face config: what `transformers.AutoConfig` gives, or a dict."""
        return cls("config.json", {"config.json": json.dumps(_as_dict(config), default=str)})

    def __repr__(self) -> str:
        return f"Model({self.name!r})"


class Cluster:
    """A cluster: a name of the catalogue, or a TOML file; keywords override its values: `nic="800 Gb/s"`."""

    __slots__ = ("name", "overrides", "texts")

    def __init__(self, name: str | os.PathLike[str], texts: Mapping[str, str] | None = None, **overrides: str) -> None:
        self.name = os.fspath(name)
        self.texts = dict(texts or {})
        self.overrides = overrides

    @classmethod
    def from_toml(cls, text_or_path: str | os.PathLike[str], **overrides: str) -> Cluster:
        """Cluster of a TOML file, or of the text of one."""
        name, texts = _toml(text_or_path, "cluster.toml")
        return cls(name, texts=texts, **overrides)

    def __repr__(self) -> str:
        return "".join(
            [f"Cluster({self.name!r}", *(f", {key}={value!r}" for key, value in self.overrides.items()), ")"]
        )


class Workload:
    """Options of a workload, to be used in several questions: `Workload(global_batch=3072, seq_len=8192)`."""

    __slots__ = ("options",)

    def __init__(self, **options: Any) -> None:
        self.options: WorkloadOptions = options  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Workload({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


def _toml(text_or_path: str | os.PathLike[str], name: str) -> tuple[str, dict[str, str]]:
    """Name and texts of a TOML file; a text has line breaks, which a path has not."""
    given = os.fspath(text_or_path)
    return (name, {name: given}) if "\n" in given else (given, {})


def _as_dict(config: object) -> dict[str, Any]:
    """Dict of a config object, such as those of `transformers`."""
    if isinstance(config, dict):
        return config
    to_dict = getattr(config, "to_dict", None)
    found = to_dict() if callable(to_dict) else None
    if not isinstance(found, dict):
        raise TypeError(
            f"a {type(config).__name__} is no model: give a name, a mw.Model, a dict, or a config with `to_dict`"
        )
    return found


def as_model(model: object) -> Model:
    """Model of what a function takes for one."""
    if isinstance(model, Model):
        return model
    return Model(model) if isinstance(model, (str, os.PathLike)) else Model.from_config(model)


def as_cluster(cluster: object) -> Cluster:
    """Cluster of what a function takes for one."""
    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, (str, os.PathLike)):
        return Cluster(cluster)
    raise TypeError(f"a {type(cluster).__name__} is no cluster: give a name, a TOML file, or a mw.Cluster")


def settings(asked: Settings | None) -> list[str]:
    """Settings as the command line writes them: `tp=8`, `ep=1..64`."""
    if asked is None:
        return []
    if not hasattr(asked, "items"):
        return list(asked)
    return [f"{key}={_value(value)}" for key, value in asked.items()]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        low, high = value
        return f"{low}..{high}"
    return str(value)


def problem(model: object, cluster: object, workload: Workload | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Question about a model on a cluster, as the engine reads it. Options override those of the workload."""
    of_model, of_cluster = as_model(model), as_cluster(cluster)
    asked = given({**(workload.options if workload else {}), **options})
    sets = [f"cluster.{key}={value}" for key, value in of_cluster.overrides.items()]
    sets.extend(settings(asked.pop("set", None)))
    asked["set"] = sets
    texts = {**of_model.texts, **of_cluster.texts}
    if texts:
        asked["texts"] = texts
    return {"model": of_model.name, "cluster": of_cluster.name, "options": asked}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that are given; the engine has the defaults of the others."""
    return {key: value for key, value in options.items() if value is not None}
