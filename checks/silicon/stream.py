"""Kernels bound by memory bandwidth: norms, activations, losses, optimizers and permutations."""

import torch
import torch.nn.functional as F

from record import compiled, cycle


def both_modes(run, name, fn, arguments, gradient, forward_bytes, backward_bytes, **fields):
    """Forward and backward of `fn(*arguments)`, eager and compiled; `arguments` and `gradient` make fresh operands."""
    for mode in ("eager", "compiled"):
        with run.attempt(f"{name} {mode}"):
            torch._dynamo.reset()
            size = forward_bytes
            call = compiled(run, fn) if mode == "compiled" else fn
            sets = [arguments() for _ in range(min(8, run.copies(size)))]
            of = cycle(sets)
            with torch.no_grad():
                run.time(f"{name} forward {mode}", lambda i: call(*of(i)), mode=mode, **fields, bytes=forward_bytes)
            with torch._functorch.config.patch(donated_buffer=False):  # retain_graph needs the buffers
                outs = cycle([(call(*s), [t for t in s if t.requires_grad], gradient()) for s in sets])

                def backward(i):
                    out, inputs, g = outs(i)
                    return torch.autograd.grad(out, inputs, g, retain_graph=True)

                run.time(f"{name} backward {mode}", backward, mode=mode, **fields, bytes=backward_bytes)
                del outs, sets, of
        run.free()


def rotate(x, cos, sin):
    """Rotary embedding of (batch, sequence, heads, dimension), halves rotated, in FP32 as most trainers do."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def loss(logits, labels):
    return F.cross_entropy(logits.float(), labels)


def measure(run):
    tokens, hidden, ffn = run.pick(8192, 64), run.pick(4096, 32), run.pick(14336, 64)
    n, f = tokens * hidden, tokens * ffn
    with run.attempt("copy"):
        source = run.normal(run.pick(1 << 29, 1 << 12))
        run.time("clone", lambda i: source.clone(), bytes=4 * source.numel())
        del source
    run.free()
    leaf = lambda *shape: run.normal(*shape).requires_grad_()
    # Bytes count each operand and result once.
    both_modes(
        run,
        "rms_norm",
        lambda x, w: F.rms_norm(x, (hidden,), w, 1e-5),
        lambda: (leaf(tokens, hidden), leaf(hidden)),
        lambda: run.normal(tokens, hidden),
        4 * n,
        6 * n,
        rows=tokens,
        columns=hidden,
    )
    both_modes(
        run,
        "swiglu",
        lambda a, b: F.silu(a) * b,
        lambda: (leaf(tokens, ffn), leaf(tokens, ffn)),
        lambda: run.normal(tokens, ffn),
        6 * f,
        10 * f,
        rows=tokens,
        columns=ffn,
    )
    heads, dim = run.pick(32, 2), run.pick(128, 16)
    angles = torch.rand(tokens, 1, dim // 2, device=run.device)
    cos, sin = angles.cos(), angles.sin()
    both_modes(
        run,
        "rotary",
        lambda x: rotate(x, cos, sin),
        lambda: (leaf(1, tokens, heads, dim),),
        lambda: run.normal(1, tokens, heads, dim),
        4 * tokens * heads * dim,
        4 * tokens * heads * dim,
        rows=tokens,
        columns=heads * dim,
    )
    rows, vocabulary = run.pick(2048, 16), run.pick(128256, 512)
    labels = torch.randint(0, vocabulary, (rows,), device=run.device)
    both_modes(
        run,
        "cross_entropy",
        loss,
        lambda: (leaf(rows, vocabulary), labels),
        lambda: torch.ones((), device=run.device),
        2 * rows * vocabulary,
        4 * rows * vocabulary,
        rows=rows,
        columns=vocabulary,
    )
    with run.attempt("embedding"):
        embedding(run, tokens, hidden, vocabulary)
    run.free()
    with run.attempt("permutation"):
        permutation(run)
    run.free()
    for kind in ("fused", "foreach"):
        with run.attempt(f"adamw {kind}"):
            adamw(run, kind)
        run.free()


def embedding(run, tokens, hidden, vocabulary):
    weight = run.normal(vocabulary, hidden).requires_grad_()
    ids = torch.randint(0, vocabulary, (tokens,), device=run.device)
    gradient = run.normal(tokens, hidden)
    size = {"rows": tokens, "columns": hidden, "vocabulary": vocabulary}
    with torch.no_grad():
        run.time("embedding forward", lambda i: F.embedding(ids, weight), **size, bytes=4 * tokens * hidden)
    out = F.embedding(ids, weight)
    # The whole table's gradient is written: zeros but for the tokens' rows.
    run.time(
        "embedding backward",
        lambda i: torch.autograd.grad(out, weight, gradient, retain_graph=True),
        **size,
        bytes=2 * vocabulary * hidden + 2 * tokens * hidden,
    )


def permutation(run):
    """Tokens to experts and back: 8 experts of 128 for each token."""
    tokens, hidden, top, experts = run.pick(8192, 64), run.pick(2048, 32), 8, run.pick(128, 16)
    x = run.normal(tokens, hidden)
    chosen = torch.rand(tokens, experts, device=run.device).topk(top, dim=1).indices.view(-1)
    order = torch.argsort(chosen, stable=True)
    rows = order // top
    slots = run.normal(tokens * top, hidden)
    total = torch.zeros(tokens, hidden, dtype=x.dtype, device=run.device)
    size = {"tokens": tokens, "top": top, "hidden": hidden}
    n = tokens * top * hidden
    run.time("argsort of expert indices", lambda i: torch.argsort(chosen, stable=True), **size, bytes=16 * tokens * top)
    run.time("permute index_select", lambda i: x.index_select(0, rows), **size, bytes=4 * n)
    run.time(
        "unpermute index_add", lambda i: total.index_add_(0, rows, slots), **size, bytes=2 * n + 4 * tokens * hidden
    )
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=run.device)
    run.time(
        "unpermute index_select and sum",
        lambda i: slots.index_select(0, inverse).view(tokens, top, hidden).sum(dim=1),
        **size,
        bytes=6 * n + 2 * tokens * hidden,
    )


def adamw(run, kind):
    count, tensors = run.pick(10_000_000, 1000), 50
    params = [torch.randn(count, device=run.device).requires_grad_() for _ in range(tensors)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(params, lr=1e-4, **{kind: True})
    optimizer.step()
    # FP32: parameter and both moments read and written, gradient read.
    run.time(f"adamw {kind}", lambda i: optimizer.step(), parameters=count * tensors, bytes=28 * count * tensors)
