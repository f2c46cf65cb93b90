"""Plans as the objects of training frameworks. A framework is imported when its function is called, and no other."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from meshwright._functions import emit

if TYPE_CHECKING:
    from meshwright._answers import Explanation
    from meshwright._plan import Answer, Plan

    Chosen = Plan | Answer | Explanation

__all__ = ["accelerate", "apply", "deepspeed", "torchtitan"]

Config = TypeVar("Config")

KEPT = ("architecture", "data, tokenizer, checkpoints")
"""Sections of an emitted recipe that a plan leaves to the recipe of the user: its model, its data, its learning rate."""

DECIDED = ("training", "parallelism", "activation_checkpoint", "compile")
"""Parts of a configuration of torchtitan that a plan decides."""


def apply(plan: Chosen, cfg: Config) -> Config:
    """Sets a plan in the user's own configuration: a `ConfigContainer` of Megatron-Bridge, or a `Trainer.Config` of torchtitan.

    Degrees, batch, formats, recomputation and overlap are those of `emit(plan, "megatron-bridge")` or `emit(plan,
    "torchtitan")`; the model, its data, tokenizer, learning rate and length of training stay as they are. Returns `cfg`. Raises
    `QuestionError` if the framework cannot express the plan, `TypeError` if `cfg` is neither.
    """
    kind = type(cfg)
    if kind.__module__.startswith("torchtitan."):
        if not hasattr(cfg, "model_spec"):
            raise TypeError(f"a {kind.__qualname__} is of torchtitan before 0.3: give the Trainer.Config of a recipe")
        return _applied_to_torchtitan(plan, cfg)
    if not all(hasattr(cfg, part) for part in ("model", "train", "ddp")):
        raise TypeError(
            f"a {kind.__qualname__} is no ConfigContainer of Megatron-Bridge and no Trainer.Config of torchtitan"
        )
    text = emit(plan, "megatron-bridge").files["megatron_bridge.py"]
    imports = "\n".join(re.findall(r"^(?:import|from) .+$|^os\.environ.+$", text, re.MULTILINE))
    body = text[text.index("def config(") : text.index("    return cfg\n")]
    sections = re.findall(r"^    # (.+)\n((?:(?!    # ).*\n)*)", body, re.MULTILINE)
    chosen = [settings for heading, settings in sections if not heading.startswith(KEPT)]
    source = imports + "\n" + "\n".join(re.sub(r"^    ", "", settings, flags=re.MULTILINE) for settings in chosen)
    exec(compile(source, "<meshwright plan for Megatron-Bridge>", "exec"), {"cfg": cfg})  # noqa: S102 - text that emit wrote
    return cfg


def torchtitan(plan: Chosen) -> Any:
    """A `torchtitan.trainer.Trainer.Config` with the model, sizes and settings of a plan (torchtitan 0.3).

    Data, tokenizer, number of steps and checkpoints are the framework's defaults, to be set by the user, and so is the learning
    rate. Raises `QuestionError` if torchtitan cannot express the plan.
    """
    tree = ast.parse(emit(plan, "torchtitan").files["torchtitan_plan.py"])
    train = _function(tree, "train")
    train.body = [line for line in train.body if not _is_of_the_user(line)]
    return _run(tree)["train"]()


def _applied_to_torchtitan(plan: Chosen, config: Config) -> Config:
    tree = ast.parse(emit(plan, "torchtitan").files["torchtitan_plan.py"])
    train = _function(tree, "train")
    chunked = type(config.loss).__qualname__.startswith("ChunkedLossWrapper")  # type: ignore[attr-defined]
    decided = DECIDED if chunked else (*DECIDED, "loss")
    chosen = [line for line in train.body if _part(line) in decided and not _is_of_the_user(line)]
    names = {node.id for line in chosen for node in ast.walk(line) if isinstance(node, ast.Name)}
    imports = [
        line for line in tree.body if isinstance(line, ast.ImportFrom) and names & {alias.name for alias in line.names}
    ]
    helpers = [line for line in tree.body if isinstance(line, ast.FunctionDef) and line.name in names]
    tree.body = [*imports, *helpers, *chosen]
    _run(tree, config=config)
    return config


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(line for line in tree.body if isinstance(line, ast.FunctionDef) and line.name == name)


def _part(line: ast.stmt) -> str | None:
    """Part of the configuration that a line sets: `training` of `config.training.seq_len = 8192`."""
    target = line.targets[0] if isinstance(line, ast.Assign) else None
    path: list[str] = []
    while isinstance(target, ast.Attribute):
        path.append(target.attr)
        target = target.value
    return path[-1] if path and isinstance(target, ast.Name) and target.id == "config" else None


def _is_of_the_user(line: ast.stmt) -> bool:
    """Whether a line sets data, tokenizer, length of training or checkpoints."""
    reads = any(isinstance(node, ast.Attribute) and node.attr == "environ" for node in ast.walk(line))
    return reads or _part(line) == "checkpoint"


def _run(tree: ast.Module, **names: Any) -> dict[str, Any]:
    code = compile(tree, "<meshwright plan for torchtitan>", "exec")
    exec(code, names)  # noqa: S102 - text that emit wrote
    return names


def deepspeed(plan: Chosen) -> dict[str, Any]:
    """Configuration of DeepSpeed, for `deepspeed.initialize(config=…)`, `TrainingArguments(deepspeed=…)` and Accelerate's
    `DeepSpeedPlugin(hf_ds_config=…)`."""
    found: dict[str, Any] = json.loads(emit(plan, "deepspeed").files["ds_config.json"])
    return found


def accelerate(plan: Chosen) -> dict[str, Any]:
    """Arguments of `accelerate.Accelerator`: number format, accumulation steps, and the FSDP plugin and device mesh of a plan.

    The micro-batch is that of the user's data loader. Raises `QuestionError` if Accelerate cannot express the plan.
    """
    files = emit(plan, "accelerate").files
    import yaml  # what Accelerate reads its own files with
    from accelerate.utils import FullyShardedDataParallelPlugin, ParallelismConfig, TorchContextParallelConfig

    config: dict[str, Any] = yaml.safe_load(files["accelerate.yaml"])
    steps = re.search(r"ACCELERATE_GRADIENT_ACCUMULATION_STEPS=(\d+)", files["accelerate.sh"])
    arguments: dict[str, Any] = {
        "mixed_precision": config["mixed_precision"],
        "gradient_accumulation_steps": int(steps[1]) if steps else 1,
    }
    if "fsdp_config" in config:
        renamed = {"fsdp_version": "fsdp_version", "fsdp_offload_params": "cpu_offload"}
        fsdp = {renamed.get(key, key[len("fsdp_") :]): value for key, value in config["fsdp_config"].items()}
        mesh = {key[len("parallelism_config_") :]: value for key, value in config["parallelism_config"].items()}
        strategy = mesh.pop("cp_comm_strategy", None)
        if strategy is not None:
            mesh["cp_handler"] = TorchContextParallelConfig(cp_comm_strategy=strategy)
        arguments["fsdp_plugin"] = FullyShardedDataParallelPlugin(**fsdp)
        arguments["parallelism_config"] = ParallelismConfig(**mesh)
    return arguments
