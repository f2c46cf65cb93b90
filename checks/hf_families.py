#!/usr/bin/env python3
"""Families of Hugging Face configurations: sizes drawn at random, counted by transformers' own classes and by `meshwright models`.

    python3 checks/hf_families.py [--meshwright BINARY] [--seed 7] [--each 4] [--only qwen3_moe,glm4_moe]

Every family of catalogue/hf/mod.rs that has a class is built on the meta device, and its configuration is read twice: with the fields
that were drawn alone, and whole. A refusal is counted; another count of parameters is a fault, and the exit status 1. Needs torch and
transformers.
"""

import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerTextModel

READERS = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "crates", "planner", "src", "catalog", "hf", "mod.rs"
)
OWN = {"qwen3_omni_moe_text": Qwen3OmniMoeThinkerTextModel}  # no automatic class knows the type


def sizes(chance, usual):
    """Sizes for the fields that a class has."""
    width, heads = chance.choice((32, 64, 96, 128)), chance.choice((4, 8, 12, 16))
    hidden = width * heads if chance.random() < 0.6 else chance.choice((256, 512, 768, 1024, 1536))
    kinds = (
        (("hidden_size", "n_embd", "d_model"), (hidden,)),
        (("num_attention_heads", "n_head", "n_heads"), (heads,)),
        (("num_key_value_heads",), [n for n in (1, 2, 4, heads) if heads % n == 0]),
        (("num_hidden_layers", "n_layer", "n_layers"), (4, 6, 8, 12)),
        (("vocab_size",), (32000, 32003, 50257)),
        (("intermediate_size", "n_inner", "ffn_dim"), (512, 704, 1024)),
        (("moe_intermediate_size",), (128, 256, 384)),
    )
    drawn = {name: chance.choice(values) for names, values in kinds for name in names if hasattr(usual, name)}
    if hasattr(usual, "head_dim") and chance.random() < 0.5:
        drawn["head_dim"] = chance.choice((32, 64, 128))
    drawn |= {
        name: chance.random() < 0.5
        for name in ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_qk_norm")
        if hasattr(usual, name) and chance.random() < 0.5
    }
    if getattr(usual, "pad_token_id", None) is not None:
        drawn["pad_token_id"] = 0
    return drawn


def count(config, family):
    """Parameters of the class, its head among them."""
    total = lambda model: sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    head = (
        0
        if getattr(config, "tie_word_embeddings", False)
        else config.vocab_size * config.hidden_size
        if hasattr(config, "hidden_size")
        else 0
    )
    with torch.device("meta"):
        if family in OWN:
            return total(OWN[family](config)) + config.vocab_size * config.hidden_size
        try:
            return total(AutoModelForCausalLM.from_config(config))
        except ValueError:
            return total(AutoModel.from_config(config)) + head  # the part for text of a multimodal model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--meshwright", default="target/debug/meshwright")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    families = re.findall(r'^    \("(\w+)", \w+::', open(READERS).read(), re.M)
    chance, counts, wrong = random.Random(options.seed), collections.Counter(), 0
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        for family in families:
            if family not in CONFIG_MAPPING or options.only and family not in options.only.split(","):
                continue
            if hasattr(CONFIG_MAPPING[family](), "vision_config"):  # its class builds the encoder of images too
                continue
            for _ in range(options.each):
                try:
                    drawn = sizes(chance, CONFIG_MAPPING[family]())
                    config = CONFIG_MAPPING[family](**drawn)
                    wanted = count(config, family)
                except Exception:  # sizes that the class itself refuses
                    counts["refused by the class"] += 1
                    continue
                for fields in ({"model_type": family, **drawn}, json.loads(config.to_json_string(use_diff=False))):
                    json.dump(fields, open(path, "w"))
                    run = subprocess.run(
                        [options.meshwright, "models", path, "--format", "json"], capture_output=True, text=True
                    )
                    ours = json.loads(run.stdout)["parameters"]["total"] if run.returncode == 0 else None
                    counts["refused" if ours is None else "exact" if ours == wanted else "wrong"] += 1
                    if ours not in (None, wanted):
                        wrong += 1
                        print(f"{family}: {wanted} parameters, counted {ours}: {json.dumps(drawn)}")
    print(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
