#!/usr/bin/env python3
"""Does llm-foundry itself accept this emitted YAML?   (CPU only; marks of what the user sets are filled in)

  check_llm_foundry.py llm_foundry.yaml --llm-foundry-path CHECKOUT --composer-path CHECKOUT --megablocks-path CHECKOUT [--world-size N] [--parameters N]

Levels: parse   make_dataclass_and_log_config() with the transform that counts the batch, on N ranks: TrainConfig refuses unknown keys;
                validate_config() and process_init_device() of the training command
        engine  Composer's FSDPConfig, whose fields each key must be, its mesh on a torch "fake" process group, its strategies and formats
        launch  the script's line by the parser of Composer's launcher
        model   MPTConfig, and the number of parameters; of experts MegaBlocks' Arguments, and llm-foundry's mesh for them
No package is installed (they ask for MLflow, streaming, their own torch and compiled kernels): modules are taken from their source without the rest.
"""

import argparse
import ast
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--llm-foundry-path", required=True)
ap.add_argument("--composer-path", required=True)
ap.add_argument("--megablocks-path", required=True)
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--parameters", type=int, help="how many the model must have")
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "llm-foundry", "levels": {}}
world = o.world_size
FILLED = {
    "name: TO_BE_SET": "name: EleutherAI/gpt-neox-20b",
    "local: TO_BE_SET": "local: data",
    "max_duration: TO_BE_SET": "max_duration: 1ep",
    "save_folder: TO_BE_SET": "save_folder: out",
}


def fail(level, e):
    sys.stdout = stdout
    fc.reject(out, level, e, o.verbose)


def package(name, path=None, **names):
    """A package whose modules lie in a folder and whose own `__init__` does not run, or a stand-in with these names."""
    module = types.ModuleType(name)
    module.__path__ = [path] if path else []
    module.__dict__.update(names)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    return module


class Registry:
    """Of the package `catalogue`: functions by name."""

    def __init__(self, namespace, entry_points=False):
        self.known = {}

    def __class_getitem__(cls, item):
        return cls

    def register(self, name, *, func=None):
        def keep(func):
            self.known[name] = func
            return func

        return keep if func is None else keep(func)

    def get(self, name):
        return self.known[name]

    def get_all(self):
        return dict(self.known)

    def __contains__(self, name):
        return name in self.known


def stand_ins():
    from enum import StrEnum

    foundry, composer = os.path.join(o.llm_foundry_path, "llmfoundry"), os.path.join(o.composer_path, "composer")
    dist = package(
        "composer_dist",
        get_world_size=lambda: world,
        get_global_rank=lambda: 0,
        get_local_rank=lambda: 0,
        get_local_world_size=lambda: min(world, 8),
    )
    package("catalogue", Registry=Registry, check_exists=lambda *_: False, RegistryError=ValueError)
    package("tabulate", tabulate=None)
    package("flash_attn", __version__="2.7.4")
    package("flash_attn.bert_padding", unpad_input=None, pad_input=None)
    package("flash_attn.layers")
    package("flash_attn.layers.rotary", RotaryEmbedding=None)  # compiled for GPUs; its number is asked for
    package("mlflow")
    package(
        "mlflow.data",
        **{
            name: None
            for name in (
                "delta_dataset_source",
                "http_dataset_source",
                "huggingface_dataset_source",
                "uc_volume_dataset_source",
            )
        },
    )
    package("composer", __version__="0.32.1")
    package("composer.loggers", Logger=object)
    package(
        "composer.loggers.mosaicml_logger",
        **{f"MOSAICML_{name}_ENV_VAR": "" for name in ("GPU_LOG_FILE_PREFIX", "LOG_DIR", "PLATFORM")},
    )
    package("composer.models", HuggingFaceModel=object, ComposerModel=object)
    package(
        "composer.utils",
        os.path.join(composer, "utils"),
        dist=dist,
        parse_uri=None,
        is_xla_installed=lambda: False,
        StringEnum=StrEnum,
        get_free_tcp_port=lambda: 29500,
    )
    package("composer.devices", Device=object, DeviceCPU=object)
    package("composer.core", os.path.join(composer, "core"))
    package("composer.distributed", os.path.join(composer, "distributed"))
    package("composer.cli", os.path.join(composer, "cli"))
    package("llmfoundry", foundry)
    package("llmfoundry.registry", config_transforms=Registry(""))
    package("llmfoundry.utils", os.path.join(foundry, "utils"))
    for name in ("models", "models.layers", "models.mpt"):
        package(f"llmfoundry.{name}", os.path.join(foundry, *name.split(".")))
    package(
        "megablocks",
        os.path.join(o.megablocks_path, "megablocks"),
        grouped_gemm_util=package("megablocks.grouped_gemm_util", assert_grouped_gemm_is_available=lambda: None),
    )
    package("megablocks.layers", os.path.join(o.megablocks_path, "megablocks", "layers"))
    import megablocks.layers.arguments


def experts(
    d_model, expansion_ratio, ffn_hidden_size=None, ffn_act_fn=None, device=None, bias=True, args=None, **kwargs
):
    """MegaBlocks' experts by its arguments; their parameters are those of llm-foundry's own layer, which needs no kernels."""
    from llmfoundry.models.layers.dmoe import dMoE

    return dMoE(
        torch.device("meta"),
        d_model,
        ffn_hidden_size,
        args.moe_num_experts,
        args.moe_top_k,
        args.mlp_type,
        moe_normalize_expert_weights=args.moe_normalize_expert_weights,
        bias=bias,
    )


def arguments(wanted):
    """`ffn_config` with MegaBlocks' arguments, as MPTModel makes it; keys that it would drop in silence are refused."""
    import inspect
    from llmfoundry.models.utils.config_moe_args import config_moe_args
    from megablocks.layers import mpu
    from megablocks.layers.arguments import Arguments
    import torch.distributed._tensor.device_mesh as meshes

    unknown = (
        set(wanted["ffn_config"])
        - set(inspect.signature(Arguments).parameters)
        - {"ffn_type", "fc_type", "ffn_act_fn", "moe_world_size", "device_mesh"}
    )
    if unknown:
        raise ValueError(f"keys that MegaBlocks does not have: {sorted(unknown)}")
    made = meshes.init_device_mesh
    meshes.init_device_mesh = lambda device, *rest, **more: made("cpu", *rest, **more)
    ffn_config = config_moe_args(
        {**wanted["ffn_config"], "device": "meta"}, wanted["d_model"], wanted["expansion_ratio"], wanted["n_layers"]
    )
    args = ffn_config["args"]
    out["experts"] = {
        "ep": mpu.get_expert_parallel_world_size(args),
        "on_a_rank": mpu.experts_per_rank(args) * mpu.features_per_rank(args) / args.ffn_hidden_size,
    }
    return ffn_config


def functions(path, names, **space):
    """Functions of a module whose imports are left out."""
    tree = ast.parse(open(path).read())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in found:
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
    exec(compile(ast.Module(found, []), path, "exec"), space)
    return space


stdout, sys.stdout = sys.stdout, io.StringIO()
try:
    import torch
    import transformers
    import dataclasses
    from omegaconf import OmegaConf

    stand_ins()
    from llmfoundry.utils import config_utils

    config_utils.config_transforms.register("update_batch_size_info", func=config_utils.update_batch_size_info)
    sys.modules["llmfoundry.layers_registry"].ffns_with_megablocks.register("mb_dmoe", func=experts)
    logging.disable(logging.WARNING)
    text = open(o.file).read()
    for mark, value in FILLED.items():
        text = text.replace(mark, value)
    if "TO_BE_SET" in [line.split(": ")[-1] for line in text.splitlines() if not line.startswith("#")]:
        raise ValueError("a mark that this check does not fill")
    _, config = config_utils.make_dataclass_and_log_config(
        OmegaConf.create(text), config_utils.TrainConfig, config_utils.TRAIN_CONFIG_KEYS, transforms="all"
    )
    command = functions(
        os.path.join(o.llm_foundry_path, "llmfoundry/command_utils/train.py"),
        {"validate_config"},
        warnings=warnings,
        torch=torch,
        ffns_with_megablocks=sys.modules["llmfoundry.layers_registry"].ffns_with_megablocks,
    )
    command["validate_config"](config)
    config_utils.process_init_device(config.model, config.fsdp_config if world > 1 else None, None)
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    fail("parse", e)
try:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from composer.utils.parallelism import FSDPConfig
    from composer.core.precision import Precision, _validate_precision

    sys.modules["composer.core"].Precision = Precision
    from composer.distributed.mosaic_parallelism import SHARDING_MAP, BACKWARD_PREFETCH_MAP, get_mixed_precision

    precision = Precision(config.precision)
    stage, shard, reshard, reduced = 0, 1, True, torch.float32
    if config.fsdp_config is not None:
        if world == 1:
            raise ValueError("FSDP on one GPU, which the training command drops")
        unknown = sorted(set(config.fsdp_config) - {field.name for field in dataclasses.fields(FSDPConfig)})
        if unknown:
            raise ValueError(f"keys that FSDPConfig does not have: {unknown}")
        fsdp = FSDPConfig(**config.fsdp_config)
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        names = types.SimpleNamespace(
            DATA_PARALLEL_REPLICATE=types.SimpleNamespace(value="dp_replicate"),
            DATA_PARALLEL_SHARD=types.SimpleNamespace(value="dp_shard"),
            TENSOR_PARALLEL=types.SimpleNamespace(value="tp"),
        )
        state = functions(
            os.path.join(o.composer_path, "composer/core/state.py"),
            {"_create_device_mesh"},
            ParallelismType=names,
            log=logging.getLogger("x"),
            dist=sys.modules["composer_dist"],
            init_device_mesh=torch.distributed.init_device_mesh,
        )
        mesh = state["_create_device_mesh"](types.SimpleNamespace(name="cpu"), fsdp, None)
        strategy = SHARDING_MAP[fsdp.sharding_strategy.upper()]
        # prepare_fsdp_module() warns and takes another strategy where the name and the mesh differ.
        if ("HYBRID" in strategy.name) != (mesh.ndim == 2):
            raise ValueError(f"{strategy.name} on a mesh of {mesh.ndim} dimensions")
        stage, shard, reshard = 3, mesh.size(mesh.ndim - 1), strategy.name in ("FULL_SHARD", "HYBRID_SHARD")
        BACKWARD_PREFETCH_MAP[fsdp.backward_prefetch.upper()]
        _, weights, reduced, _ = get_mixed_precision(precision, mixed_precision=fsdp.mixed_precision)
        if fsdp.cpu_offload:
            raise ValueError("cpu_offload")
        if fsdp.state_dict_type not in ("full", "sharded"):
            raise ValueError("state_dict_type")
    if config.device_train_microbatch_size * config.device_train_grad_accum * world != config.global_train_batch_size:
        raise ValueError("micro-batches do not make the batch")
    fsdp_config = config.fsdp_config or {}
    out["sizes"] = {
        "tp": 1,
        "cp": 1,
        "pp": 1,
        "ep": 1,
        "dp": config.n_gpus,
        "micro_batch": config.device_train_microbatch_size,
        "global_batch": config.global_train_batch_size,
        "zero_stage": stage,
        "shard": shard,
        "reshard": "on" if reshard else "off",
        "seq": config.train_loader["dataset"]["max_seq_len"],
        "half": precision.value,
        "reduced": str(reduced),
        "recompute": "full" if fsdp_config.get("activation_checkpointing") else "none",
    }
    out["levels"]["engine"] = "ok"
except (Exception, SystemExit) as e:
    fail("engine", e)
try:
    from composer.cli import launcher

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "composer"), "w") as f:
            f.write(
                f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv, open({os.path.join(folder, 'call.json')!r}, 'w'))\n"
            )
        os.chmod(os.path.join(folder, "composer"), 0o755)
        for name in ("llm_foundry.yaml", "llm_foundry.sh"):
            whole = open(os.path.join(os.path.dirname(os.path.abspath(o.file)), name)).read()
            open(os.path.join(folder, name), "w").write(text if name.endswith("yaml") else whole)
        environment = {
            **os.environ,
            "PATH": folder + os.pathsep + os.environ["PATH"],
            "LLM_FOUNDRY": "/f",
            "NODE_RANK": "0",
            "MASTER_ADDR": "first",
            "MASTER_PORT": "29501",
        }
        done = subprocess.run(
            ["bash", "llm_foundry.sh", "seed=1"], cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise ValueError(done.stderr.strip())
        sys.argv = json.load(open(os.path.join(folder, "call.json")))
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "BASE_RANK", "NODE_RANK"):
        os.environ.pop(name, None)
    launched = launcher._parse_args()
    if launched.world_size != world:
        raise ValueError(f"the script starts {launched.world_size} ranks, the plan has {world}")
    if (launched.training_script, launched.training_script_args) != (
        "/f/scripts/train/train.py",
        ["llm_foundry.yaml", "seed=1"],
    ):
        raise ValueError(f"{launched}")
    out["levels"]["launch"] = "ok"
except (Exception, SystemExit) as e:
    fail("launch", e)
try:
    from llmfoundry.models.layers import attention, blocks, ffn, norm, fc as _linear  # what they register
    from llmfoundry.models.mpt.configuration_mpt import MPTConfig

    layers = sys.modules["llmfoundry.layers_registry"]
    layers.ffns_with_megablocks.register("mb_dmoe", func=experts)  # in place of its own, which builds MegaBlocks' layer
    for name, kind in (
        ("multihead_attention", attention.MultiheadAttention),
        ("grouped_query_attention", attention.GroupedQueryAttention),
    ):
        if name not in layers.attention_classes:
            raise ValueError(f"{name} is not registered")
    model = MPTConfig(**{key: value for key, value in config.model.items() if key != "name"})
    wanted = {**model.to_dict(), "device": "meta"}
    if model.ffn_config["ffn_type"] in layers.ffns_with_megablocks:
        wanted["ffn_config"] = arguments(wanted)
        out["sizes"]["ep"] = out["experts"]["ep"]
    with torch.device("meta"):
        block = blocks.MPTBlock(
            **{
                key: wanted[key]
                for key in (
                    "d_model",
                    "n_heads",
                    "head_dim",
                    "expansion_ratio",
                    "attn_config",
                    "ffn_config",
                    "resid_pdrop",
                    "norm_type",
                    "norm_eps",
                    "device",
                    "no_bias",
                    "attention_bias",
                    "use_pad_tok_in_ffn",
                    "fc_type",
                )
            }
        )
        last = norm.norms.get(model.norm_type)(model.d_model, eps=model.norm_eps, device="meta")
    # Without biases, MPTModel takes those of norms away as well.
    kept = lambda whole: sum(
        p.numel()
        for module in whole.modules()
        for name, p in module.named_parameters(recurse=False)
        if not (model.no_bias and name == "bias" and not isinstance(module, torch.nn.Linear))
    )
    if "q_ln" in dict(block.attn.named_children()) and type(block.attn.q_ln) is not type(last):
        raise ValueError(f"queries are normed by {type(block.attn.q_ln).__name__}")
    embeddings = model.vocab_size * model.d_model * (1 if model.tie_word_embeddings else 2)
    positions = model.max_seq_len * model.d_model if model.learned_pos_emb else 0
    out["parameters"] = model.n_layers * kept(block) + kept(last) + embeddings + positions
    if o.parameters not in (None, out["parameters"]):
        raise ValueError(f"{out['parameters']} parameters, and the model has {o.parameters}")
    if not model.learned_pos_emb and model.attn_config["rope"]:
        if model.attn_config["rope_impl"] != "hf":
            raise ValueError("rotary embeddings of another package")
        from transformers import LlamaConfig

        LlamaConfig(
            rope_theta=model.attn_config["rope_theta"], hidden_size=model.d_model, num_attention_heads=model.n_heads
        )
    out["levels"]["model"] = "ok"
except (Exception, SystemExit) as e:
    fail("model", e)
sys.stdout = stdout
fc.report(True, out)
