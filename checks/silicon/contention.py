"""GEMM and a copy within device memory at once: the slowdown of each."""

import torch

from record import beside


def measure(run):
    n, numbers = run.pick(8192, 64), run.pick(512 << 20, 1 << 12)
    a, b = run.normal(n, n), run.normal(n, n)
    c = torch.empty_like(a)
    source = run.normal(numbers)
    target = torch.empty_like(source)
    gemm, copy = lambda i: torch.mm(a, b, out=c), lambda i: target.copy_(source)
    gemm_us, _ = run.samples(gemm)
    copy_us, _ = run.samples(copy)
    of_gemm, of_copy = {"flops": 2 * n**3}, {"bytes": 4 * numbers}
    run.times(f"gemm {n} alone", gemm_us, **of_gemm)
    run.times("d2d copy alone", copy_us, **of_copy)
    if not run.gpu:
        run.skip("two streams: needs a GPU")
        return
    of = min(gemm_us), min(copy_us)
    gemms, copies = beside(run, gemm, copy, *of, 100_000)
    run.times(f"gemm {n} beside d2d copy", gemms, **of_gemm)
    run.times(f"d2d copy beside gemm {n}", copies, **of_copy)
    # The order of launch decides which kernel's blocks fill the multiprocessors first.
    copies, gemms = beside(run, copy, gemm, *reversed(of), 100_000)
    run.times(f"gemm {n} beside d2d copy, copy first", gemms, **of_gemm)
    run.times(f"d2d copy beside gemm {n}, copy first", copies, **of_copy)
