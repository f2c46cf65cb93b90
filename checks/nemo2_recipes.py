#!/usr/bin/env python3
"""Compares what `import` reads of NeMo 2's recipes with the recipes themselves, run here.

    python3 checks/nemo2_recipes.py CLONE [--meshwright BINARY] [--show]

CLONE is a clone of NeMo; it is not committed. Every recipe of `nemo/collections/llm/recipes` is called as it stands, on four nodes, and
with `performance_mode=True`, where it takes that: its own code runs on stand-ins for everything else, and degrees, batches, sequence and
GPUs are taken from the objects that it gives. `import` reads a file with the same call, without and with `--run-python`. Exits 1 where
one of them differs, or where a reading has an error that names none of the settings.
"""

import argparse
import collections
import concurrent.futures
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import types

FOLDER = "nemo/collections/llm/recipes"
DATA = {"seq_length": 2048, "micro_batch_size": 4, "global_batch_size": 8}  # defaults of NeMo's modules of data
LACKS = ("missing-flag", "no-model")  # a model that the catalogue lacks


class Part:
    """`run.Config(…)` or `run.Partial(…)`: what it was given, and what is set on it."""

    def __init__(self, made=None, *more, **given):
        self.__dict__.update(given, made=made, more=more)

    def __class_getitem__(cls, of):
        return cls


class Name(type):
    """A class of NeMo's or of another library, of which only the name counts."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name, (), {})

    def __call__(cls, *given, **more):
        if len(given) == 1 and not more and isinstance(given[0], types.FunctionType):
            return given[0]  # a decorator
        return cls if not given else Part(cls, **more)

    def __getitem__(cls, key):
        return Name(str(key), (), {})


class Absent(types.ModuleType):
    """A module that is not here."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return (
            {"Config": Part, "Partial": Part}.get(name)
            if self.__name__ == "nemo_run" and name in ("Config", "Partial")
            else Name(name, (), {})
        )


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Recipes of the clone, and stand-ins for modules that Python has not."""

    def __init__(self, clone):
        self.clone = clone

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.stdlib_module_names:
            return None
        file = os.path.join(self.clone, *name.split("."))
        for own in (file + ".py", os.path.join(file, "__init__.py")):
            if name.startswith(FOLDER.replace("/", ".") + ".") and os.path.isfile(own):
                return importlib.util.spec_from_file_location(
                    name, own, submodule_search_locations=[file] if own.endswith("__init__.py") else None
                )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        if module.__name__ == FOLDER.replace("/", "."):
            module.__path__ = [os.path.join(self.clone, FOLDER)]


def facts(recipe):
    """Degrees, batches, sequence and GPUs of a recipe's objects."""
    strategy, trainer, data = recipe.trainer.strategy, recipe.trainer, recipe.data
    of = lambda name, default=1: getattr(strategy, name, None) or default
    size = lambda name: getattr(data, name, None) or DATA[name]
    tp = of("tensor_model_parallel_size")
    return {
        "tp": tp,
        "pp": of("pipeline_model_parallel_size"),
        "cp": of("context_parallel_size"),
        "ep": of("expert_model_parallel_size"),
        "vpp": of("virtual_pipeline_model_parallel_size"),
        "sp": tp > 1 and bool(of("sequence_parallel", False)),
        "world": trainer.num_nodes * trainer.devices,
        "mbs": size("micro_batch_size"),
        "batch": size("global_batch_size"),
        "seq": size("seq_length"),
    }


def read(binary, file, *more):
    """Facts that `import` reads of a file, and its errors; no facts where it refuses the file."""
    done = subprocess.run(
        [binary, "import", file, *more, "--format", "json", "--", "--config", "called"], capture_output=True, text=True
    )
    if not done.stdout:
        return None, (done.stderr.strip().splitlines() or ["no answer"])[0]
    answer = json.loads(done.stdout)
    errors = [finding for finding in answer["findings"] if finding["level"] == "error"]
    plan = dict(word.split("=", 1) for word in answer["plan_text"].split())
    number = lambda name: int(plan.get(name, 1))
    found = {name: number(name) for name in ("tp", "pp", "cp", "ep", "vpp", "mbs")}
    found |= {
        "sp": plan.get("sp") == "on",
        "world": answer["world"],
        "batch": answer["work"]["global_batch"],
        "seq": answer["work"]["seq_len"],
    }
    if not answer["model"]:
        found.pop("ep")  # experts are the model's
    return found, errors


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("clone")
    ap.add_argument("--meshwright", default="target/debug/meshwright")
    ap.add_argument("--show", action="store_true")
    o = ap.parse_args()
    clone, binary = os.path.abspath(o.clone), os.path.abspath(o.meshwright)
    sys.meta_path.insert(0, Finder(clone))
    calls, counts, wrong = [], collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(clone, "nemo"), os.path.join(folder, "nemo"))
        for name in sorted(os.listdir(os.path.join(clone, FOLDER))):
            if not name.endswith(".py") or name == "__init__.py":
                continue
            module = importlib.import_module(f"{FOLDER.replace('/', '.')}.{name[:-3]}")
            for function in ("pretrain_recipe", "pretrain_recipe_performance", "finetune_recipe"):
                recipe = vars(module).get(function)
                takes = inspect.signature(recipe).parameters if isinstance(recipe, types.FunctionType) else {}
                for given in ("", "num_nodes=4", "performance_mode=True", "num_nodes=4, performance_mode=True"):
                    if not takes or not all(word.split("=")[0].strip() in takes for word in given.split(",") if word):
                        continue
                    call = f"{name[:-3]}.{function}({given})"
                    file = os.path.join(folder, f"call{len(calls)}.py")
                    with open(file, "w") as out:
                        out.write(
                            f"import nemo_run as run\nfrom {FOLDER.replace('/', '.')} import {name[:-3]}\n\n\n"
                            f"def called() -> run.Partial:\n    return {call}\n"
                        )
                    try:
                        given = eval(call, {name[:-3]: module})
                        expected, why = facts(given), ""
                    except Exception as error:  # what NeMo itself cannot make has no facts
                        expected, why = None, f"{type(error).__name__}: {error}"
                    calls.append((call, file, expected, why))

        def both(item):
            return item, read(binary, item[1]), read(binary, item[1], "--run-python")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (call, _, expected, why), *readings in pool.map(both, calls):
                for way, (found, errors) in zip(("followed", "run"), readings):
                    if found is None or expected is None:
                        kind = (
                            "refused" if found is None else "errors named" if errors else "read, and Python makes none"
                        )
                        wrong += kind.startswith("read")
                        differ = {}
                    else:
                        differ = {
                            name: (value, expected[name]) for name, value in found.items() if value != expected[name]
                        }
                        lacks = bool(errors) and all(error["rule"] in LACKS for error in errors)
                        kind = "read" if not errors else "read, model not in the catalogue" if lacks else "errors named"
                        if differ and kind != "errors named":
                            kind, wrong = "WRONG", wrong + 1
                    counts[way, kind] += 1
                    if kind == "WRONG" or o.show and not kind.startswith("read"):
                        messages = errors if isinstance(errors, str) else [error["message"] for error in errors][:3]
                        print(f"{kind}, {way}: {call}: {differ} {why} {messages}")
    for way in ("followed", "run"):
        print(
            f"{way}: {len(calls)} calls: "
            + ", ".join(f"{count} {kind}" for (of, kind), count in sorted(counts.items()) if of == way)
        )
    print(f"{wrong} wrong")
    sys.exit(1 if wrong or not calls else 0)


if __name__ == "__main__":
    main()
