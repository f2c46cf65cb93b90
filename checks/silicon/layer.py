"""One decoder layer: times of forward and backward, and memory of each phase, eager and compiled."""

import time

import torch

import model
from record import compiled

LAYERS = [
    ("llama3-8b", model.Sizes(4096, 14336, 32, 8, 128), 8192),
    ("llama3-70b", model.Sizes(8192, 28672, 64, 8, 128), 4096),
    ("qwen3-30b-a3b", model.Sizes(2048, 768, 32, 4, 128, experts=128, top=8), 4096),
]
DRY = {
    "llama3-8b": model.Sizes(64, 128, 4, 2, 16),
    "llama3-70b": model.Sizes(64, 128, 8, 2, 16),
    "qwen3-30b-a3b": model.Sizes(64, 32, 4, 2, 16, experts=4, top=2),
}


def measure(run):
    for name, sizes, sequence in LAYERS:
        for mode in ("eager", "compiled"):
            with run.attempt(f"{name} {mode}"):
                one(run, name, mode, run.pick(sizes, DRY[name]), run.pick(sequence, 32))
            run.free()
            torch._dynamo.reset()


def allocated(run):
    run.sync()
    return torch.cuda.memory_allocated() if run.gpu else 0


def peak(run):
    run.sync()
    return torch.cuda.max_memory_allocated() if run.gpu else 0


def reset_peak(run):
    run.sync()
    if run.gpu:
        torch.cuda.reset_peak_memory_stats()


def one(run, name, mode, sizes, sequence):
    with torch.device(run.device):
        layer = model.Layer(sizes).to(torch.bfloat16)
    call = compiled(run, layer) if mode == "compiled" else layer
    cos, sin = model.angles(sequence, sizes.head_dim, run.device)
    x = run.normal(1, sequence, sizes.hidden).requires_grad_()
    gradient = run.normal(1, sequence, sizes.hidden)
    forward, backward = [], []
    begin = time.perf_counter()
    for i in range(run.pick(13, 2)):
        layer.zero_grad(set_to_none=True)
        x.grad = None
        a, b = pass_times(run, call, x, cos, sin, gradient)
        if i == 0:
            first = time.perf_counter() - begin
        if i >= run.pick(3, 1):
            forward.append(a)
            backward.append(b)
    flops = model.layer_flops(sizes, 1, sequence)
    fields = {"model": name, "mode": mode, "sequence": sequence, "batch": 1}
    run.times(f"{name} forward {mode}", forward, **fields, flops=flops, first_call_s=round(first, 2))
    run.times(f"{name} backward {mode}", backward, **fields, flops=2 * flops)
    memory(run, name, call, layer, x, cos, sin, gradient, fields)


def pass_times(run, call, x, cos, sin, gradient):
    if not run.gpu:
        begin = time.perf_counter()
        out = call(x, cos, sin)
        middle = time.perf_counter()
        out.backward(gradient)
        return (middle - begin) * 1e6, (time.perf_counter() - middle) * 1e6
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    torch.cuda.synchronize()
    torch.cuda._sleep(4_000_000)  # the host runs ahead
    events[0].record()
    out = call(x, cos, sin)
    events[1].record()
    torch.cuda.synchronize()
    torch.cuda._sleep(4_000_000)
    events[2].record()
    out.backward(gradient)
    events[3].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]) * 1000, events[2].elapsed_time(events[3]) * 1000


def memory(run, name, call, layer, x, cos, sin, gradient, fields):
    """Bytes of each kind; activations are what the forward pass leaves allocated, its output apart."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    before = allocated(run)
    reset_peak(run)
    out = call(x, cos, sin)
    after, forward_peak = allocated(run), peak(run)
    reset_peak(run)
    out.backward(gradient)
    backward_peak, end = peak(run), allocated(run)
    of = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)
    output = of([out])
    run.write(
        f"{name} memory {fields['mode']}",
        **fields,
        parameter_bytes=of(layer.parameters()),
        gradient_bytes=of(p.grad for p in layer.parameters()),
        input_bytes=of([x]),
        output_bytes=output,
        before_bytes=before,
        activation_bytes=after - before - output,
        forward_peak_bytes=forward_peak,
        backward_peak_bytes=backward_peak,
        after_backward_bytes=end,
        reserved_bytes=torch.cuda.memory_reserved() if run.gpu else 0,
    )
