#!/usr/bin/env python3
"""Run one check_*.py over many files, importing the heavy framework once (fork per file).

  check_many.py --checker check_megatron.py [--jobs 2] [--path DIR] [--extra "--level config"] [--world-map m.json] FILES...
Prints one JSON line per file; exits 1 if any was rejected.  --world-map: {"file": world_size}.
"""
import argparse, io, json, os, runpy, shlex, sys, traceback
ap = argparse.ArgumentParser()
ap.add_argument("--checker", required=True); ap.add_argument("--jobs", type=int, default=2)
ap.add_argument("--path"); ap.add_argument("--extra", default=""); ap.add_argument("--world-map"); ap.add_argument("--options-map")
ap.add_argument("--timeout", type=int, default=300)
ap.add_argument("files", nargs="+")
o = ap.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
chk = o.checker if os.path.exists(o.checker) else os.path.join(here, o.checker)
if o.path: sys.path.insert(0, os.path.abspath(o.path))
PRE = {"check_megatron.py": ["torch", "megatron.training.arguments", "megatron.training.training", "megatron.core.models.gpt.gpt_model",
                             "megatron.core.models.gpt.gpt_layer_specs", "megatron.core.parallel_state",
                             "torch.testing._internal.distributed.fake_pg"],
       "check_deepspeed.py": ["torch", "deepspeed"],
       "check_accelerate.py": ["torch", "accelerate", "accelerate.commands.launch"],
       "check_torchtitan.py": ["torch", "torchtitan.config"]}
so = sys.stdout; sys.stdout = io.StringIO()
for m in PRE.get(os.path.basename(chk), []):
    try: __import__(m)
    except Exception as e: print(f"preload {m}: {e}", file=sys.stderr)
sys.stdout = so
wm = json.load(open(o.world_map)) if o.world_map else {}
om = json.load(open(o.options_map)) if o.options_map else {}
bad, live = 0, {}


def start(f):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r); os.dup2(w, 1); sys.stdout = os.fdopen(1, "w", closefd=False)
        dn = os.open(os.devnull, os.O_WRONLY); os.dup2(dn, 2)
        import signal; signal.alarm(o.timeout)
        sys.argv = [chk, f, *(["--world-size", str(wm[f])] if f in wm else []), *shlex.split(o.extra), *shlex.split(om.get(f, ""))]
        rc = 0
        try: runpy.run_path(chk, run_name="__main__")
        except SystemExit as e: rc = e.code if isinstance(e.code, int) else (0 if e.code is None else 2)
        except BaseException: print(json.dumps({"accepted": False, "error": traceback.format_exc()[-1500:]})); rc = 3
        sys.stdout.flush(); os._exit(rc)
    os.close(w); live[pid] = (f, r)


def drain():
    global bad
    pid, st = None, None
    # read everything from the oldest child first (small outputs), then reap it
    pid = next(iter(live)); f, r = live.pop(pid)
    data = b""
    while True:
        b = os.read(r, 65536)
        if not b: break
        data += b
    os.close(r); _, st = os.waitpid(pid, 0); rc = os.waitstatus_to_exitcode(st)
    try:
        d = json.loads(data[data.index(b"{"):])
    except Exception: d = {"accepted": False, "error": f"no report, rc={rc}: " + data[-300:].decode(errors="replace")}
    if rc != 0: bad += 1
    print(json.dumps({"file": f, "rc": rc, **d}, default=str), flush=True)


for f in o.files:
    if len(live) >= o.jobs: drain()
    start(f)
while live: drain()
sys.exit(1 if bad else 0)
