"""Plans as the objects of training frameworks. A framework is imported when its function is called, and no other."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from meshwright._functions import emit

if TYPE_CHECKING:
    from meshwright._answers import Explanation
    from meshwright._plan import Answer, Plan

    Chosen = Plan | Answer | Explanation

__all__ = ["apply", "deepspeed"]

Config = TypeVar("Config")

KEPT = ("architecture", "data, tokenizer, checkpoints")
"""Sections of an emitted recipe that a plan leaves to the recipe of the user: its model, its data, its learning rate."""


def apply(plan: Chosen, cfg: Config) -> Config:
    """Sets the degrees, batch, formats, recomputation and overlap of a plan in a `ConfigContainer` of Megatron-Bridge.

    The settings are those of `emit(plan, "megatron-bridge")`; architecture, data, tokenizer and learning rate stay as they are.
    Returns `cfg`. Raises `QuestionError` if Megatron-Bridge cannot express the plan.
    """
    text = emit(plan, "megatron-bridge").files["megatron_bridge.py"]
    imports = "\n".join(re.findall(r"^(?:import|from) .+$|^os\.environ.+$", text, re.MULTILINE))
    body = text[text.index("def config(") : text.index("    return cfg\n")]
    sections = re.findall(r"^    # (.+)\n((?:(?!    # ).*\n)*)", body, re.MULTILINE)
    chosen = [settings for heading, settings in sections if not heading.startswith(KEPT)]
    source = imports + "\n" + "\n".join(re.sub(r"^    ", "", settings, flags=re.MULTILINE) for settings in chosen)
    exec(compile(source, "<meshwright plan for Megatron-Bridge>", "exec"), {"cfg": cfg})  # noqa: S102 - text that emit wrote
    return cfg


def deepspeed(plan: Chosen) -> dict[str, Any]:
    """Configuration of DeepSpeed, for `deepspeed.initialize(config=…)` and `TrainingArguments(deepspeed=…)`."""
    found: dict[str, Any] = json.loads(emit(plan, "deepspeed").files["ds_config.json"])
    return found
