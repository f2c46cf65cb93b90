"""BF16 GEMMs of transformer layers, and one GEMM for seconds with the SM clock and the power draw."""

import threading
import time

import torch

import environment
from record import cycle

# Name, tokens, input features, output features. Llama 3 layer sizes: arXiv 2407.21783, table 3; both of TP 1 and TP 8.
LAYERS = [
    ("llama3-8b qkv", 8192, 4096, 6144),
    ("llama3-8b out", 8192, 4096, 4096),
    ("llama3-8b gate", 8192, 4096, 14336),
    ("llama3-8b gate+up", 8192, 4096, 28672),
    ("llama3-8b down", 8192, 14336, 4096),
    ("llama3-70b qkv", 8192, 8192, 10240),
    ("llama3-70b out", 8192, 8192, 8192),
    ("llama3-70b gate", 8192, 8192, 28672),
    ("llama3-70b down", 8192, 28672, 8192),
    ("llama3-70b tp8 qkv", 8192, 8192, 1280),
    ("llama3-70b tp8 out", 8192, 1024, 8192),
    ("llama3-70b tp8 gate", 8192, 8192, 3584),
    ("llama3-70b tp8 down", 8192, 3584, 8192),
    ("llama3-8b logits", 2048, 4096, 128256),
]


def shapes(run, layers):
    """The layers' shapes; a 64th of each in a dry run."""
    return [(name, *(run.pick(n, max(16, n // 64)) for n in sizes)) for name, *sizes in layers]


def measure(run):
    for name, tokens, k, n in shapes(run, LAYERS):
        with run.attempt(name):
            sets = [
                (run.normal(tokens, k), run.normal(n, k, scale=0.02), run.normal(tokens, n))
                for _ in range(run.copies(2 * (tokens * k + n * k)))
            ]
            of = cycle(sets)

            def forward(i):
                x, w, _ = of(i)
                return torch.nn.functional.linear(x, w)

            def dgrad(i):
                _, w, g = of(i)
                return torch.mm(g, w)

            def wgrad(i):
                x, _, g = of(i)
                return torch.mm(g.t(), x)

            for kind, fn in (("forward", forward), ("dgrad", dgrad), ("wgrad", wgrad)):
                run.time(f"{name} {kind}", fn, kind=kind, dtype="bf16", m=tokens, k=k, n=n, flops=2 * tokens * k * n)
            del sets, of
        run.free()


class Clocks:
    """SM clock, power draw and temperature, read by nvidia-smi in the background until stopped."""

    FIELDS = "clocks.sm,clocks.mem,power.draw,temperature.gpu"

    def __init__(self):
        self.rows, self.begin, self.ended = [], time.perf_counter(), threading.Event()
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def poll(self):
        while not self.ended.is_set():
            self.rows.append({"at_s": round(time.perf_counter() - self.begin, 3), **environment.smi(self.FIELDS)})
            self.ended.wait(0.1)

    def stop(self):
        self.ended.set()
        self.thread.join(5)
        return self.rows


def sustained(run):
    """8192³ for 4 s: the time of each window of 50 launches."""
    n, seconds, window = run.pick(8192, 64), run.pick(4.0, 0.05), 50
    a, b = run.normal(n, n), run.normal(n, n)
    c = torch.empty_like(a)
    fields = {"m": n, "k": n, "n": n, "dtype": "bf16", "flops": 2 * n**3 * window, "gemms": window}
    if not run.gpu:
        run.time(f"gemm {n}, windows of {window}", lambda i: [torch.mm(a, b, out=c) for _ in range(window)], **fields)
        run.skip("clocks and power: needs a GPU")
        return
    clocks = Clocks()
    time.sleep(1.0)  # the clock at rest
    torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    marks, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        for _ in range(window):
            torch.mm(a, b, out=c)
        if len(marks) > 2:
            marks[-2].synchronize()  # two windows in flight
    marks.append(torch.cuda.Event(enable_timing=True))
    marks[-1].record()
    torch.cuda.synchronize()
    load_s = [round(t - clocks.begin, 3) for t in (begin, time.perf_counter())]
    rows = clocks.stop()
    run.times(
        f"gemm {n}, windows of {window}",
        [x.elapsed_time(y) * 1000 for x, y in zip(marks, marks[1:])],
        **fields,
        load_from_to_s=load_s,
        clocks=rows,
    )
