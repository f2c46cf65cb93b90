#!/usr/bin/env python3
"""Does ms-swift itself accept this emitted script?   (CPU only; a stand-in of its command takes what the script gives it)

  check_ms_swift.py ms_swift.sh --ms-swift-path CHECKOUT [--world-size N]

Levels: parse   the declarations of its arguments for Megatron core, by the parser that it uses (HfArgumentParser): names, types, choices;
                what is left must be declared by its arguments for data and templates
        sizes   its own methods for virtual stages and for the batch, on as many ranks as the environment of the script says
Its package is not installed (it asks for ModelScope, Megatron core, apex): the classes are taken from its source without what runs after parsing.
"""
import argparse, ast, dataclasses, enum, json, math, os, stat, subprocess, sys, tempfile, traceback, types, typing
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fmt_common as fc
ap = argparse.ArgumentParser()
ap.add_argument("file"); ap.add_argument("--ms-swift-path", required=True)
ap.add_argument("--world-size", type=int, default=8); ap.add_argument("--verbose", action="store_true")
o = ap.parse_args()
out = {"framework": "ms-swift", "levels": {}}
KEPT = {"_init_vpp_size", "_init_distributed"}
SET = {"MODEL": "Qwen/Qwen3-8B", "DATASET": "AI-ModelScope/alpaca-gpt4-data-en", "OUTPUT": "out", "NODE_RANK": "0", "MASTER_ADDR": "localhost"}


def fail(level, e):
    out["levels"][level] = "REJECTED"
    out["error"] = {"level": level, "type": type(e).__name__, "message": str(e)[:2000]}
    if o.verbose: traceback.print_exc()
    fc.report(False, out)


def launched():
    """Arguments and environment that the script gives to `megatron`."""
    with tempfile.TemporaryDirectory() as folder:
        stub = os.path.join(folder, "megatron")
        with open(stub, "w") as f:
            f.write(f"#!{sys.executable}\nimport json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], open({os.path.join(folder, 'said')!r}, 'w'))\n")
        os.chmod(stub, os.stat(stub).st_mode | stat.S_IXUSR)
        done = subprocess.run(["bash", os.path.abspath(o.file)], env={**os.environ, **SET, "PATH": folder + os.pathsep + os.environ["PATH"]}, capture_output=True, text=True)
        if done.returncode: raise ValueError(done.stderr.strip())
        return json.load(open(os.path.join(folder, "said")))


def declared():
    """MegatronArguments of the source, as a dataclass with the methods that are asked here."""
    tree = ast.parse(open(os.path.join(o.ms_swift_path, "swift/megatron/arguments/megatron_args.py")).read())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in classes:
        node.body = [part for part in node.body if not isinstance(part, ast.FunctionDef) or part.name in KEPT]
    import torch
    _ = typing.Optional[typing.Union[typing.List[str], str]]       # typing keeps the order that it sees first, and the parser takes the second
    space = {"dataclass": dataclasses.dataclass, "field": dataclasses.field, "torch": torch, "Literal": typing.Literal, "Optional": typing.Optional,
             "Union": typing.Union, "List": typing.List, "Dict": typing.Dict, "Any": typing.Any, "Tuple": typing.Tuple, "os": os, "math": math,
             "initialize_megatron": lambda args: setattr(args, "world_size", o.world_size), "__name__": "megatron_args"}
    sys.modules["megatron_args"] = types.ModuleType("megatron_args")
    exec(compile(ast.Module(classes, []), "megatron_args.py", "exec"), space)
    sys.modules["megatron_args"].__dict__.update(space)
    return space["MegatronArguments"]


def others():
    """Names of the arguments that its other classes declare."""
    names = set()
    for folder in ("swift/arguments/base_args", "swift/arguments", "swift/megatron/arguments"):
        for name in os.listdir(os.path.join(o.ms_swift_path, folder)):
            if name.endswith(".py"):
                for node in ast.walk(ast.parse(open(os.path.join(o.ms_swift_path, folder, name)).read())):
                    if isinstance(node, ast.ClassDef):
                        names |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}
    return names


stdout, sys.stdout = sys.stdout, sys.stderr
try:
    words, environment = launched()
    if words[0] != "sft": raise ValueError(f"`megatron {words[0]}` is launched")
    from transformers import HfArgumentParser
    kind = declared()
    twice = [word for word in words if word.startswith("--") and words.count(word) > 1]
    if twice: raise ValueError(f"given twice: {sorted(set(twice))}")
    # Arguments of other classes stand apart: without theirs, the parser would take them for the beginnings of these.
    fields, own, left = {field.name for field in dataclasses.fields(kind)}, [], []
    for word in words[1:]:
        to = (own if word[2:] in fields else left) if word.startswith("--") else to
        to.append(word)
    args, = HfArgumentParser(kind).parse_args_into_dataclasses(own)
    known = others()
    unknown = [word for word in left if word.startswith("--") and word[2:] not in known]
    if unknown: raise ValueError(f"arguments that it does not have: {unknown}")
    sequence = int(left[left.index("--max_length") + 1])
    out["levels"]["parse"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("parse", e)
try:
    world = int(environment["NPROC_PER_NODE"]) * int(environment.get("NNODES", "1"))
    if world != o.world_size: raise ValueError(f"the script starts {world} ranks, the plan has {o.world_size}")
    if args.pipeline_model_parallel_layout is None: args._init_vpp_size()
    args._init_distributed()
    if args.recompute_granularity == "selective" and args.recompute_method is not None: raise ValueError("recompute method beside selective recomputation")
    if args.tp_comm_overlap and not args.sequence_parallel: raise ValueError("tp_comm_overlap wants sequence_parallel")
    out["sizes"] = {"tp": args.tensor_model_parallel_size, "cp": args.context_parallel_size, "pp": args.pipeline_model_parallel_size,
                    "dp": args.data_parallel_size, "ep": args.expert_model_parallel_size, "etp": args.expert_tensor_parallel_size,
                    "micro_batch": args.micro_batch_size, "global_batch": args.global_batch_size, "seq": sequence,
                    "zero_stage": int(args.use_distributed_optimizer), "num_microbatches": args.num_microbatches}
    out["levels"]["sizes"] = "ok"
except (Exception, SystemExit) as e:
    sys.stdout = stdout
    fail("sizes", e)
sys.stdout = stdout
fc.report(True, out)
