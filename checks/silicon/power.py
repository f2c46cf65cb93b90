"""Power and clocks of kernels alone and mixed: what a kernel leaves to the GEMMs beside it where the power limit sets the clock."""

import ctypes
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from record import compiled

HEAT_S, SECONDS = 0.5, 1.2
SHARES = (0.25, 0.5, 0.75)  # of the time alone that the other kernel has in a mix
SM_CLOCK = 1  # NVML_CLOCK_SM


class Meter:
    """Energy in J since the driver was loaded, and the SM clock in MHz, by NVML."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))

    def call(self, name, *arguments):
        if code := getattr(self.nvml, name)(*arguments):
            raise RuntimeError(f"{name}: error {code}")

    def energy(self):
        value = ctypes.c_ulonglong()
        self.call("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(value))
        return value.value / 1000

    def clock(self):
        value = ctypes.c_uint()
        self.call("nvmlDeviceGetClockInfo", self.device, SM_CLOCK, ctypes.byref(value))
        return value.value


def kernels(run):
    """Kernels by name: what one call launches, and its FLOPs and bytes."""
    n = run.pick(8192, 64)
    a, b, c = run.normal(n, n), run.normal(n, n), torch.empty(n, n, dtype=torch.bfloat16, device=run.device)
    thin_a, thin_b = run.normal(n, n // 8), run.normal(n // 8, n)
    x, w = run.normal(n, n), run.normal(n)
    g, u = run.normal(n, 2 * n), run.normal(n, 2 * n)
    source = run.normal(run.pick(1 << 28, 1 << 12))
    target = torch.empty_like(source)
    heads, sequence = run.pick(32, 2), run.pick(8192, 32)
    q, k, v = (run.normal(1, heads, sequence, 128).requires_grad_() for _ in range(3))
    backend = SDPBackend.CUDNN_ATTENTION if run.gpu else SDPBackend.MATH

    def attend():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    out, gradient = attend(), run.normal(1, heads, sequence, 128)
    swiglu = compiled(run, lambda g, u: F.silu(g) * u)
    pairs = heads * sequence * sequence / 2

    @torch.no_grad()
    def forward():
        attend()

    return {
        f"gemm {n}": (lambda: torch.mm(a, b, out=c), 2 * n**3, 6 * n * n),
        f"gemm {n}, k {n // 8}": (lambda: torch.mm(thin_a, thin_b, out=c), 2 * n**3 // 8, 2 * n * n),
        "attention forward": (forward, 4 * pairs * 128, 8 * heads * sequence * 128),
        "attention backward": (
            lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True),
            10 * pairs * 128,
            16 * heads * sequence * 128,
        ),
        "rms_norm": (lambda: F.rms_norm(x, (n,), w, 1e-5), 0, 4 * n * n),
        "swiglu": (lambda: swiglu(g, u), 0, 12 * n * n),
        "copy": (lambda: target.copy_(source), 0, 4 * source.numel()),
    }


def loop(run, meter, name, calls, **fields):
    """Runs a cycle of calls until the clocks have settled, then times its parts and meters them.

    `calls` has (function, number) in the order of one cycle. A record has the time of a cycle, that of each part, energy and clocks.
    """

    def cycle(marks):
        for fn, number in calls:
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
            for _ in range(number):
                fn()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()

    def repeat(seconds):
        """Cycles for some seconds, four in flight, and the clocks meanwhile."""
        begin, cycles, clocks = time.perf_counter(), [], []
        while time.perf_counter() - begin < seconds:
            cycles.append([])
            cycle(cycles[-1])
            if len(cycles) > 4:
                cycles[-4][-1].synchronize()
                clocks.append(meter.clock())
        torch.cuda.synchronize()
        return cycles, clocks

    repeat(HEAT_S)
    energy, begin = meter.energy(), time.perf_counter()
    cycles, clocks = repeat(SECONDS)
    seconds = time.perf_counter() - begin
    energy = meter.energy() - energy
    parts = [
        sorted(marks[i].elapsed_time(marks[i + 1]) * 1000 / number for marks in cycles)[len(cycles) // 2]
        for i, (_, number) in enumerate(calls)
    ]
    whole = sorted(marks[0].elapsed_time(marks[-1]) * 1000 for marks in cycles)
    run.times(
        name,
        [whole[len(whole) * i // 10] for i in range(10)],
        **fields,
        calls=[number for _, number in calls],
        parts_us=[round(part, 2) for part in parts],
        energy_j=round(energy, 2),
        seconds=round(seconds, 4),
        sm_clock_mhz=sorted(clocks)[len(clocks) // 2] if clocks else None,
    )
    return parts


def measure(run):
    of = kernels(run)
    if not run.gpu:
        for name, (fn, flops, size) in of.items():
            run.time(name, lambda i: fn(), flops=flops, bytes=size)
        run.skip("energy and clocks: needs a GPU")
        return
    meter = Meter()
    energy, begin = meter.energy(), time.perf_counter()
    time.sleep(SECONDS)
    run.write("idle", energy_j=round(meter.energy() - energy, 2), seconds=round(time.perf_counter() - begin, 4))
    alone = {}
    for name, (fn, flops, size) in of.items():
        with run.attempt(name):
            fn()
            torch.cuda.synchronize()
            (alone[name],) = loop(run, meter, name, [(fn, 8)], flops=flops, bytes=size)
    first = next(iter(of))
    for name in ("attention forward", "attention backward", "rms_norm", "swiglu", "copy"):
        for share in SHARES:
            title = f"{first} and {name}, {share} of the time"
            with run.attempt(title):
                # Cycles of 6 ms and longer, so that one part has a call at the least.
                times = alone[first], alone[name]
                span = max(6000.0, times[0] / (1 - share), times[1] / share)
                numbers = [max(1, round(span * part / t)) for part, t in zip((1 - share, share), times)]
                calls = list(zip((of[first][0], of[name][0]), numbers))
                loop(run, meter, title, calls, alone_us=times, share=share)
