"""Stand-ins for what OLMo-core's source imports and neither a CPU nor the Python registry has."""

import importlib.util
import sys
import types


def stand_in(name, **names):
    """A module with these names."""
    module = types.ModuleType(name)
    module.__dict__.update(names)
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    module.__path__ = []
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    return module


def modules():
    """Packages that its modules name."""
    for name, names in {
        "cached_path": {"cached_path": None},
        "cached_path.schemes": {
            "S3Client": type("S3Client", (), {"recoverable_errors": ()}),
            "SchemeClient": object,
            "add_scheme_client": lambda client: None,
        },
        "bettermap": {"ordered_map_per_process": None, "ordered_map_per_thread": None},
        "importlib_resources": {"files": None},
        "flash_attn": {"__version__": "2.7.4"},
        "ring_flash_attn": {},
        "hopper": {},
    }.items():
        try:
            if importlib.util.find_spec(name):
                continue
        except ValueError:
            pass
        stand_in(name, **names)
