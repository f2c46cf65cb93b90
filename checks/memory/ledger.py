"""Ledger of every storage that a training step makes: when it is made, by which operator on which stream, and when it ends."""

import collections
import contextlib
import weakref

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves


class Ledger(TorchDispatchMode):
    """Every storage from its first sight to its end, as events (key, ± bytes), with the scope, operator and stream it was made in."""

    def __init__(self):
        super().__init__()
        self.events, self.origin, self.tags = [], {}, {}
        self.alive, self.refs, self.marks, self.emptied = {}, {}, [], set()
        self.scopes, self.next, self.is_paused = ["setup"], 0, False

    def mark(self, phase):
        self.marks.append((len(self.events), phase))
        self.scopes[:] = [phase]

    @contextlib.contextmanager
    def under(self, scope):
        self.scopes.append(scope)
        try:
            yield
        finally:
            self.scopes.pop()

    def see(self, tensor, op):
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                self.see(getattr(tensor, name), op)
            return
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta" or tensor.layout != torch.strided:
            return
        storage = tensor.untyped_storage()
        if id(storage) in self.alive:
            self.resized(storage)
            return
        self.refs[id(storage)] = weakref.ref(storage, lambda _, i=id(storage): self.gone(i))
        self.alive[id(storage)] = [self.born(op), 0]
        self.resized(storage)

    def born(self, op):
        key, self.next = self.next, self.next + 1
        self.origin[key] = (self.scopes[-1], op, id(torch.cpu.current_stream()))
        return key

    def gone(self, i):
        key, size = self.alive.pop(i)
        del self.refs[i]
        self.log(key, -size)

    def resized(self, storage):
        entry, size = self.alive[id(storage)], -(-storage.nbytes() // 512) * 512
        key, before = entry
        if size == before:
            return
        self.log(key, -before)
        if key in self.emptied and size:  # allocated again: another block, of the same tenant where it has one
            new = self.born("resize_")
            if key in self.tags:
                self.tags[new] = self.tags[key]
            key = new
        self.log(key, size)
        self.emptied.add(key)
        entry[:] = [key, size]

    def log(self, key, change):
        if change:
            self.events.append((key, change))

    def tag(self, tensor, tag):
        if tensor is None:
            return
        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                self.tag(getattr(tensor, name), tag)
            return
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
            self.see(tensor, "found")
            self.tags[self.alive[id(tensor.untyped_storage())][0]] = tag

    @contextlib.contextmanager
    def paused(self):
        """For tensors that stand for shapes alone."""
        self.is_paused, before = True, self.is_paused
        try:
            yield
        finally:
            self.is_paused = before

    def workspace(self, op, size):
        """Memory that a kernel takes and gives back within itself."""
        key = self.born(op)
        self.log(key, size)
        self.log(key, -size)

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        if any(kind in (DTensor, AsyncCollectiveTensor) for kind in kinds):
            return NotImplemented  # first to its local tensors
        out = func(*args, **(kwargs or {}))
        if self.is_paused:
            return out
        name = func._schema.name if hasattr(func, "_schema") else str(func)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf, name)
        if name in WORKSPACE:
            self.workspace(name + " workspace", WORKSPACE[name](*args))
        return out

    def __enter__(self):
        self.resize = resize = torch.UntypedStorage.resize_

        def resize_(storage, size):
            resize(storage, size)
            if id(storage) in self.alive:
                self.resized(storage)
            return storage

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *reason):
        torch.UntypedStorage.resize_ = self.resize
        return super().__exit__(*reason)

    # ---- reading

    def tenant(self, key):
        return self.tags.get(key) or self.origin[key][0]

    def held(self, before):
        """Bytes by key just before event `before`."""
        held = collections.Counter()
        for key, change in self.events[:before]:
            held[key] += change
        return {key: size for key, size in held.items() if size}

    def peak(self, start):
        """(bytes, number of events before which it is reached), from event `start` on."""
        now, best, at = 0, -1, 0
        for n, (_, change) in enumerate(self.events, 1):
            now += change
            if n > start and now > best:
                best, at = now, n
        return best, at

    def phase(self, event):
        return [name for at, name in self.marks if at < event][-1]


def flash_backward_workspace(_grad, query, key, *_):
    """FlashAttention 2: fp32 accumulator of dq, softmax's row sums, and dk, dv of every query head where keys are shared."""
    (b, h, s, d), kv_heads = query.shape, key.shape[1]
    rows = -(-s // 128) * 128
    return 4 * b * h * rows * d + 4 * b * h * rows + (0 if kv_heads == h else 2 * 2 * b * s * h * d)


WORKSPACE = {"aten::_scaled_dot_product_flash_attention_backward": flash_backward_workspace}
