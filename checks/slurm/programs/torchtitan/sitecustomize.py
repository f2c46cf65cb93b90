"""Lets `python -m torchtitan.train` run on gloo ranks: two steps, and each rank says that it joined."""

import os
import sys

if "torchtitan.train" in sys.orig_argv and "RANK" in os.environ:
    programs = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.path[:0] = [programs, os.path.join(os.path.dirname(os.path.dirname(programs)), "training")]
    import torch

    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    import on_cpu
    import on_torchtitan
    from joined import joined

    on_cpu.barriers()
    on_cpu.exchanges()
    from torchtitan.config import ConfigManager
    from torchtitan.trainer import Trainer

    parse, train = ConfigManager.parse_args, Trainer.train

    def parsed(self, *args, **kwargs):
        config = parse(self, *args, **kwargs)
        on_torchtitan.stand_in(config)
        config.training.steps = 2
        return config

    def trained(self):
        losses, one = [], self.forward_backward_step

        def step(**batch):
            loss = one(**batch)
            losses.append(float(loss.detach().sum()))
            return loss

        self.forward_backward_step = step
        train(self)
        joined("torchtitan", losses)
        os._exit(0)

    ConfigManager.parse_args, Trainer.train = parsed, trained
