#!/usr/bin/env python3
"""Two optimizer steps of an emitted OLMo-core program, on gloo ranks: its `build_config()`, and what its `main()` does with that: the model,
the train module, its data loader of made-up sequences, and `Trainer.fit()`. Started once a rank, with the environment of torchrun.

Stood in for: flash attention by PyTorch's; compilation is off.
"""

import argparse
import dataclasses
import importlib.util
import logging
import os
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import on_cpu
import olmo_core_stubs
import torch
import torch.distributed as dist

STEPS = 2


def everywhere(part, change):
    """Calls `change` with every configuration inside one."""
    if isinstance(part, (list, tuple)):
        for inner in part:
            everywhere(inner, change)
    elif isinstance(part, dict):
        for inner in part.values():
            everywhere(inner, change)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        change(part)
        for field in dataclasses.fields(part):
            everywhere(getattr(part, field.name), change)


def stand_in(config):
    """Replaces what only a GPU runs; what of the configuration that changed."""
    from olmo_core.nn.attention import AttentionBackendName

    changed = set()

    def change(part):
        if (
            getattr(part, "backend", None) is not None
            and isinstance(part.backend, AttentionBackendName)
            and part.backend != AttentionBackendName.torch
        ):
            part.backend = AttentionBackendName.torch
            changed.add("attention")
        if getattr(part, "use_flash", None):
            part.use_flash = False
            changed.add("attention")

    everywhere(config.model, change)
    if config.train_module.compile_model:
        config.train_module.compile_model = False
        changed.add("compile")
    config.trainer.callbacks = {name: part for name, part in config.trainer.callbacks.items() if name != "gpu_monitor"}
    on_cpu.sums_of_gradients()
    on_cpu.barriers()
    on_cpu.exchanges()
    return sorted(changed)


def train(path, olmo_core, needs):
    folder = os.path.join(
        tempfile.gettempdir(), f"olmo-core-{os.getppid()}-{os.environ['MASTER_PORT']}"
    )  # that of all ranks
    os.makedirs(folder, exist_ok=True)
    sys.path[:0] = [os.path.join(olmo_core, "src"), needs]
    os.environ.update(SAVE=folder, WORK=os.path.join(folder, "work"), NUM_NODES="1", FS_LOCAL_RANK=os.environ["RANK"])
    os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    torch.cuda.is_available = lambda: False
    logging.disable(logging.WARNING)
    olmo_core_stubs.modules()
    spec = importlib.util.spec_from_file_location("olmo_core_plan", path)
    program = importlib.util.module_from_spec(spec)
    sys.modules["olmo_core_plan"] = program
    spec.loader.exec_module(program)
    config = program.build_config()
    changed = stand_in(config)
    config.trainer.max_duration = program.Duration.steps(STEPS)
    config.trainer.no_checkpoints = True
    built, counts, losses, sums = {}, [], [], []
    passes = on_cpu.counted_stages()
    of_module = type(config.train_module).build

    def build(self, *args, **kwargs):
        module = built["module"] = of_module(self, *args, **kwargs)
        parts = getattr(module, "model_parts", None) or [module.model]
        sums.append(on_cpu.checksum(on_cpu.weights_of(parts)))
        one, step = module.train_batch, module.optim_step

        def train_batch(batch, dry_run=False):
            if not dry_run:
                counts.append(0)
                losses.append([])
            before = dict(passes)
            one(batch, dry_run=dry_run)
            if not dry_run and passes:
                counts[-1] = max(passes[stage] - before.get(stage, 0) for stage in passes)
            if dry_run:
                passes.clear()

        def optim_step():
            step()
            sums.append(on_cpu.checksum(on_cpu.weights_of(parts)))

        module.train_batch, module.optim_step = train_batch, optim_step
        if getattr(module, "pp_config", None) is None and hasattr(module, "model_forward"):
            forward = module.model_forward

            def model_forward(*args, **kwargs):
                answer = forward(*args, **kwargs)
                if losses:
                    counts[-1] += 1
                    losses[-1].append(float(getattr(answer[1].detach(), "_local_tensor", answer[1].detach())))
                return answer

            module.model_forward = model_forward
        else:
            pipeline = module.run_pipeline

            def run_pipeline(*args, **kwargs):
                answer = pipeline(*args, **kwargs)
                if losses and answer[0] is not None:
                    losses[-1].append(float(answer[0]))
                return answer

            module.run_pipeline = run_pipeline
        return module

    type(config.train_module).build = build
    program.build_config = lambda: config
    config.__class__.merge = lambda self, *_, **__: self
    prepare, program.teardown_training_environment = program.prepare_training_environment, lambda: None
    program.prepare_training_environment = lambda: prepare(backend="gloo")
    sys.argv = [path]
    program.main()
    module = built["module"]
    from olmo_core.distributed import parallel

    groups = {"dp": on_cpu.members(module.dp_process_group)}
    for name in ("tp", "cp", "pp", "ep"):
        names = module.world_mesh.mesh_dim_names
        if name == "ep":
            continue
        groups[name] = on_cpu.members(module.world_mesh[name].get_group()) if name in names else [dist.get_rank()]
    report = {
        "steps": len(sums) - 1,
        "micro_batches": counts,
        "losses": [[sum(x) for x in losses]] if losses and losses[0] else [],
        "sums": sums,
        "groups": groups,
        "instead": changed,
    }
    on_cpu.close(report | ({"passes": passes} if passes else {}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    ap.add_argument("--olmo-core-path", required=True)
    ap.add_argument("--needs", required=True)
    o = ap.parse_args()
    train(os.path.abspath(o.file), o.olmo_core_path, o.needs)
