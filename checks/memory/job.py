"""A sharded model and how its framework trains it, and one step of it on fake tensors."""

import collections
import contextlib
import dataclasses
import time

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from allocator import CachingAllocator
from cuda_kernels import as_on_cuda, fsdp_scopes, real_tensors_only
from ledger import Ledger

GIB = 2.0**30


@dataclasses.dataclass
class Job:
    """A sharded model and how its framework trains it."""

    model: torch.nn.Module
    head: torch.nn.Module
    optimizer: object
    decode: object  # () -> the model's output
    loss: object  # output -> loss
    scope: object = contextlib.nullcontext
    finish: object = None  # gradients → update, where not clip and `optimizer.step`
    backward: object = torch.Tensor.backward
    tenants: list = dataclasses.field(default_factory=list)  # (tensor, tenant) beside parameters, gradients and states


def adamw(model, plan):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-4, **{plan.optimizer: True})


def trained(job, plan, ledger):
    """`steps` steps as a training loop takes them."""
    for parameter in job.model.parameters():
        ledger.tag(parameter, "weights")
    for _, buffer in job.model.named_buffers():
        ledger.tag(buffer, "buffers")
    for tensor, tenant in job.tenants:
        ledger.tag(tensor, tenant)
    job.head.register_forward_pre_hook(lambda *_: ledger.mark("head"))
    for step in range(plan.steps):
        ledger.mark("begin")
        if job.finish is None:
            job.optimizer.zero_grad(set_to_none=True)
        for _ in range(plan.accum):
            with job.scope():
                ledger.mark("forward")
                output = job.decode()
                ledger.mark("head")
                loss = job.loss(output)
                if plan.drop_output:
                    del output
                ledger.mark("backward")
                job.backward(loss)
                output = loss = None
        for parameter in job.model.parameters():
            if parameter.grad is not None:
                ledger.tag(parameter.grad, "gradients")
        ledger.mark("update")
        if job.finish is None:
            torch.nn.utils.clip_grad_norm_(job.model.parameters(), 1.0, foreach=True)
            job.optimizer.step()
        else:
            job.finish()
        states = job.optimizer.state
        for state in states.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    ledger.tag(value, "optimizer")
    ledger.mark("end")


def tally(ledger, held):
    by = collections.Counter()
    for key, size in held.items():
        by[ledger.tenant(key)] += size
    return {tenant: round(size / GIB, 4) for tenant, size in by.most_common() if size > 2**19}


def measured(framework, size, plan):
    """Memory of one configuration as `framework(size, plan, world)` builds it, as a dictionary of GiB."""
    began = time.time()
    world = plan.tp * plan.dp
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    ledger = Ledger()
    build = framework(size, plan, world)
    with (
        as_on_cuda(plan),
        fsdp_scopes(ledger),
        real_tensors_only(ledger),
        FakeTensorMode(allow_non_fake_inputs=True),
        ledger,
    ):
        job = build()
        trained(job, plan, ledger)
        parameters = sum(p.numel() for p in job.model.parameters())
    last = max(at for at, phase in ledger.marks if phase == "begin")
    peak, at = ledger.peak(last)
    decoded = min(n for n, phase in ledger.marks if phase == "head" and n > last)
    end = ledger.held(len(ledger.events))
    kept = tally(ledger, ledger.held(decoded))
    at_peak = ledger.held(at)
    top = collections.Counter()
    for key, held in at_peak.items():
        if key not in ledger.tags:
            top[" ".join(ledger.origin[key][:2])] += held
    reserved = [CachingAllocator(kind).replay(ledger, plan.workspace * 2**20).reserved for kind in (False, True)]
    return {
        "parameters": parameters,
        "peak_gib": round(peak / GIB, 4),
        "peak_in": ledger.phase(at),
        "reserved_gib": round(reserved[0] / GIB, 4),
        "reserved_expandable_gib": round(reserved[1] / GIB, 4),
        "at_peak": tally(ledger, at_peak),
        "after_forward": kept,
        "at_end": tally(ledger, end),
        "at_peak_by_operator": {name: round(size / GIB, 4) for name, size in top.most_common(12) if size > 2**24},
        "kept_by_operator": by_operator(ledger, ledger.held(decoded)),
        "events": len(ledger.events),
        "seconds": round(time.time() - began, 1),
    }


def by_operator(ledger, held):
    by = collections.Counter()
    for key, size in held.items():
        if key not in ledger.tags and ledger.origin[key][0] == "forward":
            by[ledger.origin[key][1]] += size
    return {name: round(size / GIB, 4) for name, size in by.most_common(12) if size > 2**24}
