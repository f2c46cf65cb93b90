"""Training steps in the manner of torchtitan at a data-parallel degree of 1: FSDP2, per-block compilation, fused AdamW."""

import os
import tempfile
import time
import traceback
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import model
from layer import allocated, peak, reset_peak
from record import compiled

LLAMA_1B = model.Sizes(2048, 8192, 32, 8, 64, layers=16, vocabulary=128256)
LLAMA_3B = model.Sizes(3072, 8192, 24, 8, 128, layers=28, vocabulary=128256)
LLAMA_8B_8 = model.Sizes(4096, 14336, 32, 8, 128, layers=8, vocabulary=128256)
QWEN3_MOE_4 = model.Sizes(2048, 768, 32, 4, 128, experts=128, top=8, layers=4, vocabulary=151936)
DRY = model.Sizes(64, 128, 4, 2, 16, layers=2, vocabulary=256)


@dataclass
class Variant:
    """A model and how it is trained; `compiled` speaks of the layers and the loss."""

    name: str
    sizes: model.Sizes
    recompute: str
    compiled: bool = True
    batch: int = 1
    sequence: int = 8192

    def title(self):
        """Name of its records. Those of one sequence that is compiled name neither."""
        eager = "" if self.compiled else " eager"
        batch = f" batch {self.batch}" if self.batch > 1 else ""
        return f"{self.name} recompute {self.recompute}{eager}{batch}"


VARIANTS = [
    Variant("llama3-8b of 8 layers", LLAMA_8B_8, "none"),
    Variant("llama3-8b of 8 layers", LLAMA_8B_8, "full"),
    Variant("llama3-8b of 8 layers", LLAMA_8B_8, "none", compiled=False),
    Variant("llama3-8b of 8 layers", LLAMA_8B_8, "full", compiled=False),
    Variant("llama3.2-1b untied", LLAMA_1B, "none", compiled=False, batch=2),
    Variant("llama3.2-1b untied", LLAMA_1B, "none", batch=2),
    Variant("qwen3-30b-a3b of 4 layers", QWEN3_MOE_4, "none", compiled=False, batch=2, sequence=4096),
    Variant("qwen3-30b-a3b of 4 layers", QWEN3_MOE_4, "none", batch=4, sequence=4096),
    Variant("llama3.2-3b untied", LLAMA_3B, "full"),
    Variant("llama3.2-3b untied", LLAMA_3B, "none"),
]
WARMUPS, STEPS = 3, 6
VARIANT_S = 16  # seconds that a variant is expected to take, compilation included


def measure(run):
    mesh = None
    with run.attempt("process group"):
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        store = os.path.join(tempfile.mkdtemp(), "store")
        dist.init_process_group("nccl" if run.gpu else "gloo", init_method=f"file://{store}", rank=0, world_size=1)
        dist.all_reduce(torch.ones(1, device=run.device))
        run.sync()
        mesh = init_device_mesh(run.device.type, (1,), mesh_dim_names=("dp_shard",))
    for variant in VARIANTS:
        if run.gpu and run.section_end - time.perf_counter() < VARIANT_S:
            run.skip(f"{variant.title()}: too little time left")
            run.write(variant.title(), failed="too little time left")
            continue
        with run.attempt(variant.title()):
            measure_variant(run, variant, mesh)
        torch._dynamo.reset()
        run.free()
    if dist.is_initialized():
        dist.destroy_process_group()


def build(run, variant, mesh):
    """Decoder with each layer compiled where the variant says so, and sharded where there is a mesh."""
    with torch.device(run.device):
        decoder = model.Decoder(run.pick(variant.sizes, DRY))
    for i, layer in enumerate(decoder.layers):
        if variant.recompute == "full":
            layer = checkpoint_wrapper(layer, preserve_rng_state=False)
        decoder.layers[i] = compiled(run, layer) if variant.compiled else layer
    if mesh is not None:
        policy = {
            "mesh": mesh,
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        }
        fully_shard(decoder.embedding, **policy)
        for layer in decoder.layers:
            fully_shard(layer, **policy)
        fully_shard([decoder.norm, decoder.output], **policy, reshard_after_forward=False)
        fully_shard(decoder, **policy)
    return decoder


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


class Stepper:
    """One training step in phases."""

    def __init__(self, run, variant, mesh, precision):
        self.run, self.precision = run, precision
        sizes, sequence = run.pick(variant.sizes, DRY), run.pick(variant.sequence, 32)
        self.decoder = build(run, variant, mesh)
        self.parameters = list(self.decoder.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.loss = compiled(run, loss_of) if variant.compiled else loss_of
        self.rotary = model.angles(sequence, sizes.head_dim, run.device)
        tokens = torch.randint(0, sizes.vocabulary, (variant.batch, sequence + 1), device=run.device)
        self.ids, self.labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def forward(self):
        with torch.autocast(self.run.device.type, torch.bfloat16, enabled=self.precision != "fully_shard"):
            return self.loss(self.decoder(self.ids, *self.rotary), self.labels)

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()

    def step(self, mark=lambda phase: None):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward()
        mark("forward")
        loss.backward()
        mark("backward")
        self.update()
        mark("update")
        return loss.detach()


def first_step(run, variant, mesh):
    """A stepper that has taken one step: sharded, or under autocast with a note where sharding fails."""
    note = "no process group"
    if mesh is not None:
        try:
            stepper = Stepper(run, variant, mesh, "fully_shard")
            stepper.step()
            run.sync()
            return stepper
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            traceback.print_exc()
            note = f"{type(error).__name__}: {str(error)[:200]}"
            error.__traceback__, stepper = None, None
        torch._dynamo.reset()
        run.free()
    stepper = Stepper(run, variant, None, f"autocast: {note}")
    stepper.step()
    run.sync()
    return stepper


def measure_variant(run, variant, mesh):
    run.free()
    at_rest = allocated(run)
    begin = time.perf_counter()
    stepper = first_step(run, variant, mesh)
    memory = {"at_rest_bytes": at_rest}
    first_s = time.perf_counter() - begin
    for _ in range(WARMUPS - 1):
        stepper.step()
    memory |= phases_memory(run, stepper)

    reset_peak(run)
    marks = []

    def mark(phase):
        if run.gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append((phase, event))
        else:
            marks.append((phase, time.perf_counter()))

    mark("update")
    for _ in range(run.pick(STEPS, 2)):
        loss = stepper.step(mark)
    memory["peak_bytes"] = peak(run)
    memory["reserved_bytes"] = torch.cuda.memory_reserved() if run.gpu else 0
    report(run, variant, stepper, marks, memory, loss.item(), first_s)


def phases_memory(run, stepper):
    """Bytes allocated after each phase of a step, and each phase's peak."""
    found = {}

    def mark(phase):
        found[f"after_{phase}_bytes"], found[f"{phase}_peak_bytes"] = allocated(run), peak(run)
        reset_peak(run)

    stepper.optimizer.zero_grad(set_to_none=True)
    found["before_step_bytes"] = allocated(run)
    reset_peak(run)
    stepper.step(mark)
    stepper.optimizer.zero_grad(set_to_none=True)
    found["after_zero_grad_bytes"] = allocated(run)
    return found


def report(run, variant, stepper, marks, memory, loss, first_s):
    sizes, sequence = run.pick(variant.sizes, DRY), run.pick(variant.sequence, 32)
    total = sum(p.numel() for p in stepper.parameters)
    embedding = sizes.vocabulary * sizes.hidden
    # torchtitan's count, all experts in it: 6 a parameter outside the embedding, 12 × layers × heads × head dimension × sequence, a token.
    flops = (
        variant.batch
        * sequence
        * (6 * (total - embedding) + 12 * sizes.layers * sizes.heads * sizes.head_dim * sequence)
    )
    between = lambda a, b: a.elapsed_time(b) * 1000 if run.gpu else (b - a) * 1e6
    ends = [at for phase, at in marks if phase == "update"]
    fields = {
        "model": variant.name,
        "layers": sizes.layers,
        "recompute": variant.recompute,
        "compiled": variant.compiled,
        "sequence": sequence,
        "batch": variant.batch,
        "precision": stepper.precision,
        "attention": model.BACKENDS[0].name,
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "parameters": total,
    }
    title = variant.title()
    run.times(
        f"{title} step",
        [between(a, b) for a, b in zip(ends, ends[1:])],
        **fields,
        flops=flops,
        loss=round(loss, 4),
        first_step_s=round(first_s, 2),
    )
    for phase in ("forward", "backward", "update"):
        run.times(
            f"{title} {phase}", [between(a[1], b[1]) for a, b in zip(marks, marks[1:]) if b[0] == phase], **fields
        )
    run.write(f"{title} memory", **fields, **memory)
