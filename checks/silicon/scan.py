"""Mixers with a state: Mamba-2's scan by chunks, the gated delta rule and Kimi's delta attention, by their authors' Triton kernels.

mamba_ssm (its `ops/triton` alone suffices) and flash-linear-attention are optional: a section without its package is one failed record.
Triton picks block sizes by timing them, which takes a minute; TRITON_CACHE_AUTOTUNING=1 keeps the choice for a second run.
"""

import torch

SEQUENCE = 8192


def both(run, name, fn, inputs, out_width, **fields):
    """Forward and backward of `fn(*inputs)`, whose inputs are fresh leaves of the graph."""
    with torch.no_grad():
        run.time(f"{name} forward", lambda i: fn(*inputs), sequence=inputs[0].shape[1], **fields)
    leaves = [t for t in inputs if t.requires_grad]
    out = fn(*inputs)
    gradient = run.normal(*out.shape)
    assert out.shape[-1] == out_width, out.shape
    run.time(
        f"{name} backward",
        lambda i: torch.autograd.grad(out, leaves, gradient, retain_graph=True),
        sequence=inputs[0].shape[1],
        **fields,
    )


def operands(run, *shapes, scale=1.0):
    return [run.normal(*shape, scale=scale).requires_grad_() for shape in shapes]


def mamba(run):
    """Nemotron-H 8B: 128 heads of 64, state 128, 8 groups, chunks of 128 tokens."""
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    heads, width, state, groups, n = 128, 64, 128, 8, run.pick(SEQUENCE, 256)
    x, b, c = operands(run, (1, n, heads, width), (1, n, groups, state), (1, n, groups, state))
    (dt,) = operands(run, (1, n, heads))
    decay, skip, bias = [run.normal(heads, dtype=torch.float32).requires_grad_() for _ in range(3)]

    def scan(x, dt, b, c, chunk):
        return mamba_chunk_scan_combined(x, dt, -decay.exp(), b, c, chunk, D=skip, dt_bias=bias, dt_softplus=True)

    for chunk in (128, 256):
        with run.attempt(f"mamba-2 chunks of {chunk}"):
            both(
                run,
                f"mamba-2 chunks of {chunk}",
                lambda *given: scan(*given, chunk),
                [x, dt, b, c],
                width,
                heads=heads,
                head_dim=width,
                state=state,
                groups=groups,
                chunk=chunk,
            )


def gates(run, heads, *widths):
    """A decay in logarithms, below zero, and a writing strength between zero and one."""
    n = run.pick(SEQUENCE, 256)
    decay = torch.nn.functional.logsigmoid(run.normal(1, n, heads, *widths, dtype=torch.float32))
    return decay.requires_grad_(), torch.sigmoid(run.normal(1, n, heads)).requires_grad_()


HEADS, WIDTH = 32, 128  # of Qwen3-Next's values, whose keys are repeated to as many, and of Kimi-Linear


def by_chunks(run, name, fn, *decay):
    """A rule over chunks of queries, keys, values and gates; the decay of a head has the widths `decay`."""
    q, k, v = operands(run, *[(1, run.pick(SEQUENCE, 256), HEADS, WIDTH)] * 3)

    def rule(q, k, v, g, beta):
        return fn(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]

    with run.attempt(name):
        both(run, name, rule, [q, k, v, *gates(run, HEADS, *decay)], WIDTH, heads=HEADS, head_dim=WIDTH)


def delta(run):
    """Qwen3-Next's gated delta rule, and its convolution."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    by_chunks(run, "gated delta rule", chunk_gated_delta_rule)
    convolution(run, 3 * HEADS * WIDTH)


def kda(run):
    """Kimi-Linear's delta attention: a decay for each channel of the keys."""
    from fla.ops.kda import chunk_kda

    by_chunks(run, "kimi delta attention", chunk_kda, WIDTH)


def convolution(run, channels):
    """Causal convolution over 4 tokens with SiLU, of queries, keys and values together."""
    from fla.modules.convolution import causal_conv1d

    n = run.pick(SEQUENCE, 256)
    (x,) = operands(run, (1, n, channels))
    weight = run.normal(channels, 4).requires_grad_()

    def convolve(x, weight):
        return causal_conv1d(x, weight, activation="silu")[0]

    with run.attempt("causal convolution"):
        both(run, "causal convolution", convolve, [x, weight], channels, channels=channels, taps=4)
