#!/usr/bin/env python3
"""Does ms-swift itself accept this emitted script?   (CPU only; a stand-in of its commands takes what the script gives them)

  check_ms_swift.py ms_swift.sh --ms-swift-path CHECKOUT [--world-size N]

Levels: parse   the declarations of its arguments for Megatron core, by the parser that it uses (HfArgumentParser): names, types, choices;
                what is left must be declared by its arguments for data and templates
        sizes   its own methods for virtual stages and for the batch, on as many ranks as the environment of the script says
        Of `swift sft`: names of its declarations, and its Trainer's own by transformers' parser; its own methods for DeepSpeed, FSDP and
        the mesh of sequences; transformers' check of DeepSpeed's batch, DeepSpeed's reader, Accelerate's plugin of FSDP
Its package is not installed (it asks for ModelScope, Megatron core, apex): the classes are taken from its source without what runs after parsing.
"""

import argparse
import ast
import dataclasses
import enum
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import types
import typing

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc

ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--ms-swift-path", required=True)
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--heads", default=8, help="key-value heads of the model")
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "ms-swift", "levels": {}}
KEPT = {"_init_vpp_size", "_init_distributed"}
SET = {
    "LORA_RANK": "16",
    "LORA_TARGETS": "all-linear",
    "MODEL": "Qwen/Qwen3-8B",
    "DATASET": "AI-ModelScope/alpaca-gpt4-data-en",
    "OUTPUT": "out",
    "NODE_RANK": "0",
    "MASTER_ADDR": "localhost",
}


def fail(level, e):
    fc.reject(out, level, e, o.verbose)


def launched():
    """Command, arguments and environment that the script gives to `megatron` or `swift`."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("megatron", "swift"):
            stub = os.path.join(folder, name)
            with open(stub, "w") as f:
                f.write(
                    f"#!{sys.executable}\nimport json, os, sys\njson.dump([{name!r}, sys.argv[1:], dict(os.environ)], open({os.path.join(folder, 'call.json')!r}, 'w'))\n"
                )
            os.chmod(stub, os.stat(stub).st_mode | stat.S_IXUSR)
        done = subprocess.run(
            ["bash", os.path.abspath(o.file)],
            env={**os.environ, **SET, "PATH": folder + os.pathsep + os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return json.load(open(os.path.join(folder, "call.json")))


def declared():
    """MegatronArguments of the source, as a dataclass with the methods that are asked here."""
    tree = ast.parse(open(os.path.join(o.ms_swift_path, "swift/megatron/arguments/megatron_args.py")).read())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in classes:
        node.body = [part for part in node.body if not isinstance(part, ast.FunctionDef) or part.name in KEPT]
    import torch

    _ = typing.Optional[
        typing.Union[typing.List[str], str]
    ]  # typing keeps the order that it sees first, and the parser takes the second
    space = {
        "dataclass": dataclasses.dataclass,
        "field": dataclasses.field,
        "torch": torch,
        "Literal": typing.Literal,
        "Optional": typing.Optional,
        "Union": typing.Union,
        "List": typing.List,
        "Dict": typing.Dict,
        "Any": typing.Any,
        "Tuple": typing.Tuple,
        "os": os,
        "math": math,
        "initialize_megatron": lambda args: setattr(args, "world_size", o.world_size),
        "__name__": "megatron_args",
    }
    sys.modules["megatron_args"] = types.ModuleType("megatron_args")
    exec(compile(ast.Module(classes, []), "megatron_args.py", "exec"), space)
    sys.modules["megatron_args"].__dict__.update(space)
    return space["MegatronArguments"]


def others():
    """Names of the arguments that its other classes declare."""
    names = set()
    for folder in ("swift/arguments/base_args", "swift/arguments", "swift/megatron/arguments"):
        for name in os.listdir(os.path.join(o.ms_swift_path, folder)):
            if name.endswith(".py"):
                for node in ast.walk(ast.parse(open(os.path.join(o.ms_swift_path, folder, name)).read())):
                    if isinstance(node, ast.ClassDef):
                        names |= {
                            part.target.id
                            for part in node.body
                            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
                        }
    return names


def methods(path, names, **space):
    """Methods of the classes of a module of its source, as functions."""
    tree = ast.parse(open(os.path.join(o.ms_swift_path, path)).read())
    found = [
        node
        for outer in tree.body
        if isinstance(outer, ast.ClassDef)
        for node in outer.body
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    for node in found:
        node.returns = None
    exec(compile(ast.Module(found, []), path, "exec"), space)
    return space


def as_json(text):
    """Of its `json_parse_to_dict`: a file, or the text itself."""
    return json.load(open(text)) if os.path.exists(text) else json.loads(text)


def trainer(words, environment):
    """Judges `swift sft`."""
    import dataclasses as parts
    import logging
    import torch
    import torch.distributed as dist
    import transformers.training_args as ta
    from transformers import HfArgumentParser, Seq2SeqTrainingArguments

    world, quiet = (
        o.world_size,
        types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None, warn=lambda *_: None),
    )
    os.environ.update(
        environment,
        WORLD_SIZE=str(world),
        RANK="0",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE=str(min(world, 8)),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29512",
        DS_ACCELERATOR="cpu",
        ACCELERATE_TORCH_DEVICE="cpu",
        ACCELERATE_USE_FSDP="false",
    )
    words_of = {}
    for word in words:
        if word.startswith("--"):
            words_of[last := word[2:]] = []
        else:
            words_of[last].append(word)
    twice = [name for name in words_of if words.count(f"--{name}") > 1]
    if twice:
        raise ValueError(f"given twice: {twice}")
    of_hf = {field.name for field in parts.fields(Seq2SeqTrainingArguments)}
    unknown = sorted(set(words_of) - others() - of_hf)
    if unknown:
        raise ValueError(f"arguments that it does not have: {unknown}")
    dist.init_process_group(
        "fake",
        store=__import__("torch.testing._internal.distributed.fake_pg", fromlist=["FakeStore"]).FakeStore(),
        rank=0,
        world_size=world,
    )
    for name, value in (
        ("world_size", world),
        ("process_index", 0),
        ("local_process_index", 0),
        ("parallel_mode", ta.ParallelMode.DISTRIBUTED),
        ("_setup_devices", torch.device("cpu")),
    ):
        setattr(ta.TrainingArguments, name, property(lambda self, value=value: value))
    ta.is_torch_bf16_gpu_available = lambda: True
    own = [
        word
        for name in words_of
        if name in of_hf and name not in ("deepspeed", "fsdp")
        for word in (f"--{name}", *words_of[name])
    ]
    (arguments,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses(own)
    one = lambda name, usual=None: words_of[name][0] if name in words_of else usual
    out["levels"]["parse"] = "ok"
    made = methods(
        "swift/arguments/sft_args.py",
        {"_init_deepspeed", "_init_fsdp", "_check_fsdp2_compatibility"},
        os=os,
        logger=quiet,
        is_mp=lambda: False,
        require_version=lambda *_: None,
        json_parse_to_dict=as_json,
        __file__=os.path.join(o.ms_swift_path, "swift/arguments/sft_args.py"),
    )
    args = types.SimpleNamespace(
        deepspeed=one("deepspeed"),
        fsdp=one("fsdp"),
        zero_hpz_partition_size=None,
        deepspeed_autotp_size=None,
        callbacks=[],
        use_ray=False,
        gradient_checkpointing=arguments.gradient_checkpointing,
        save_only_model=False,
    )
    args._check_fsdp2_compatibility = lambda: made["_check_fsdp2_compatibility"](args)
    made["_init_deepspeed"](args)
    made["_init_fsdp"](args)
    cp, stage, reshard, recompute = int(one("sequence_parallel_size", 1)), 0, True, args.gradient_checkpointing
    accumulates = "bf16" if words_of.get("bf16") == ["true"] else "fp16"
    if args.deepspeed:
        import deepspeed

        deepspeed.utils.logger.setLevel(logging.ERROR)
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
        deepspeed.comm.init_distributed(dist_backend="fake", verbose=False, auto_mpi_discovery=False)
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        config = HfTrainerDeepSpeedConfig(args.deepspeed)
        config.trainer_config_process(arguments)
        config.trainer_config_finalize(arguments, None, 100)
        from deepspeed.runtime.config import DeepSpeedConfig

        stage = int(DeepSpeedConfig(config.config).zero_config.stage)
    elif args.fsdp:
        fsdp, known = (
            args.fsdp_config,
            {
                "fsdp_version",
                "reshard_after_forward",
                "auto_wrap_policy",
                "cpu_ram_efficient_loading",
                "state_dict_type",
                "activation_checkpointing",
            },
        )
        if set(fsdp) - known:
            raise ValueError(f"keys of fsdp_config that are not known: {set(fsdp) - known}")
        from accelerate.utils import FullyShardedDataParallelPlugin

        arguments = dataclasses.replace(
            arguments, fsdp=args.fsdp, fsdp_config=dict(fsdp)
        )  # as its Trainer hands them on
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            reshard_after_forward=fsdp["reshard_after_forward"],
            state_dict_type=fsdp["state_dict_type"],
            activation_checkpointing=fsdp["activation_checkpointing"],
            cpu_ram_efficient_loading=False,
        )
        if plugin.activation_checkpointing and args.gradient_checkpointing:
            raise ValueError("recomputed twice")
        stage, reshard, recompute = 3, plugin.reshard_after_forward, plugin.activation_checkpointing
    if cp > 1:
        mesh = methods(
            "swift/sequence_parallel/sequence_parallel.py",
            {"_init_device_mesh"},
            math=math,
            get_dist_setting=lambda: (0, 0, world, 8),
            get_device=lambda: "cpu",
            init_device_mesh=torch.distributed.init_device_mesh,
        )
        split = types.SimpleNamespace(world_size=cp, num_heads=int(o.heads))
        mesh["_init_device_mesh"](split)
        if split.rp_world_size > 1:
            raise ValueError(f"a ring of {split.rp_world_size} beside Ulysses over {split.sp_world_size}")
    each = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    out["sizes"] = {
        "tp": 1,
        "cp": cp,
        "pp": 1,
        "dp": world // cp,
        "ep": 1,
        "micro_batch": arguments.per_device_train_batch_size,
        "global_batch": each * (world // cp),
        "seq": int(one("max_length")),
        "zero_stage": stage,
        "reshard": "on" if reshard else "off",
        "recompute": "full" if recompute else "none",
        "half": accumulates,
    }
    out["levels"]["sizes"] = "ok"


stdout, sys.stdout = sys.stdout, sys.stderr
os.chdir(os.path.dirname(os.path.abspath(o.file)))  # names of other files are relative
o.file = os.path.basename(o.file)
try:
    command, words, environment = launched()
    if words[0] != "sft":
        raise ValueError(f"`{command} {words[0]}` is launched")
    if command == "swift":
        trainer(words[1:], environment)
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("sizes" if "parse" in out["levels"] else "parse", e)
if command == "swift":
    sys.stdout = stdout
    fc.report(True, out)
try:
    from transformers import HfArgumentParser

    kind = declared()
    twice = [word for word in words if word.startswith("--") and words.count(word) > 1]
    if twice:
        raise ValueError(f"given twice: {sorted(set(twice))}")
    # Arguments of other classes stand apart: without theirs, the parser would take them for the beginnings of these.
    fields, own, left = {field.name for field in dataclasses.fields(kind)}, [], []
    for word in words[1:]:
        to = (own if word[2:] in fields else left) if word.startswith("--") else to
        to.append(word)
    (args,) = HfArgumentParser(kind).parse_args_into_dataclasses(own)
    known = others()
    unknown = [word for word in left if word.startswith("--") and word[2:] not in known]
    if unknown:
        raise ValueError(f"arguments that it does not have: {unknown}")
    sequence = int(left[left.index("--max_length") + 1])
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("parse", e)
try:
    world = int(environment["NPROC_PER_NODE"]) * int(environment.get("NNODES", "1"))
    if world != o.world_size:
        raise ValueError(f"the script starts {world} ranks, the plan has {o.world_size}")
    if args.pipeline_model_parallel_layout is None:
        args._init_vpp_size()
    args._init_distributed()
    if args.recompute_granularity == "selective" and args.recompute_method is not None:
        raise ValueError("recompute method beside selective recomputation")
    if args.tp_comm_overlap and not args.sequence_parallel:
        raise ValueError("tp_comm_overlap wants sequence_parallel")
    out["sizes"] = {
        "tp": args.tensor_model_parallel_size,
        "cp": args.context_parallel_size,
        "pp": args.pipeline_model_parallel_size,
        "dp": args.data_parallel_size,
        "ep": args.expert_model_parallel_size,
        "etp": args.expert_tensor_parallel_size,
        "micro_batch": args.micro_batch_size,
        "global_batch": args.global_batch_size,
        "seq": sequence,
        "zero_stage": int(args.use_distributed_optimizer),
        "num_microbatches": args.num_microbatches,
    }
    out["levels"]["sizes"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("sizes", e)
sys.stdout = stdout
fc.report(True, out)
