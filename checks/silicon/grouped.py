"""Grouped GEMMs of expert MLPs, against batched GEMMs of equal sizes."""

import torch

from record import cycle

# Name, hidden size, expert intermediate size, numbers of experts on the GPU: the models' config.json.
EXPERTS = [
    ("qwen3-30b-a3b", 2048, 768, (16, 32, 64)),
    ("deepseek-v3", 7168, 2048, (16, 32, 64)),
    ("gpt-oss-20b", 2880, 2880, (16, 32)),
    ("mixtral-8x7b", 4096, 14336, (8,)),
]
TOKENS = (64, 256, 1024)  # of each expert


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
