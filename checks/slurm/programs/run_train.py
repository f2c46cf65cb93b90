"""Stands in for nanotron's program, whose kernels need a GPU: `run_train.py --config-file nanotron.yaml`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from joined import stand_in

assert sys.argv[1] == "--config-file" and os.path.isfile(sys.argv[2]), sys.argv
stand_in()
