"""Stand-in for the random states that Megatron keeps of each GPU."""

import contextlib
import types


def nothing(*_, **__):
    pass


def without_random_states(random):
    """Megatron's module of random states keeps none: those of a GPU are not there."""
    random._CUDA_RNG_STATE_TRACKER = types.SimpleNamespace(
        fork=contextlib.nullcontext,
        is_initialized=lambda: True,
        get_states=dict,
        set_states=nothing,
        add=nothing,
        reset=nothing,
    )
    random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
