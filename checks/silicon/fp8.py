"""FP8 GEMMs by the granularity of their scales, and casts from BF16."""

import traceback

import torch
import torch.nn.functional as F

from gemm import LAYERS as LINEAR, shapes
from record import compiled, cycle

E4M3_MAX = 448.0  # largest finite number of float8_e4m3fn
BLOCK = 128
LAYERS = [layer for layer in LINEAR if not layer[0].endswith(("tp8 qkv", "tp8 out", "logits"))]


def cast_tensor(x):
    """FP8 values with one scale, from the largest magnitude of the tensor."""
    scale = E4M3_MAX / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale.reciprocal()


def cast_rows(x):
    """FP8 values with a scale a row."""
    scale = E4M3_MAX / x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale.reciprocal()


def cast_blocks(x):
    """FP8 values with a scale of each 1 × 128 block."""
    rows, columns = x.shape
    blocks = x.float().view(rows, columns // BLOCK, BLOCK)
    scale = E4M3_MAX / blocks.abs().amax(dim=2, keepdim=True).clamp(min=1e-12)
    values = (blocks * scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).view(rows, columns)
    return values, scale.reciprocal().view(rows, columns // BLOCK)


def scales(run, kind, m, k, n):
    """Scales of both operands, of the shapes and strides that torch._scaled_mm asks on SM 9.0."""
    ones = lambda *shape: torch.rand(*shape, device=run.device) * 1e-3 + 1e-3
    if kind == "tensor":
        return ones(1).squeeze(), ones(1).squeeze()
    if kind == "row":
        return ones(m, 1), ones(1, n)
    # 1 × 128 blocks of the left operand: outer dimension first in memory. 128 × 128 blocks of the right: inner dimension first.
    return ones(k // BLOCK, m).t(), ones(n // BLOCK, k // BLOCK).t()


def measure(run):
    if not run.gpu:
        run.skip("FP8 GEMMs: needs a GPU")
    else:
        for name, m, k, n in shapes(run, LAYERS):
            gemms(run, name, m, k, n)
            run.free()
    casts(run)


def gemms(run, name, m, k, n):
    sets = [
        (run.normal(m, k).to(torch.float8_e4m3fn), run.normal(n, k).to(torch.float8_e4m3fn).t())
        for _ in range(run.copies(m * k + n * k))
    ]
    of = cycle(sets)
    # Fast accumulation: PyTorch's float8 training sets it for the forward GEMM; block-wise scales do without.
    for kind, fast in (("tensor", True), ("tensor", False), ("row", True), ("block", False)):
        with run.attempt(f"{name} {kind}"):
            scale_a, scale_b = scales(run, kind, m, k, n)

            def gemm(i):
                x, w = of(i)
                return torch._scaled_mm(
                    x, w, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast
                )

            def public(i):
                x, w = of(i)
                of_a, of_b = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
                return F.scaled_mm(x, w, scale_a, of_a, scale_b, of_b, output_dtype=torch.bfloat16)

            if kind == "block":
                try:
                    gemm(0)
                except (RuntimeError, ValueError):
                    traceback.print_exc()
                    gemm = public
            run.time(
                f"{name} {kind}{' fast' if fast else ''}",
                gemm,
                scales=kind,
                fast_accumulation=fast,
                api="F.scaled_mm" if gemm is public else "torch._scaled_mm",
                dtype="fp8",
                m=m,
                k=k,
                n=n,
                flops=2 * m * k * n,
            )


def casts(run):
    rows, columns = run.pick(8192, 64), run.pick(4096, 256)
    of = cycle([run.normal(rows, columns) for _ in range(run.copies(2 * rows * columns))])
    for name, fn in (("tensor", cast_tensor), ("row", cast_rows), ("block", cast_blocks)):
        for mode in ("eager", "compiled"):
            with run.attempt(f"cast {name} {mode}"):
                cast = compiled(run, fn) if mode == "compiled" else fn
                # BF16 read and FP8 written once: the bytes of a cast whose scale is known beforehand.
                run.time(
                    f"cast bf16 to fp8, {name}, {mode}",
                    lambda i: cast(of(i)),
                    mode=mode,
                    rows=rows,
                    columns=columns,
                    bytes=3 * rows * columns,
                )
