"""Patches under which a framework's own training step runs on a CPU: tensors that ask for CUDA get the CPU, streams and seeds of a GPU do nothing,
and gloo takes the few collectives of NCCL that it lacks."""

import contextlib
import json
import os
import sys
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class OnCpu(TorchFunctionMode):
    """A device that is CUDA becomes the CPU in every call of PyTorch."""

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = {name: moved(value) for name, value in (kwargs or {}).items()}
        if kwargs.pop("pin_memory", False):
            kwargs["pin_memory"] = False
        return function(*(moved(value) for value in args), **kwargs)


def moved(value):
    """The CPU for a CUDA device."""
    is_cuda = (
        isinstance(value, str)
        and value.split(":")[0] == "cuda"
        or isinstance(value, torch.device)
        and value.type == "cuda"
    )
    return CPU if is_cuda else value


class NoStream(contextlib.nullcontext):
    """A stream or an event of a device that has none."""

    def __init__(self, *_, **__):
        super().__init__(self)

    def record_event(self, *_):
        return NoStream()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Coalesced(contextlib.nullcontext):
    """Stands in for `_coalescing_manager`, which gloo lacks: collectives start at once, and all have ended behind it."""

    started = None

    def __init__(self, *_, **__):
        super().__init__(self)

    def __enter__(self):
        Coalesced.started = []
        return self

    def __exit__(self, *_):
        for work in Coalesced.started:
            work.wait()
        Coalesced.started = None

    def wait(self):
        pass


def coalescable(collective):
    """A collective whose work an open `Coalesced` waits for."""

    def run(*args, **kwargs):
        work = collective(*args, **kwargs)
        if Coalesced.started is not None and work is not None:
            Coalesced.started.append(work)
        return work

    return run


def averaged(collective):
    """A reduction that gloo can do: the mean is the sum, divided."""

    def run(*args, **kwargs):
        names = ("tensor", "op") if collective.__name__ == "all_reduce" else ("output", "input", "op")
        given = dict(zip(names, args)) | kwargs
        if given.get("op") != dist.ReduceOp.AVG:
            return collective(*args, **kwargs)
        given["op"] = dist.ReduceOp.SUM
        given["async_op"] = False
        collective(**given)
        given[names[0]].div_(dist.get_world_size(given.get("group")))
        return Done() if kwargs.get("async_op") else None

    run.__name__ = collective.__name__
    return run


class Done:
    """The work of a collective that has ended."""

    def wait(self, *_):
        return True

    def is_completed(self):
        return True


def install():
    """Patches `torch.cuda` and `torch.distributed`; `OnCpu` is entered for good."""

    def nothing(*_, **__):
        pass

    for name, value in {
        "current_device": lambda: CPU,
        "current_stream": lambda *_: NoStream(),
        "default_stream": lambda *_: NoStream(),
        "Stream": NoStream,
        "Event": NoStream,
        "stream": lambda *_: contextlib.nullcontext(),
        "synchronize": nothing,
        "set_device": nothing,
        "empty_cache": nothing,
        "is_current_stream_capturing": lambda: False,
        "get_device_capability": lambda *_: (9, 0),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": nothing,
        "memory_stats": lambda *_: {},
        "set_stream": nothing,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "set_rng_state": lambda state, *_, **__: torch.set_rng_state(state),
        "manual_seed": nothing,
        "get_device_properties": lambda *_: types.SimpleNamespace(
            major=9, minor=0, name="pretended", total_memory=80 << 30, multi_processor_count=132
        ),
    }.items():
        setattr(torch.cuda, name, value)
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.Tensor.record_stream = nothing
    torch.nn.Module.cuda = lambda self, *_, **__: self
    barriers()
    exchanges()
    for name in ("all_reduce", "reduce_scatter_tensor"):
        setattr(dist, name, averaged(getattr(dist, name)))
    OnCpu().__enter__()


def barriers():
    """A barrier of gloo has no devices."""
    barrier = dist.barrier
    dist.barrier = lambda *args, **kwargs: barrier(
        *args, **{name: value for name, value in kwargs.items() if name != "device_ids"}
    )


def exchanges():
    """All-to-all of gloo takes sizes as numbers, and lists of tensors of one size: others are sent one by one."""
    single = dist.all_to_all_single

    def numbers(sizes):
        return sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes

    def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, **rest):
        return single(output, input, numbers(output_split_sizes), numbers(input_split_sizes), **rest)

    def all_to_all(outputs, inputs, group=None, async_op=False):
        own, ranks, works = dist.get_rank(group), dist.get_process_group_ranks(group or dist.group.WORLD), []
        for step in range(len(ranks)):
            to, of = (own + step) % len(ranks), (own - step) % len(ranks)
            if step == 0:
                outputs[own].copy_(inputs[own])
                continue
            works += [
                dist.isend(inputs[to].contiguous(), ranks[to], group=group),
                dist.irecv(outputs[of], ranks[of], group=group),
            ]
        for work in works:
            work.wait()
        return Done() if async_op else None

    dist.all_to_all_single, dist.all_to_all = all_to_all_single, all_to_all


def sums_of_gradients():
    """FSDP divides gradients itself, as it does where a backend has no mean: gloo has none."""
    import torch.distributed.fsdp._fully_shard._fsdp_collectives as collectives

    factors = collectives._get_gradient_divide_factors
    collectives._get_gradient_divide_factors = lambda scatter, reduce, dtype, device="", *args, **kwargs: factors(
        scatter, reduce, dtype, "mtia", *args, **kwargs
    )


def counted_stages():
    """Forward passes of each stage of PyTorch's pipelines, by its number, as they run."""
    from torch.distributed.pipelining.stage import _PipelineStageBase as Stage

    passes, forward = {}, Stage.forward_one_chunk

    def run(self, *args, **kwargs):
        passes[self.stage_index] = passes.get(self.stage_index, 0) + 1
        return forward(self, *args, **kwargs)

    Stage.forward_one_chunk = run
    return passes


def checksum(weights):
    """Sum of the magnitudes of this rank's weights."""
    own = lambda tensor: getattr(tensor, "_local_tensor", getattr(tensor, "ds_tensor", tensor))
    return sum(float(own(weight).detach().double().abs().sum()) for weight in weights)


def weights_of(parts):
    """Parameters of modules."""
    return [weight for part in parts for weight in part.parameters()]


def members(group):
    """Ranks of a process group."""
    return None if group is None else sorted(dist.get_process_group_ranks(group))


def close(report):
    """Gathers every rank's report at rank 0, which prints them, and ends the process: threads of data loaders and groups may remain."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, report)
    if dist.get_rank() == 0:
        print(
            json.dumps({"accepted": True, "ranks": everyone}, default=str),
            file=sys.__stdout__ if sys.stdout is None else sys.stdout,
            flush=True,
        )
    os._exit(0)
