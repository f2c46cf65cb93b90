#!/usr/bin/env python3
"""Does Primus itself accept this emitted experiment?   (CPU only; a stand-in of its launcher takes what the script gives it)

  check_primus.py primus.yaml --primus-path CHECKOUT --primus-megatron-path CHECKOUT [--world-size N]

Levels: launch    primus.sh: what it hands to `primus-cli direct`, and the ranks of its environment
        parse     PrimusParser: presets, environment variables, overrides
        keys      every override is an argument of the Megatron-LM of its third_party, by that parser
        validate  Primus' MegatronArgBuilder with its patches of arguments, Megatron's validate_args() and Primus' own for ROCm
        config    core_transformer_config_from_args() -> TransformerConfig.__post_init__, optimizer's configuration
"""

import argparse
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import traceback
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--primus-path", required=True)
ap.add_argument("--primus-megatron-path", required=True)
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "primus", "levels": {}}
SET = {
    "DATA": "data/text_document",
    "TOKENIZER": "meta-llama/Meta-Llama-3-8B",
    "SAVE": "out",
    "LOAD": "out/checkpoints",
    "STEPS": "50",
    "NODE_RANK": "0",
    "MASTER_ADDR": "localhost",
}
os.environ.update(SET)
level, stdout = "launch", sys.stdout
sys.stdout = io.StringIO()


def launched():
    """Arguments and environment that the script gives to `primus-cli`."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "runner"))
        stub, call = os.path.join(folder, "runner", "primus-cli"), os.path.join(folder, "call.json")
        with open(stub, "w") as f:
            f.write(
                f"#!{sys.executable}\nimport json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], open({call!r}, 'w'))\n"
            )
        os.chmod(stub, os.stat(stub).st_mode | stat.S_IXUSR)
        done = subprocess.run(
            ["bash", "primus.sh"], env={**os.environ, "PRIMUS": folder}, capture_output=True, text=True
        )
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return json.load(open(call))


def patched(args, params, config):
    """The arguments behind Primus' own patches of them that need no GPU."""
    from primus.core.patches import PatchContext
    from primus.backends.megatron.patches.args import (
        data_path_split_patches,
        mock_data_patches,
        moe_layer_freq_patches,
        sequence_parallel_tp1_patches,
    )

    context = PatchContext(
        backend="megatron",
        phase="build_args",
        extra={"backend_args": args, "module_config": types.SimpleNamespace(params=params), "primus_config": config},
    )
    for patch in (
        mock_data_patches.patch_mock_data,
        data_path_split_patches.patch_data_path_split,
        moe_layer_freq_patches.patch_moe_layer_freq,
        sequence_parallel_tp1_patches.patch_sequence_parallel_tp1,
    ):
        patch(context)


class FusedAdam:
    """Transformer Engine's Adam, as far as its arguments are asked for: it is installed on the target."""

    def __init__(
        self, params, master_weight_dtype=None, exp_avg_dtype=None, exp_avg_sq_dtype=None, use_decoupled_grad=False
    ):
        pass


try:
    os.chdir(os.path.dirname(os.path.abspath(o.file)))
    words, environment = launched()
    if words[:5] != ["direct", "--", "train", "pretrain", "--config"] or words[5] != os.path.basename(o.file):
        raise ValueError(f"primus-cli is given {words}")
    world = int(environment["NNODES"]) * int(environment["GPUS_PER_NODE"])
    if world != o.world_size:
        raise ValueError(f"the script starts {world} ranks, the plan has {o.world_size}")
    out["levels"][level], level = "ok", "parse"
    sys.path[:0] = [os.path.abspath(o.primus_path), os.path.abspath(o.primus_megatron_path)]
    from primus.core.config.primus_config import get_module_config, load_primus_config
    import yaml

    experiment = yaml.safe_load(open(os.path.basename(o.file)))
    config = load_primus_config(os.path.basename(o.file))
    params = get_module_config(config, "pre_trainer").params
    out["levels"][level], level = "ok", "keys"
    os.environ.update(
        environment,
        WORLD_SIZE=str(world),
        RANK="0",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE=str(min(world, 8)),
        NVTE_ROCM_ENABLE_MXFP8="1",
    )
    import torch

    torch.cuda.get_device_capability = lambda *a, **k: (9, 4)  # gfx942
    torch.cuda.get_device_properties = lambda *a, **k: types.SimpleNamespace(
        major=9, minor=4, name="pretend", total_memory=192 << 30, multi_processor_count=304
    )
    import megatron.core.utils as mu
    from packaging.version import Version

    mu._te_version = Version("2.14.0")  # only what is_te_min_version() sees
    import megatron.training.arguments as A
    from primus.backends.megatron import argument_builder as builder
    import logging
    import primus.core.utils.logger as logger

    logger._logger = logging.getLogger("primus")  # its own writes files of every rank
    builder.warning_rank_0 = lambda message: (_ for _ in ()).throw(ValueError(message))
    known = builder._load_megatron_defaults()
    unknown = sorted(set(experiment["modules"]["pre_trainer"]["overrides"]) - set(known))
    if unknown:
        raise ValueError(f"arguments that its Megatron does not have: {unknown}")
    # Values reach Megatron as YAML has them: of the type that its parser makes, and among its choices.
    for action in builder._build_megatron_parser()._actions:
        value = (
            getattr(params, action.dest) if action.dest in experiment["modules"]["pre_trainer"]["overrides"] else None
        )
        for item in value if isinstance(value, list) else [value]:
            if (
                item is not None
                and action.type in (int, float)
                and (isinstance(item, str) or action.type is int and item != int(item))
            ):
                raise ValueError(f"{action.dest}: {item!r} is no {action.type.__name__}")
            if (
                item is not None
                and action.choices
                and item not in action.choices
                and item not in [getattr(choice, "name", choice) for choice in action.choices]
            ):
                raise ValueError(f"{action.dest}: {item!r} is not of {list(action.choices)}")
    out["levels"][level], level = "ok", "validate"
    args = builder.MegatronArgBuilder().update(params).finalize()
    for key, value in vars(params).items():
        if not hasattr(args, key):
            setattr(args, key, value)  # as its runtime merges its own settings back
    patched(args, params, config)
    args.rank, args.world_size, args.local_rank = 0, world, 0
    A.validate_args(args)
    from primus.backends.megatron.patches.args.rocm_arg_validation import validate_args_on_rocm

    validate_args_on_rocm(args)
    out["sizes"] = {
        "tp": args.tensor_model_parallel_size,
        "sp": args.sequence_parallel,
        "cp": args.context_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "dp": args.data_parallel_size,
        "ep": args.expert_model_parallel_size,
        "etp": args.expert_tensor_parallel_size or 1,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "micro_batch": args.micro_batch_size,
        "global_batch": args.global_batch_size,
        "seq": args.seq_length,
        "layers": args.num_layers,
        "dtype": str(args.params_dtype),
        "fp8": args.fp8,
        "distributed_optimizer": args.use_distributed_optimizer,
        "sharding": args.data_parallel_sharding_strategy if args.use_megatron_fsdp else None,
        "recompute": [
            args.recompute_granularity,
            args.recompute_method,
            args.recompute_num_layers,
            args.recompute_modules,
        ],
    }
    out["levels"][level], level = "ok", "config"
    import megatron.core.models.common.embeddings.rope_utils as rope
    import megatron.core.transformer.moe.moe_utils as moe

    rope.fused_apply_rotary_pos_emb = rope.fused_apply_rotary_pos_emb or (lambda *a, **k: None)
    for name in (
        "fused_permute",
        "fused_unpermute",
        "fused_permute_with_probs",
        "fused_sort_chunks_by_index",
        "fused_sort_chunks_by_index_with_probs",
    ):
        if not getattr(moe, name, None):
            setattr(moe, name, lambda *a, **k: None)
    made = A.core_transformer_config_from_args(args)
    from megatron.training.training import get_megatron_optimizer_config

    for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.optimizers"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["transformer_engine.pytorch.optimizers"].FusedAdam = FusedAdam
    get_megatron_optimizer_config(args)
    for key, field in (
        ("layernorm_epsilon", made.layernorm_epsilon),
        ("add_bias_linear", made.add_bias_linear),
        ("num_layers", made.num_layers),
        ("hidden_size", made.hidden_size),
        ("kv_channels", made.kv_channels),
    ):
        wanted = experiment["modules"]["pre_trainer"]["overrides"].get(key, field)
        if wanted != field:
            raise ValueError(f"{key}: {wanted} was written, {field} is made")
    out["levels"][level] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    out["levels"][level] = "REJECTED"
    found = traceback.extract_tb(e.__traceback__)[-1]
    out["error"] = {
        "level": level,
        "type": type(e).__name__,
        "message": str(e)[:2000],
        "where": f"{os.path.basename(found.filename)}:{found.lineno}",
    }
    if o.verbose:
        traceback.print_exc()
    fc.report(False, out)
sys.stdout = stdout
fc.report(True, out)
