"""Grouped GEMMs of expert MLPs, against batched GEMMs of equal sizes and against one GEMM an expert on four streams.

The last is what Transformer Engine's GroupedLinear does: expert i's GEMM on stream i mod 4, all streams awaited at the end
(transformer_engine/common/gemm/cublaslt_gemm.cu, nvte_multi_stream_cublas_gemm). A CUDA graph launches it here, so that the times are the
device's and not the host's.
"""

import torch

from record import cycle

# Name, hidden size, expert intermediate size, numbers of experts on the GPU: the models' config.json.
EXPERTS = [
    ("qwen3-30b-a3b", 2048, 768, (16, 32, 64)),
    ("deepseek-v3", 7168, 2048, (16, 32, 64)),
    ("gpt-oss-20b", 2880, 2880, (16, 32)),
    ("ling-mini-2.0", 2048, 512, (32,)),
    ("mixtral-8x7b", 4096, 14336, (8,)),
]
STREAMS = 4
TOKENS = (64, 256, 1024, 2048)  # of each expert


def measure(run):
    for name, hidden, ffn, counts in EXPERTS:
        hidden, ffn = run.pick(hidden, 64), run.pick(ffn, 32)
        for experts in counts if run.gpu else (4,):
            for k, n, which in ((hidden, ffn, "gate"), (ffn, hidden, "down")):
                weights = run.normal(experts, n, k, scale=0.02)
                for tokens in TOKENS if run.gpu else (16,):
                    with run.attempt(f"{name} {which}"):
                        cases(run, f"{name} {which}", weights, experts, tokens, k, n)
                del weights
        run.free()


def one_by_one(run, sets, weights, tokens):
    """GEMMs of each expert by itself, by kind: functions without arguments that write to memory of their own."""
    experts, n, k = weights.shape
    rows = experts * tokens
    x, g = sets(0)
    part = lambda e: slice(e * tokens, (e + 1) * tokens)
    y, dx, dw = torch.empty_like(g), torch.empty_like(x), torch.empty_like(weights)
    product = lambda a, b, out: lambda: torch.mm(a, b, out=out)
    assert x.shape == (rows, k) and g.shape == (rows, n)
    return {
        "forward": [product(x[part(e)], weights[e].t(), y[part(e)]) for e in range(experts)],
        "dgrad": [product(g[part(e)], weights[e], dx[part(e)]) for e in range(experts)],
        "wgrad": [product(g[part(e)].t(), x[part(e)], dw[e]) for e in range(experts)],
    }


def replay(products):
    """A function that launches all products from a graph, product i on stream i mod 4."""
    for product in products:  # libraries allocate before the capture
        product()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        for stream in streams:
            stream.wait_stream(main)
        for i, product in enumerate(products):
            with torch.cuda.stream(streams[i % STREAMS]):
                product()
        for stream in streams:
            main.wait_stream(stream)
    return lambda i: graph.replay()


def cases(run, name, weights, experts, tokens, k, n):
    rows = experts * tokens
    copies = 1 if weights.numel() * 2 > 3 * run.l2 else run.copies(2 * rows * k)
    sets = cycle([(run.normal(rows, k), run.normal(rows, n)) for _ in range(min(copies, 8))])
    ends = torch.arange(tokens, rows + 1, tokens, dtype=torch.int32, device=run.device)

    def forward(i):  # (rows, k) × (experts, k, n)
        return torch._grouped_mm(sets(i)[0], weights.transpose(-2, -1), offs=ends)

    def dgrad(i):  # (rows, n) × (experts, n, k)
        return torch._grouped_mm(sets(i)[1], weights, offs=ends)

    def wgrad(i):  # (n, rows) × (rows, k), rows in groups: (experts, n, k)
        x, g = sets(i)
        return torch._grouped_mm(g.t(), x, offs=ends)

    def batched(i):
        return torch.bmm(sets(i)[0].view(experts, tokens, k), weights.transpose(-2, -1))

    def public(i):
        return torch.nn.functional.grouped_mm(sets(i)[0], weights.transpose(-2, -1), offs=ends)

    kinds = [("forward", forward), ("dgrad", dgrad), ("wgrad", wgrad), ("bmm", batched)]
    if run.gpu:
        kinds += [
            (f"{kind} on streams", replay(products))
            for kind, products in one_by_one(run, sets, weights, tokens).items()
        ]
    if tokens == TOKENS[1] and hasattr(torch.nn.functional, "grouped_mm"):
        kinds.append(("F.grouped_mm", public))
    for kind, fn in kinds:
        with run.attempt(f"{name} {kind}"):
            run.time(
                f"{name} {kind} E{experts} T{tokens}",
                fn,
                kind=kind,
                experts=experts,
                tokens_per_expert=tokens,
                k=k,
                n=n,
                dtype="bf16",
                flops=2 * rows * k * n,
            )
