"""A process group of any size with one process: each collective is answered at once, as if all ranks held what this rank holds.

Outputs have the shapes and finite contents that they have on rank 0 of a run, so that kernels, copies, allocations and host work of a rank
are a run's; time on links and waiting for others are absent. Reductions return this rank's part and do not sum.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future


def done(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class Loopback(dist.ProcessGroup):
    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.of, self.sent = size, {}

    def size(self):
        return self.of

    def getBackendName(self):
        return "loopback"

    @property
    def pg_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self):
        return self.pg_name

    def barrier(self, *_):
        return done(None)

    def allreduce(self, tensors, *_):
        return done(tensors)

    def allreduce_coalesced(self, tensors, *_):
        return done(tensors)

    def broadcast(self, tensors, *_):
        return done(tensors)

    def scatter(self, outputs, inputs, *_):
        for output, given in zip(outputs, inputs):
            output.copy_(given[0])
        return done(outputs)

    def allgather(self, outputs, inputs, *_):
        for parts, given in zip(outputs, inputs):
            for part in parts:
                part.copy_(given)
        return done(outputs)

    def _allgather_base(self, output, given, *_):
        output.view(self.of, -1).copy_(given.view(1, -1).expand(self.of, -1))
        return done(output)

    def allgather_into_tensor_coalesced(self, outputs, inputs, *_):
        for output, given in zip(outputs, inputs):
            self._allgather_base(output, given)
        return done(outputs)

    def reduce_scatter(self, outputs, inputs, *_):
        for output, parts in zip(outputs, inputs):
            output.copy_(parts[0])
        return done(outputs)

    def _reduce_scatter_base(self, output, given, *_):
        output.view(-1).copy_(given.view(self.of, -1)[0])
        return done(output)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, *_):
        for output, given in zip(outputs, inputs):
            self._reduce_scatter_base(output, given)
        return done(outputs)

    def alltoall_base(self, output, given, *_):
        count = min(len(output), len(given))
        output[:count].copy_(given[:count])
        return done(output)

    def alltoall(self, outputs, inputs, *_):
        for output, given in zip(outputs, inputs):
            count = min(output.numel(), given.numel())
            output.view(-1)[:count].copy_(given.view(-1)[:count])
        return done(outputs)

    def send(self, tensors, *_):
        self.sent |= {tuple(tensor.shape): tensor for tensor in tensors}
        return done(tensors)

    def recv(self, tensors, *_):
        for tensor in tensors:
            given = self.sent.get(tuple(tensor.shape))
            tensor.zero_() if given is None else tensor.copy_(given)
        return done(tensors)


def start(ranks):
    """Makes the default process group: rank 0 of `ranks`."""

    def group(store, rank, size, timeout):
        return Loopback(rank, size)

    dist.Backend.register_backend("loopback", group, devices=["cpu", "cuda"])
    store = dist.HashStore()
    dist.init_process_group("loopback", rank=0, world_size=ranks, store=store)


if __name__ == "__main__":
    start(8)
    import torch.distributed._functional_collectives as functional

    print(functional.reduce_scatter_tensor(torch.ones(8), "sum", 0, dist.group.WORLD) + 0)
    mesh = dist.device_mesh.init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    print(mesh["tp"].size(), functional.all_gather_tensor(torch.ones(2), 0, mesh["tp"]) + 0)
