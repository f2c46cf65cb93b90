"""Stand-ins for CUDA's kernels where a tensor lies on the fake CPU, and names for the buffers of FSDP."""

import contextlib

import torch
import torch.nn.functional as F


class FusedRmsNorm(torch.autograd.Function):
    """RMSNorm that keeps the tensors of CUDA's fused kernel: input, weight, and one fp32 a row."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1] + (1,), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight)


def attention(kind):
    """`F.scaled_dot_product_attention` as CUDA dispatches it: keeps q, k, v, its output and a log-sum-exp in fp32."""

    def run(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **_):
        if attn_mask is not None:
            raise NotImplementedError("a mask: CUDA would not take flash attention")
        if kind != "flash" and key.shape[1] != query.shape[1]:
            times = query.shape[1] // key.shape[1]
            key, value = (x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for x in (key, value))
        if kind == "efficient":
            op = torch.ops.aten._scaled_dot_product_efficient_attention
            return op(query, key, value, None, True, dropout_p, is_causal, scale=scale)[0]
        op = torch.ops.aten._scaled_dot_product_flash_attention
        return op(query, key, value, dropout_p, is_causal, False, scale=scale)[0]

    return run


@contextlib.contextmanager
def as_on_cuda(plan):
    kept = F.scaled_dot_product_attention, F.rms_norm
    F.scaled_dot_product_attention = attention(plan.attention)
    if plan.norm == "fused":
        F.rms_norm = lambda x, shape, weight=None, eps=None: FusedRmsNorm.apply(x, weight)
    try:
        yield
    finally:
        F.scaled_dot_product_attention, F.rms_norm = kept


@contextlib.contextmanager
def real_tensors_only(ledger):
    """DTensor learns the shape of an operator's result by running it on tensors of the whole shape: these are not memory."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator as propagator

    name = "_propagate_tensor_meta_non_cached"
    kept = getattr(propagator, name)

    def run(*args, **kwargs):
        with ledger.paused():
            return kept(*args, **kwargs)

    setattr(propagator, name, run)
    try:
        yield
    finally:
        setattr(propagator, name, kept)


@contextlib.contextmanager
def fsdp_scopes(ledger):
    """Gathered weights and buffers of the reduction by name, not as activations."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as group

    names = {"foreach_all_gather": "gathered", "foreach_all_gather_copy_out": "gathered", "foreach_reduce": "reduction"}
    kept = {name: getattr(group, name) for name in names}

    def scoped(function, scope):
        def run(*args, **kwargs):
            with ledger.under(scope):
                return function(*args, **kwargs)

        return run

    for name, scope in names.items():
        setattr(group, name, scoped(kept[name], scope))
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(group, name, function)
