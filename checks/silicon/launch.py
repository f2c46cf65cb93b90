"""Kernel launches: host time of a launch, device time between tiny kernels, and CUDA graphs of them."""

import time

import torch

COUNT = 500


def measure(run):
    x = torch.randn(1, device=run.device)
    one = torch.randn(1, device=run.device)
    count = run.pick(COUNT, 20)

    def launches():
        for _ in range(count):
            x.add_(one)

    def host_us(fn):
        run.sync()
        begin = time.perf_counter()
        fn()
        return (time.perf_counter() - begin) * 1e6

    launches()
    repeats = run.pick(10, 2)
    run.times("host, add of one element", [host_us(launches) / count for _ in range(repeats)], launches=count)
    y = torch.randn(8, run.pick(4096, 8), device=run.device, dtype=torch.bfloat16)
    w = torch.randn(run.pick(64, 8), run.pick(4096, 8), device=run.device, dtype=torch.bfloat16)
    run.times(
        "host, linear of 64 outputs",
        [host_us(lambda: [torch.nn.functional.linear(y, w) for _ in range(count)]) / count for _ in range(repeats)],
        launches=count,
    )
    if not run.gpu:
        run.skip("device time of launches and CUDA graphs: needs a GPU")
        return
    device_time(run, launches)
    with run.attempt("graph"):
        graph_time(run, x, one, host_us)


def device_time(run, launches):
    """Device time of a tiny kernel, launched as the host can, and queued behind a spin."""
    for name, spin in (("device, as launched", False), ("device, queued", True)):
        times = []
        for _ in range(10):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            if spin:
                torch.cuda._sleep(20_000_000)
            begin.record()
            launches()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / COUNT)
        run.times(f"{name}, add of one element", times, launches=COUNT)


def graph_time(run, x, one, host_us):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x.add_(one)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(COUNT):
            x.add_(one)
    for _ in range(3):
        graph.replay()
    replay_us, _ = run.samples(lambda i: graph.replay())
    run.times("graph replay, device, per node", [t / COUNT for t in replay_us], nodes=COUNT)
    run.times("graph replay, host, per replay", [host_us(graph.replay) for _ in range(10)], nodes=COUNT)
