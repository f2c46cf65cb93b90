#!/usr/bin/env python3
"""Does MaxText itself accept this emitted configuration?   (CPU only)

  check_maxtext.py FILE --world-size N --maxtext-path CHECKOUT [--level config]

FILE  maxtext.yml, or the launch script beside it. MaxText's own `pyconfig.initialize` reads it over its base.yml, on N made-up
      devices: unknown keys, types, sizes of the mesh against the devices, batches. Packages that reading a configuration does not
      use (Google Cloud, Pathways, TensorFlow) have stand-ins. Needs jax, omegaconf, pydantic and jinja2.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import math
import os
import re
import sys
import tempfile
import types

ap = argparse.ArgumentParser()
ap.add_argument("file")
ap.add_argument("--world-size", type=int, required=True)
ap.add_argument("--maxtext-path", required=True)
ap.add_argument("--level", default="config")
o = ap.parse_args()
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={o.world_size}"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.join(os.path.abspath(o.maxtext_path), "src"))
ABSENT = (
    "pathwaysutils",
    "tensorflow",
    "tensorboardX",
    "google",
    "grain",
    "datasets",
    "transformers",
    "qwix",
    "aqt",
    "drjax",
    "tokamax",
    "ml_goodput_measurement",
    "cloud_tpu_diagnostics",
    "jetstream",
)


class Anything(types.ModuleType):
    """A module that has every name."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Anything(f"{self.__name__}.{name}"))
        return self.__dict__[name]

    def __call__(self, *a, **k):
        return self

    def __or__(self, other):
        return self

    def __ror__(self, other):
        return self

    def __mro_entries__(self, bases):
        return (object,)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ABSENT else None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(StandIns())
path = (
    os.path.join(os.path.dirname(os.path.abspath(o.file)), "maxtext.yml")
    if o.file.endswith(".sh")
    else os.path.abspath(o.file)
)
out = {"framework": "maxtext", "levels": {}, "world_size": o.world_size}
saved, sys.stdout = sys.stdout, sys.stderr
try:
    from maxtext.configs import pyconfig
    from maxtext.utils import max_utils

    across = math.prod(int(size) for size in re.findall(r"^dcn_\w+_parallelism: (\d+)", open(path).read(), re.M))
    max_utils.get_num_slices = lambda raw: across  # devices of a CPU lie in no slice
    with tempfile.TemporaryDirectory() as folder:
        config = pyconfig.initialize(
            ["train.py", path, f"base_output_directory={folder}", "skip_jax_distributed_system=true"]
        )
    sizes = {
        name: getattr(config, f"ici_{name}_parallelism") * getattr(config, f"dcn_{name}_parallelism")
        for name in ("data", "fsdp", "expert", "context", "tensor", "tensor_sequence")
    }
    world = math.prod(sizes.values())
    assert world == o.world_size == config.num_target_devices, (
        f"axes {sizes} of {world} devices, {config.num_target_devices} there"
    )
    assert math.prod(config.ici_parallelism) * math.prod(config.dcn_parallelism) == world, "another axis is over 1"
    out["sizes"] = {
        "tp": sizes["tensor"] * sizes["tensor_sequence"],
        "cp": sizes["context"],
        "pp": 1,
        "ep": sizes["expert"],
        "dp": sizes["data"] * sizes["fsdp"] * sizes["expert"],
    }
    out["sizes"]["micro_batch"] = config.micro_batch_size_to_train_on / out["sizes"]["dp"]
    out["sizes"]["global_batch"] = config.global_batch_size_to_train_on
    out["levels"]["config"] = "ok"
except (Exception, SystemExit) as error:
    out["levels"]["config"] = "REJECTED"
    out["error"] = {"level": "config", "type": type(error).__name__, "message": str(error)[:2000], "where": None}
sys.stdout = saved
print(json.dumps(out))
sys.exit("error" in out)
