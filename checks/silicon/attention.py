"""Attention: cuDNN and FlashAttention kernels of SDPA, and FlexAttention with a sliding window and with sinks."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from record import compiled

# Query heads, key heads, head dimension of queries and keys, of values.
HEADS = [(32, 8, 128, 128), (32, 8, 64, 64), (32, 32, 192, 128)]
SEQUENCES = [(1, 8192), (1, 4096), (4, 2048)]
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def operands(run, batch, sequence, heads, kv_heads, qk, v):
    q = run.normal(batch, heads, sequence, qk).requires_grad_()
    k = run.normal(batch, kv_heads, sequence, qk).requires_grad_()
    value = run.normal(batch, kv_heads, sequence, v).requires_grad_()
    return q, k, value, run.normal(batch, heads, sequence, v)


def forward_and_backward(run, name, attend, qkv, gradient, pairs, backward=True, **fields):
    """Two records. `pairs` counts the unmasked entries of the score matrices."""
    qk, v = qkv[0].shape[-1], qkv[2].shape[-1]
    with torch.no_grad():
        run.time(f"{name} forward", lambda i: attend(*qkv), **fields, flops=2 * pairs * (qk + v))
    if backward:
        out = attend(*qkv)
        # Five matmuls: scores once more, dV, dP, dQ and dK.
        run.time(
            f"{name} backward",
            lambda i: torch.autograd.grad(out, qkv, gradient, retain_graph=True),
            **fields,
            flops=2 * pairs * (3 * qk + 2 * v),
        )


def measure(run):
    for heads, kv_heads, qk, v in HEADS:
        heads, kv_heads = run.pick(heads, 4), run.pick(kv_heads, 4 * kv_heads // heads)
        for batch, sequence in SEQUENCES:
            sequence = run.pick(sequence, 32)
            for label, backend in BACKENDS.items() if run.gpu else {"math": "MATH"}.items():
                name = f"{label} d{qk}/{v} b{batch} s{sequence}"
                with run.attempt(name):
                    sdpa(run, name, label, getattr(SDPBackend, backend), batch, sequence, heads, kv_heads, qk, v)
            run.free()


def sdpa(run, name, label, backend, batch, sequence, heads, kv_heads, qk, v):
    *qkv, gradient = operands(run, batch, sequence, heads, kv_heads, qk, v)
    grouped = heads != kv_heads

    def attend(q, k, v, gqa=grouped):
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)

    expanded = False
    try:
        attend(*qkv)
    except RuntimeError:
        if not grouped:
            raise
        # A backend that takes no grouped queries: every query head has its own copy of the keys.
        qkv[1:] = [x.detach().repeat_interleave(heads // kv_heads, dim=1).requires_grad_() for x in qkv[1:]]
        expanded, grouped = True, False
        attend(*qkv, gqa=False)
    run_attend = lambda q, k, v: attend(q, k, v, gqa=grouped)
    forward_and_backward(
        run,
        name,
        run_attend,
        qkv,
        gradient,
        batch * heads * sequence * (sequence + 1) // 2,
        backend=label,
        batch=batch,
        sequence=sequence,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=qk,
        value_dim=v,
        kv_expanded=expanded,
    )


def flex(run):
    """Sliding windows, plain and with gpt-oss's sinks, at 64 query heads of dimension 64 on 8 key heads."""
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    heads, kv_heads, dim, sequence = run.pick(64, 8), run.pick(8, 2), 64, run.pick(8192, 256)
    *qkv, gradient = operands(run, 1, sequence, heads, kv_heads, dim, dim)
    if not run.gpu:  # FlexAttention has no backward pass on a CPU
        qkv = [x.detach() for x in qkv]
    sinks = run.normal(heads).requires_grad_()

    for window, sink in ((128, True), (128, False), (4096, False)):
        name = f"flex window {window}{' with sinks' if sink else ''}"
        with run.attempt(name):
            window = min(window, sequence)

            def within(b, h, q, k, window=window):
                return (q >= k) & (q - k < window)

            mask = create_block_mask(within, None, None, sequence, sequence, device=run.device)

            def plain(q, k, v):
                return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)

            def with_sinks(q, k, v):
                out, aux = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
                return out * torch.sigmoid(aux.lse - sinks.view(1, -1, 1)).unsqueeze(-1).to(out.dtype)

            torch._dynamo.reset()
            attend = compiled(run, with_sinks if sink else plain)
            pairs = heads * sum(min(i + 1, window) for i in range(sequence))
            with torch._functorch.config.patch(donated_buffer=False):  # retain_graph needs the buffers
                forward_and_backward(
                    run,
                    name,
                    attend,
                    qkv,
                    gradient,
                    pairs,
                    backward=run.gpu,
                    window=window,
                    sequence=sequence,
                    batch=1,
                    heads=heads,
                    kv_heads=kv_heads,
                    head_dim=dim,
                    value_dim=dim,
                    sinks=sink,
                )
    if not run.gpu:
        run.skip("backward of FlexAttention: needs a GPU")
