"""The program that DeepSpeed and Accelerate leave to their user: a small Llama, two steps on gloo ranks."""

import json
import os
import sys

here = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [here, os.path.join(os.path.dirname(os.path.dirname(here)), "training")]
import on_cpu
from joined import joined

plan = json.loads(os.environ["PLAN"])
on_cpu.close = lambda report: joined(os.environ["FRAMEWORK"], [x for losses in report["losses"] for x in losses])
if os.environ["FRAMEWORK"] == "deepspeed":
    import on_deepspeed

    assert sys.argv[1:3] == ["--deepspeed", "--deepspeed_config"], sys.argv
    on_deepspeed.train(sys.argv[3], plan, int(os.environ["BATCH"]))
else:
    import on_accelerate

    on_accelerate.train(None, plan, int(os.environ["BATCH"]))
os._exit(0)
