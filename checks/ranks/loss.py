"""Bytes that a compiled cross-entropy moves per logit, as Inductor counts them, on a CPU.

    python3 checks/ranks/loss.py

prints one line for each way to write the loss: bytes forward, bytes forward and backward. `stack.loss_traffic` is the latter.
"""

import torch
import torch.nn.functional as F
from torch._inductor import config, metrics

TOKENS, VOCABULARY = 1024, 32000


def torchtitan(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def transformers(logits, labels):
    shifted = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, VOCABULARY), shifted.view(-1), ignore_index=-100)


def nanogpt(logits, labels):
    return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), ignore_index=-1)


def main():
    torch._logging.set_logs(inductor_metrics=True)  # without it nothing is counted
    config.force_disable_caches = True
    for loss in torchtitan, transformers, nanogpt:
        torch._dynamo.reset()
        metrics.reset()
        logits = torch.randn(1, TOKENS, VOCABULARY, dtype=torch.bfloat16, requires_grad=True)
        value = torch.compile(loss)(logits, torch.randint(0, VOCABULARY, (1, TOKENS)))
        forward = metrics.num_bytes_accessed
        value.backward()
        counted = [moved / (TOKENS * VOCABULARY) for moved in (forward, metrics.num_bytes_accessed)]
        print(f"{loss.__name__}: {counted[0]:.2f} forward, {counted[1]:.2f} in all")


if __name__ == "__main__":
    main()
