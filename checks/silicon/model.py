"""Decoder layers as most trainers write them: RMSNorm, rotary embedding, SDPA, SwiGLU or experts."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stream import rotate

# The first backend that takes the operands runs. torchtitan prefers FlashAttention on Hopper.
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


def prefer(attention):
    """Puts a backend first: `cudnn` or `flash`."""
    BACKENDS.sort(key=lambda backend: attention.upper() not in backend.name)


@dataclass
class Sizes:
    """Sizes of a decoder: features unless said otherwise."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int = 0
    top: int = 0
    layers: int = 1
    vocabulary: int = 0


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.out = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, sequence, _ = x.shape
        split = lambda y: y.view(batch, sequence, -1, self.s.head_dim)
        q, k, v = rotate(split(self.q(x)), cos, sin), rotate(split(self.k(x)), cos, sin), split(self.v(x))
        with sdpa_kernel(BACKENDS, set_priority=True):
            y = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                k.transpose(1, 2),
                v.transpose(1, 2),
                is_causal=True,
                enable_gqa=self.s.heads != self.s.kv_heads,
            )
        return self.out(y.transpose(1, 2).reshape(batch, sequence, -1))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Router and experts. The assignment is round-robin, so that every expert has equally many tokens; the router still runs."""

    def __init__(self, s):
        super().__init__()
        self.s = s
        self.router = nn.Linear(s.hidden, s.experts, bias=False)
        weight = lambda *shape: nn.Parameter(torch.randn(*shape) * 0.02)
        self.gate, self.up = weight(s.experts, s.ffn, s.hidden), weight(s.experts, s.ffn, s.hidden)
        self.down = weight(s.experts, s.hidden, s.ffn)

    def forward(self, x):
        shape, s = x.shape, self.s
        x = x.reshape(-1, s.hidden)
        scores, _ = torch.softmax(self.router(x).float(), dim=-1).topk(s.top, dim=-1)
        chosen = torch.arange(x.shape[0] * s.top, device=x.device) % s.experts
        order = torch.argsort(chosen, stable=True)
        counts = torch.zeros(s.experts, dtype=torch.int32, device=x.device).scatter_add_(
            0, chosen, torch.ones_like(chosen, dtype=torch.int32)
        )
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        slots = x.index_select(0, order // s.top)
        multiply = lambda y, w: torch._grouped_mm(y, w.transpose(-2, -1), offs=ends)
        slots = multiply(F.silu(multiply(slots, self.gate)) * multiply(slots, self.up), self.down)
        slots = (slots.float() * scores.reshape(-1)[order].unsqueeze(1)).to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // s.top, slots).view(shape)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(s.hidden, eps=1e-5), nn.RMSNorm(s.hidden, eps=1e-5)
        self.attention = Attention(s)
        self.mlp = Experts(s) if s.experts else Mlp(s)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """A whole decoder; the embedding and the output projection are not tied."""

    def __init__(self, s):
        super().__init__()
        self.embedding = nn.Embedding(s.vocabulary, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.hidden, eps=1e-5)
        self.output = nn.Linear(s.hidden, s.vocabulary, bias=False)

    def forward(self, ids, cos, sin):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.output(self.norm(x))


def angles(sequence, dim, device):
    """Cosines and sines of the rotary embedding: (sequence, 1, dim / 2), base 500,000 as Llama 3."""
    frequencies = 500_000.0 ** (-torch.arange(0, dim, 2, device=device).float() / dim)
    phase = torch.outer(torch.arange(sequence, device=device).float(), frequencies).unsqueeze(1)
    return phase.cos(), phase.sin()


def layer_flops(s, batch, sequence):
    """FLOPs of a layer's forward pass, causal attention counted by its unmasked half."""
    attention = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads)
    mlp = 3 * s.hidden * s.ffn * (s.top or 1) + s.hidden * s.experts
    scores = 2 * s.heads * s.head_dim * (sequence + 1) // 2
    return 2 * batch * sequence * (attention + mlp + scores)
