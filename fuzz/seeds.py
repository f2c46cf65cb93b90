"""Seeds of the fuzz targets, from the files of the project: `seeds.py FOLDER`."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = pathlib.Path(sys.argv[1])

def seeds(target, pattern, most=12, prefix=b""):
    folder = OUT / target
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(ROOT.glob(pattern))[:most]:
        data = path.read_bytes()
        if path.is_file() and len(data) <= 60_000:
            (folder / path.name).write_bytes(prefix + data)

seeds("model", "models/*.toml", 40)
seeds("cluster", "clusters/*.toml", 40)
seeds("gpu", "clusters/gpus/*.toml")
seeds("stack", "clusters/stacks/*.toml", 40)
seeds("market", "clusters/prices/*.toml")
seeds("sweep_file", "clusters/sweeps/*.toml")
seeds("hf_config", "tests/hf/*.json", 80)
seeds("training_log", "tests/logs/*.log")
seeds("launch_file", "docs/examples/**/*.sh", prefix=b"0")
seeds("launch_file", "checks/**/*.py", prefix=b"1")
for number, pattern in enumerate(["tests/**/*.yaml", "tests/**/*.toml", "tests/**/*.json"]):
    seeds("launch_file", pattern, prefix=str(number + 2).encode())
for target in ["runs_csv", "plan_text", "question", "emitted"]:
    (OUT / target).mkdir(parents=True, exist_ok=True)
for path in sorted((ROOT / "tests").glob("**/*.csv"))[:6]:
    lines = path.read_bytes().splitlines(keepends=True)[:5]
    (OUT / "runs_csv" / path.name).write_bytes(b"".join(lines))
