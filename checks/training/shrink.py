"""Models of the catalogue, small enough to be trained on a CPU, whose degrees divide what those of the model divide."""

import math
import re

MOST_DEGREE = 8  # of any axis: the ranks of a run


def shrunk(model, layers):
    """The model with `layers` layers, narrow ones, heads of 16, and experts and heads that 2, 4 and 8 ranks divide where they
    divide the model's own."""
    kinds = spelled(model["layers"])
    lead = (
        kinds[0]
        if len(set(kinds)) > 1 and kinds[:2] == kinds[:1] * 2 and kinds[-1] != kinds[0] and kinds.count(kinds[0]) < 8
        else ""
    )
    kept = ([lead] + kinds[kinds.count(lead) :] if lead else kinds)[:layers]  # dense layers that lead become one
    kept += kept[-1:] * (layers - len(kept))
    heads = {
        layer["mixer"]["head_dim"] * layer["mixer"]["heads"] == model["hidden"]
        and math.gcd(layer["mixer"]["heads"], MOST_DEGREE)
        for layer in model["layer"].values()
        if "head_dim" in layer["mixer"]
    }
    small = {**model, "hidden": max(heads | {0}) * 16 or 64, "vocab": 512, "layers": " ".join(kept)}
    small["layer"] = {
        name: {**layer, "mixer": mixer(layer["mixer"]), "ffn": ffn(layer["ffn"])}
        for name, layer in model["layer"].items()
        if name in kept
    }
    return small


def spelled(pattern):
    """Kinds of a model's layers, one a layer: `d*2 (a b)*2` is `d d a b a b`."""
    pattern = " ".join(pattern.split())
    while "*" in pattern or "(" in pattern:
        once = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: " ".join([m[1]] * int(m[2])), pattern, count=1)
        once = re.sub(r"\b([a-z])\*(\d+)", lambda m: " ".join([m[1]] * int(m[2])), once)
        if once == pattern:
            raise ValueError(f"layers that are not understood: {pattern}")
        pattern = once
    return pattern.split()


def mixer(own):
    """Attention with fewer and narrower heads."""
    small = dict(own)
    if "heads" in own:
        small["heads"] = math.gcd(own["heads"], MOST_DEGREE)
    if "kv_heads" in own:
        small["kv_heads"] = math.gcd(own["kv_heads"], small["heads"])
    widths = {"head_dim": 16, "q_rank": 32, "kv_rank": 32, "nope_dim": 16, "rope_dim": 16, "v_dim": 16}
    return small | {name: width for name, width in widths.items() if name in own}


def ffn(own):
    """Feed-forward layers of 128, experts of 64."""
    small = dict(own)
    if "experts" in own:
        small["experts"] = 16 if own["experts"] % 16 == 0 else MOST_DEGREE
        small["top_k"] = min(own["top_k"], 4)
        small.pop("group_limit", None)
    for name in ("intermediate", "shared_intermediate"):
        if name in own:
            small[name] = 64 if "experts" in own else 128
    return small


def toml(value):
    """A TOML file of tables two deep, and inline below."""

    def inline(value):
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{name} = {inline(inner)}" for name, inner in value.items()) + " }"
        return (
            {True: "true", False: "false"}.get(value, None)
            if isinstance(value, bool)
            else f'"{value}"'
            if isinstance(value, str)
            else str(value)
        )

    lines = [f"{name} = {inline(inner)}" for name, inner in value.items() if name != "layer"]
    for name, layer in value["layer"].items():
        lines += ["", f"[layer.{name}]", *(f"{key} = {inline(inner)}" for key, inner in layer.items())]
    return "\n".join(lines) + "\n"
