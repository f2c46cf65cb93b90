"""Host link: copies between host and device memory, alone, both ways at once and beside other work."""

import threading
import time

import torch

from record import beside

MIB = 1 << 20


def pool(device, pinned):
    """Host memory of `device`'s size and bytes."""
    return torch.empty(device.shape, dtype=device.dtype, pin_memory=pinned).copy_(device)


def measure(run):
    total = run.pick(256 * MIB, MIB)
    device = torch.randint(0, 255, (total,), dtype=torch.uint8, device=run.device)
    other = torch.empty_like(device)
    if not run.gpu:
        run.time("copy d2h pageable", lambda i: other.copy_(device), bytes=total)
        run.skip("pinned and concurrent copies: needs a GPU")
        return
    for pinned in (True, False):
        kind = "pinned" if pinned else "pageable"
        with run.attempt(kind):
            host = pool(device, pinned)
            for size in (MIB, 16 * MIB, total):
                alone(run, host, device, size, kind)
            both(run, host, pool(device, pinned), device, other, total, pinned)
            del host
    with run.attempt("beside"):
        beside_work(run, device, other, total)
    run.free()


def alone(run, host, device, size, kind):
    parts = len(host) // size

    def part(i):
        return slice(i % parts * size, (i % parts + 1) * size)

    # A copy of pageable memory blocks the host, which cannot queue it.
    fields = {"kind": kind, "bytes": size, "queued": kind == "pinned"}
    run.time(f"d2h {kind}", lambda i: host[part(i)].copy_(device[part(i)], non_blocking=True), **fields)
    run.time(f"h2d {kind}", lambda i: device[part(i)].copy_(host[part(i)], non_blocking=True), **fields)


def both(run, read, written, device, other, size, pinned):
    """Copies in both directions at once: two streams, and two host threads where a pageable copy blocks its caller."""
    out = lambda i: written.copy_(device, non_blocking=True)
    into = lambda i: other.copy_(read, non_blocking=True)
    if pinned:
        d2h, h2d = beside(run, out, into, 5000, 5000, 100_000)
        run.times("d2h beside h2d pinned", d2h, kind="pinned", bytes=size)
        run.times("h2d beside d2h pinned", h2d, kind="pinned", bytes=size)
        return
    times = {"d2h": [], "h2d": []}
    gate = threading.Barrier(2)

    def loop(name, fn):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(6):
                gate.wait(20)
                begin = time.perf_counter()
                fn(i)
                stream.synchronize()
                times[name].append((time.perf_counter() - begin) * 1e6)

    threads = [threading.Thread(target=loop, args=pair, daemon=True) for pair in (("d2h", out), ("h2d", into))]
    [t.start() for t in threads]
    [t.join(30) for t in threads]
    for name, samples in times.items():
        run.times(f"{name} beside the other direction pageable", samples[1:], kind="pageable", bytes=size, clock="host")


def beside_work(run, device, other, size):
    host, second = pool(device, True), pool(device, True)
    n = 8192
    a, b = run.normal(n, n), run.normal(n, n)
    c = torch.empty(n, n, dtype=a.dtype, device=run.device)
    big = run.normal(256 * MIB)
    big_copy = torch.empty_like(big)
    copies = {
        "d2h": lambda i: host.copy_(device, non_blocking=True),
        "h2d": lambda i: other.copy_(host, non_blocking=True),
    }
    work = {
        f"gemm {n}": (lambda i: torch.mm(a, b, out=c), {"flops": 2 * n**3}),
        "d2d copy": (lambda i: big_copy.copy_(big), {"bytes": 4 * big.numel()}),
    }
    for label, (fn, fields) in work.items():
        alone_us, _ = run.samples(fn)
        run.times(f"{label} alone", alone_us, **fields)
        for direction, copy in copies.items():
            with run.attempt(f"{direction} beside {label}"):
                copy_us, _ = run.samples(copy)
                copied, worked = beside(run, copy, fn, min(copy_us), min(alone_us), 80_000)
                run.times(f"{direction} pinned alone, before {label}", copy_us, bytes=size)
                run.times(f"{direction} pinned beside {label}", copied, bytes=size)
                run.times(f"{label} beside {direction}", worked, **fields)
    one, two = beside(run, copies["d2h"], lambda i: second.copy_(other, non_blocking=True), 5000, 5000, 100_000)
    run.times("d2h beside a second d2h, first", one, kind="pinned", bytes=size)
    run.times("d2h beside a second d2h, second", two, kind="pinned", bytes=size)
