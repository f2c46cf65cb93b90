"""Replay of PyTorch's caching allocator for CUDA over the events of a ledger."""

import collections
import dataclasses


@dataclasses.dataclass(eq=False)
class Block:
    size: int
    address: int
    pool: set
    before: object = None
    after: object = None


class CachingAllocator:
    """`max_memory_reserved` of a list of events: torch's CUDACachingAllocator.

    Blocks of 512 B; requests up to 1 MiB from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, above from a segment of
    their own rounded up to 2 MiB; best fit; a block is split where 512 B (small) or more than 1 MiB (large) would remain; free
    neighbours are joined; one pool a stream. What is reserved is never given back. With `expandable` segments a pool is one segment
    that grows by pages of 2 MiB (small) or 20 MiB.
    """

    SMALL, MEDIUM, UNIT = 2**20, 10 * 2**20, 2 * 2**20

    def __init__(self, expandable=False):
        self.expandable = expandable
        self.free, self.used, self.last = collections.defaultdict(set), {}, {}
        self.reserved = 0

    def malloc(self, key, size, stream):
        small = size <= self.SMALL
        pool = self.free[stream, small]
        block = min((b for b in pool if b.size >= size), key=lambda b: (b.size, b.address), default=None)
        if block is None and self.expandable:
            block = self.grown(size, stream, small)
        elif block is None:
            segment = (
                self.UNIT if small else 2 * self.MEDIUM if size < self.MEDIUM else -(-size // self.UNIT) * self.UNIT
            )
            block = Block(segment, self.reserved, pool)
            self.reserved += segment
        else:
            pool.discard(block)
        rest = block.size - size
        if rest >= 512 if small else rest > self.SMALL:
            tail = Block(rest, block.address + size, pool, before=block, after=block.after)
            if tail.after:
                tail.after.before = tail
            block.after, block.size = tail, size
            pool.add(tail)
        self.used[key] = block

    def grown(self, size, stream, small):
        """The free end of the pool's one segment, or none, and as many pages as lack."""
        pool, page = self.free[stream, small], self.UNIT if small else 2 * self.MEDIUM
        last = self.last.get((stream, small))
        while last and last.after:
            last = last.after
        end = last if last in pool else None
        lacking = -(-(size - (end.size if end else 0)) // page) * page
        self.reserved += lacking
        if end:
            pool.discard(end)
            end.size += lacking
            return end
        block = Block(lacking, last.address + last.size if last else 0, pool, before=last)
        if last:
            last.after = block
        self.last[stream, small] = block
        return block

    def release(self, key):
        block = self.used.pop(key)
        for other in (block.after, block.before):
            if other and other in block.pool:
                block.pool.discard(other)
                first, second = sorted((block, other), key=lambda b: b.address)
                first.size, first.after = first.size + second.size, second.after
                if first.after:
                    first.after.before = first
                if self.expandable:
                    self.last.update({k: first for k, last in self.last.items() if last is second})
                block = first
        block.pool.add(block)

    def replay(self, ledger, library_workspace):
        """The ledger's storages on the device (from the first real allocation on), after the libraries' own workspace."""
        if library_workspace:
            self.malloc("workspace", library_workspace, 0)
        sizes = {}
        for key, change in ledger.events:
            stream = ledger.origin[key][2]
            if key in sizes:
                self.release(key)
                sizes[key] += change
                if sizes[key]:
                    self.malloc(key, sizes[key], stream)
                else:
                    del sizes[key]
            else:
                sizes[key] = change
                self.malloc(key, change, stream)
        return self
