"""Stands in for Megatron's program where the launch alone is judged: it joins."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from joined import stand_in

stand_in()
