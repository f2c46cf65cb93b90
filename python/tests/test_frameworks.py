"""Objects that `meshwright.bridge` makes, before the frameworks' own classes.

$MESHWRIGHT_FRAMEWORKS names a Python that has the frameworks (checks/environment.sh installs one); without it nothing here runs. The package
under test is put on its path, and checks/ has what hands a configuration to a framework.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import meshwright as mw

CHECKS = Path(__file__).parents[2] / "checks"
PYTHON = os.environ.get("MESHWRIGHT_FRAMEWORKS", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="MESHWRIGHT_FRAMEWORKS names no Python with the frameworks")
WORLD = 512

MEGATRON = """
import megatron_bridge as recipe
import meshwright as mw
import meshwright.bridge

def applied():
    plan = mw.explain("llama3-8b", "h100-512", plan="tp=2 pp=4 vpp=2 zero=1 mbs=1 recompute=full", global_batch=1024)
    return mw.bridge.apply(plan, getattr(recipe, "{function}")())
"""

TORCHTITAN = """
import meshwright as mw
import meshwright.bridge

def plan(text):
    return mw.explain("llama3-8b", "h100-512", plan=text, stack="torchtitan-2025", global_batch=1024, seq_len=8192)

def whole():
    return mw.bridge.torchtitan(plan("tp=2 sp=on pp=4 schedule=1f1b zero=0 mbs=1"))

def applied():
    from torchtitan.models.llama3.config_registry import llama3_8b
    cfg = llama3_8b()
    before = cfg.training.steps, cfg.dataloader, cfg.model_spec, cfg.optimizer
    assert mw.bridge.apply(plan("tp=4 sp=on zero=3 mbs=2 recompute=full"), cfg) is cfg
    assert before == (cfg.training.steps, cfg.dataloader, cfg.model_spec, cfg.optimizer)
    assert type(cfg.activation_checkpoint).__qualname__ == "FullAC.Config", cfg.activation_checkpoint
    return cfg
"""

ACCELERATE = """
import json
import os
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import accelerate
from accelerate.state import PartialState
from accelerate.utils import DistributedType
import meshwright as mw
import meshwright.bridge

plan = mw.explain("llama3-8b", "h100-512", plan="tp=2 sp=off zero=3 mbs=1 recompute=full", stack="automodel-2025", global_batch=1024)
arguments = mw.bridge.accelerate(plan)
world = dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="512", LOCAL_WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
os.environ.update(world, ACCELERATE_TORCH_DEVICE="cpu")
# one process that stands for 512; FSDP asks for a GPU before it loads weights
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=512)
PartialState._prepare_backend = lambda self, *a, **k: ("fake", DistributedType.MULTI_GPU)
torch.cuda.is_available = lambda: True
torch.cuda.current_device = lambda: torch.device("cpu")
import accelerate.utils.dataclasses
accelerate.utils.dataclasses.is_cuda_available = lambda: True
found = accelerate.Accelerator(**arguments)
plugin, mesh = found.state.fsdp_plugin, found.parallelism_config
print(json.dumps({
    "accumulation": found.gradient_accumulation_steps, "precision": found.mixed_precision, "version": plugin.fsdp_version,
    "checkpointing": plugin.activation_checkpointing, "reshard": plugin.reshard_after_forward,
    "shard": mesh.dp_shard_size, "replicate": mesh.dp_replicate_size, "tp": mesh.tp_size,
}))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder that has the package under test and nothing else."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "meshwright").symlink_to(Path(mw.__file__).parent)
    return str(folder)


def asked(folder: Path, package: str, *arguments: str) -> Any:
    """JSON that a Python with the frameworks prints."""
    environment = {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    run = subprocess.run(
        [PYTHON, "-W", "ignore", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0 and "{" in run.stdout, run.stdout[-3000:] + run.stderr[-3000:]
    return json.loads(run.stdout[run.stdout.index("{") :])


def judged(folder: Path, package: str, check: str, *arguments: str) -> Any:
    """Verdict of a check."""
    return asked(folder, package, str(CHECKS / check), *arguments)


def test_megatron_bridge_takes_the_recipe(tmp_path: Path, package: str) -> None:
    base = mw.explain("llama3-8b", "h100-512", plan="tp=1 zero=1 mbs=2", global_batch=1024)
    files = mw.emit(base, "megatron-bridge", steps=100).files
    (tmp_path / "megatron_bridge.py").write_text(files["megatron_bridge.py"], encoding="utf-8")
    (tmp_path / "recipe.py").write_text(MEGATRON.format(function="config"), encoding="utf-8")
    (tmp_path / "run.py").write_text(
        "from recipe import applied as _applied\ndef applied():\n    return _applied()\n", encoding="utf-8"
    )
    found = judged(tmp_path, f"{package}:{tmp_path}", "check_megatron_bridge.py", "run.py", "--world-size", str(WORLD))
    assert found["levels"] == {"load": "ok", "finalize": "ok"}, found


@pytest.mark.parametrize(("function", "tp", "pp"), [("whole", 2, 4), ("applied", 4, 1)])
def test_torchtitan_takes_the_configuration(function: str, tp: int, pp: int, tmp_path: Path, package: str) -> None:
    (tmp_path / "recipe.py").write_text(TORCHTITAN, encoding="utf-8")
    arguments = ("recipe.py", "--config", function, "--world-size", str(WORLD), "--level", "mesh")
    found = judged(tmp_path, package, "check_torchtitan.py", *arguments)
    assert found["levels"] == {"parse": "ok", "mesh": "ok"}, found
    assert (found["resolved"]["tp"], found["resolved"]["pp"]) == (tp, pp)
    assert found["sizes"]["training"]["global_batch_size"] == 1024


def test_deepspeed_takes_the_dict(tmp_path: Path, package: str) -> None:
    import meshwright.bridge

    plan = mw.explain("llama3-8b", "h100-512", plan="tp=1 zero=2 mbs=1", stack="deepspeed-2024", global_batch=1024)
    (tmp_path / "ds.json").write_text(json.dumps(meshwright.bridge.deepspeed(plan)), encoding="utf-8")
    found = judged(tmp_path, package, "check_deepspeed.py", "ds.json", "--world-size", str(WORLD), "--level", "config")
    assert found["levels"] == {"config": "ok"}, found


def test_accelerate_builds_the_accelerator(tmp_path: Path, package: str) -> None:
    (tmp_path / "accelerator.py").write_text(ACCELERATE, encoding="utf-8")
    found = asked(tmp_path, package, "accelerator.py")
    assert found == {
        "accumulation": 4,
        "precision": "bf16",
        "version": 2,
        "checkpointing": True,
        "reshard": True,
        "shard": 256,
        "replicate": 1,
        "tp": 2,
    }


def test_configs_of_transformers_are_models(tmp_path: Path, package: str) -> None:
    script = """
import json
import sys
import meshwright as mw
heavy = {"torch", "transformers"} & set(sys.modules)
import transformers
config = transformers.LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                                  num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048)
experts = transformers.MixtralConfig(hidden_size=1024, intermediate_size=3584, num_hidden_layers=8, num_attention_heads=16)
print(json.dumps({"heavy": sorted(heavy), "llama": mw.budget(config).parameters["total"],
                  "plans": len(mw.plan(config, "dgx-h100-8").plans), "experts": mw.budget(experts).parameters,
                  "saved": json.loads(config.to_json_string())}))
"""
    (tmp_path / "models.py").write_text(script, encoding="utf-8")
    found = asked(tmp_path, package, "models.py")
    # TinyLlama 1.1B, as its authors count it
    assert found["heavy"] == [] and found["llama"] == 1_100_048_384 and found["plans"] > 0
    assert found["experts"]["total"] > found["experts"]["active"] > 0
    assert mw.budget(found["saved"]).parameters["total"] == found["llama"]
