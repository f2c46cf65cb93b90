#!/usr/bin/env python3
"""Does OLMo-core itself accept this emitted program?   (CPU only; what the user sets is filled in)

  check_olmo_core.py olmo_core_plan.py --olmo-core-path CHECKOUT --needs FOLDER [--world-size N] [--rank R] [--parameters N]

Levels: parse   its build_config(), merged with an override, as its main() does
        model   the model on the meta device, and the number of parameters
        data    in a timing run, synthetic data: the loader has a batch for each step
        build   the train module on rank R of a torch "fake" process group of N: mesh, stages, tensor, context and expert parallelism,
                recomputation, FSDP or DDP; the batch as pre_train() asks for it, and the pipeline's schedule
        launch  the script's line
The package is not installed (it asks for Beaker's and others): its source runs with dataclass-extensions from --needs, beside stand-ins
for what is compiled for GPUs. Weights are not made, and no optimizer is.
"""

import argparse
import importlib.util
import io
import logging
import os
import sys
import tempfile
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc
import olmo_core_stubs

warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--olmo-core-path", required=True)
ap.add_argument("--needs", required=True)
ap.add_argument("--world-size", type=int, default=8)
ap.add_argument("--rank", type=int, default=0)
ap.add_argument("--parameters", type=int, help="how many the model must have")
ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "olmo-core", "levels": {}}
world, folder = o.world_size, tempfile.mkdtemp()
sys.path[:0] = [os.path.join(o.olmo_core_path, "src"), o.needs]
os.environ.update(
    RANK=str(o.rank),
    WORLD_SIZE=str(world),
    LOCAL_RANK=str(o.rank % 8),
    LOCAL_WORLD_SIZE=str(min(world, 8)),
    NUM_NODES=str(max(world // 8, 1)),
    FS_LOCAL_RANK="0",
    OLMO_SHARED_FS="1",
    DATA="a.npy",
    TOKENIZER="gpt2",
    STEPS="10",
    SAVE=folder,
    WORK=folder,
)


def fail(level, e):
    sys.stdout = stdout
    fc.reject(out, level, e, o.verbose)


def stand_ins():
    olmo_core_stubs.modules()
    from olmo_core.nn.attention import flash_attn_api, te_attn_api, backend

    for name in ("has_flash_attn_2", "has_flash_attn_3", "has_ring_flash_attn", "has_te_attn"):
        for module in (flash_attn_api, te_attn_api, backend):
            if hasattr(module, name):
                setattr(module, name, lambda: True)
    # Transformer Engine's module is made when the model is.
    if hasattr(backend, "TEDotProductAttention"):
        backend.TEDotProductAttention = type(
            "TE", (__import__("torch").nn.Identity,), {"set_context_parallel_group": lambda *a, **k: None}
        )


stdout, sys.stdout = sys.stdout, io.StringIO()
try:
    import torch

    logging.disable(logging.WARNING)
    stand_ins()
    from olmo_core.exceptions import OLMoConfigurationError
    from olmo_core.data import TokenizerConfig

    TokenizerConfig.from_hf = classmethod(lambda cls, name: cls(vocab_size=1000, eos_token_id=0, pad_token_id=1))
    spec = importlib.util.spec_from_file_location("olmo_core_plan", o.file)
    program = importlib.util.module_from_spec(spec)
    sys.modules["olmo_core_plan"] = program
    spec.loader.exec_module(program)
    config = program.build_config()
    merged = config.merge(["--train_module.max_grad_norm=2.0"])
    if merged.train_module.max_grad_norm != 2.0:
        raise ValueError("an override has no effect")
    merged.train_module.max_grad_norm = config.train_module.max_grad_norm
    if merged.as_config_dict() != config.as_config_dict():
        raise ValueError("an override changes more than it says")
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    fail("parse", e)
module, is_there = config.train_module, torch.cuda.is_available
try:
    torch.cuda.is_available = lambda: True  # it takes torch's own attention where no GPU is
    model = config.model.build(init_device="meta")
    torch.cuda.is_available = is_there
    torch.cuda.default_stream = lambda *_: None  # which Transformer Engine passes keys on
    out["parameters"] = model.num_params
    if config.model.num_params != model.num_params:
        raise ValueError(
            f"the configuration counts {config.model.num_params} parameters, the model has {model.num_params}"
        )
    if o.parameters not in (None, model.num_params):
        raise ValueError(f"{model.num_params} parameters, and the model has {o.parameters}")
    backends = {block.attention.backend.__class__.__name__ for block in model.blocks.values()}
    out["levels"]["model"] = "ok"
except (Exception, SystemExit) as e:
    fail("model", e)
try:
    if isinstance(config.dataset, list):
        sources = [source.build(folder) for source in config.dataset]
        loader = config.data_loader.build(*sources)
        loader.reshuffle(epoch=1)
        steps = config.trainer.max_duration.value
        if loader.total_batches < steps:
            raise ValueError(f"{loader.total_batches} batches for {steps} steps")
        instance = sources[0][0]["input_ids"]
        if len(instance) != module.max_sequence_length or max(instance) >= config.model.vocab_size:
            raise ValueError("made-up sequences of another kind")
        out["levels"]["data"] = "ok"
except (Exception, SystemExit) as e:
    fail("data", e)
try:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.distributed.fsdp import FSDPModule
    from olmo_core.nn.transformer import Transformer
    from olmo_core.optim import OptimConfig
    from olmo_core.distributed import parallel
    from olmo_core.distributed.utils import get_world_size
    import olmo_core.float8

    olmo_core.float8.has_compute_capability = lambda *_: True
    Transformer.init_weights = lambda self, **_: None
    OptimConfig.build = lambda self, model, strict=True: None
    dist.init_process_group("fake", store=FakeStore(), rank=o.rank, world_size=world)
    dist.barrier = lambda *a, **k: None
    built = module.build(model, device=torch.device("cpu"))
    parts = getattr(built, "model_parts", None) or [built.model]
    mesh = built.world_mesh
    names = dict(zip(mesh.mesh_dim_names, mesh.shape))
    dp = get_world_size(built.dp_process_group)
    batch = config.data_loader.global_batch_size
    if batch % (module.rank_microbatch_size * dp):
        raise ValueError(f"a batch of {batch} tokens over {dp} ranks of {module.rank_microbatch_size}")
    if module.pp_config is not None:
        built._trainer = types.SimpleNamespace(global_batch_size=batch, dp_process_group=built.dp_process_group)
        built.pre_train()
        layers = [list(part.blocks) for part in parts]
        out["stages"] = layers
        if (parts[0].embeddings is not None) != (o.rank == 0 or names["pp"] == 1):
            raise ValueError("the embedding is on another stage")
    sharded = [isinstance(part, FSDPModule) for part in parts]
    model_mesh = parallel.get_dp_model_mesh(mesh)
    copies = model_mesh.shape[0] if model_mesh.ndim == 2 else 1
    shard = model_mesh.size() // copies
    stage = 3 if all(sharded) and model_mesh.size() > 1 else 0
    recompute = "none"
    if module.ac_config is not None:
        of_block = sum(
            "CheckpointWrapper" in type(block).__name__ or "_checkpoint_wrapped_module" in dict(block.named_children())
            for part in parts
            for block in part.blocks.values()
        )
        inside = [
            name
            for part in parts
            for name, _ in part.named_modules()
            if name.endswith("feed_forward._checkpoint_wrapped_module")
        ]
        blocks = sum(len(part.blocks) for part in parts)
        mode = module.ac_config.mode.value
        patterns = module.ac_config.modules or []
        if mode == "selected_modules" and not patterns[0].endswith("feed_forward"):
            mode = "full"
        recompute = {
            "full": "full",
            "selected_ops": "per-op",
            "selected_blocks": "every-other",
            "selected_modules": "mlp",
        }[mode]
        wanted = {
            "full": of_block == blocks,
            "per-op": of_block == blocks,
            "every-other": of_block >= blocks // 2,
            "mlp": bool(inside) or model.is_moe,
        }[recompute]
        if not wanted:
            raise ValueError(f"{mode}: {of_block} of {blocks} blocks are wrapped")
    experts = [
        block.feed_forward_moe for part in parts for block in part.blocks.values() if hasattr(block, "feed_forward_moe")
    ]
    ep = (
        experts[0].experts.mlp.num_experts // experts[0].experts.mlp.num_local_experts if experts else None
    )  # a stage may hold none
    length = module.max_sequence_length
    narrow = {
        kind
        for part in parts
        for kind in (type(child).__name__ for child in part.modules())
        if kind in ("Float8Linear", "MXLinear")
    }
    if bool(narrow) != (module.float8_config is not None):
        raise ValueError(f"float8_config, and layers are {sorted(narrow)}")
    out["sizes"] = {
        "tp": names.get("tp", 1),
        "cp": names.get("cp", 1),
        "pp": names.get("pp", 1),
        "dp": dp,
        "ep": ep,
        "micro_batch": module.rank_microbatch_size // length,
        "global_batch": batch // length,
        "seq": length,
        "zero_stage": stage,
        "shard": shard,
        "recompute": recompute,
        "chunks": len(parts),
        "narrow": sorted(narrow),
        "backends": sorted(backends),
    }
    out["levels"]["build"] = "ok"
except (Exception, SystemExit) as e:
    fail("build", e)
try:
    calls = [
        call
        for call in fc.capture_shell(os.path.join(os.path.dirname(os.path.abspath(o.file)), "olmo_core.sh"))
        if call["cmd"] == "torchrun"
    ]
    options, script, arguments = fc.split_torchrun(calls[-1]["argv"])
    if script != "olmo_core_plan.py" or arguments:
        raise ValueError(f"{script} {arguments} is started")
    if fc.torchrun_world(options) != world:
        raise ValueError(f"the script starts {fc.torchrun_world(options)} ranks, the plan has {world}")
    out["levels"]["launch"] = "ok"
except (Exception, SystemExit) as e:
    fail("launch", e)
sys.stdout = stdout
fc.report(True, out)
