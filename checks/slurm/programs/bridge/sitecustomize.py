"""Stands in for the training of `megatron_bridge.py`, whose kernels need a GPU: its configuration is made, then the rank joins."""

import os
import sys
import types

if sys.orig_argv[-1].endswith("megatron_bridge.py") and "RANK" in os.environ:
    programs = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[:0] = [programs, os.path.dirname(os.path.dirname(programs))]
    import te_stub
    import torch

    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    te_stub.install(names=te_stub.BRIDGE)
    from joined import stand_in

    for name, function in (("pretrain", lambda *_, **__: stand_in()), ("gpt_step", None)):
        module = types.ModuleType(f"megatron.bridge.training.{name}")
        setattr(module, "pretrain" if function else "forward_step", function)
        sys.modules[module.__name__] = module
