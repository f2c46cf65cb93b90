"""A rank that has joined: what it is, written to $RANKS."""

import json
import os
import socket


def joined(how, losses=()):
    """Writes this rank's report; `how` says which code ran."""
    import torch.distributed as dist

    report = {
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "host": os.environ.get("SLURMD_NODENAME"),
        "name": socket.gethostname(),
        "local": int(os.environ["LOCAL_RANK"]),
        "how": how,
        "losses": list(losses),
    }
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "0")
    with open(os.path.join(os.environ["RANKS"], f"rank-{task}-{report['rank']}.json"), "w") as file:
        json.dump(report, file)


def stand_in():
    """Joins by the environment that the launcher made, and adds up the ranks: every one must have come."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    world = dist.get_world_size()
    assert total.item() == world * (world - 1) / 2, total
    joined("stand-in")
    dist.barrier()
