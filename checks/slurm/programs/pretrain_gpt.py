"""Megatron's parser, groups, model, optimizer and schedules for the arguments of a launch script: two steps on gloo ranks."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(os.path.dirname(os.path.dirname(here)), "training")]
import on_cpu
import on_megatron
from joined import joined

on_cpu.close = lambda report: joined("megatron", [x for losses in report["losses"] for x in losses])
on_megatron.train(sys.argv[1:])
os._exit(0)
