"""Runs a configuration written in Python and records what it sets; started by `--run-python` as `python3 -I -S -B -c`.

Standard input: {"file", "text", "function", "seconds"}. Standard output: one JSON object, {"value", "unread"} or {"error", "line"}.

Modules of the clone (beside the file, in the working directory and in the folders above) run without their classes; those of the standard library are themselves; every other module
is a stand-in. An object of a class that is not here, and of a clone's, keeps what it was made with and what is set on it, with lines.
"""
import __future__
import ast, builtins, dataclasses, enum, importlib, importlib.abc, importlib.machinery, json, os, sys, tempfile, types

CALLED = "()"
MOST_VALUES = 200_000
FOLDERS_ABOVE = 8
ANSWERED = []
CLONES = {}                                                        # files of the clone that run, as imports name them
STANDARD = sys.stdlib_module_names - {"test"}


def line_here():
    """Line of the file that is read whose statement runs, however deep the calls below it."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == FILE:
            return frame.f_lineno
        frame = frame.f_back
    return 1


def unread():
    """Notes the statement that runs as one whose effect only the framework knows: that of the innermost file that is not a stand-in."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == FILE or file in CLONES:
            UNREAD.add(("" if file == FILE else CLONES[file], frame.f_lineno))
            return
        frame = frame.f_back


class Unknown(Exception):
    """A value that only the framework knows, where Python must have it."""


class Undecided:
    """Result of comparing such a value: false and noted; its negation (`!=`, `not`) is true."""

    def __bool__(self):
        unread()
        return False


class Named:
    """A name of a module that is not here."""

    def __init__(self, path):
        object.__setattr__(self, "path", path)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(f"{self.path}.{name}")

    def __setattr__(self, name, value):
        unread()

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return args[0]                                         # a decorator
        last = self.path.rsplit(".", 1)[-1].lstrip("_")
        if args and isinstance(args[0], Made) and not last[:1].isupper():
            unread()                                               # what it does with the configuration is not known
            return args[0]
        return Made(self.path, args, kwargs)

    def __getitem__(self, key):
        return self

    def __mro_entries__(self, bases):
        return (Made,) if not any(isinstance(base, type) and issubclass(base, Made) for base in bases) else ()

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __eq__(self, other):
        return isinstance(other, Named) and other.path == self.path

    def __hash__(self):
        return hash(self.path)

    def __iter__(self):
        raise Unknown(self.path)

    def __str__(self):
        unread()
        return self.path

    def __bool__(self):
        unread()
        return False


def operator(name):
    """An operator of what is not known: numbers stay unknown, comparisons are undecided, and the rest cannot go on."""
    def run(self, *_):
        if name in ("lt", "le", "gt", "ge"):
            return Undecided()
        if name in ("int", "float", "index", "len", "iter"):
            raise Unknown(self._path)
        return Made(None, (), {})
    return run


class Made:
    """An object of a class that is not here: what it was made with, and what is set on it."""

    defaults = {}

    def __init__(self, *args, **kwargs):
        called = type(self).__name__
        if type(self) is Made:
            called, args, kwargs = args[0], args[1], args[2]
        put = object.__setattr__
        put(self, "_called", called)
        put(self, "_path", called)
        put(self, "_entries", {})
        put(self, "_above", None)
        line = line_here()
        for at, value in enumerate(args):
            self._entries[str(at)] = (value, line)
        for name, value in kwargs.items():
            self._entries[name] = (value, line)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._entries:
            return self._entries[name][0]
        if name in type(self).defaults:
            return type(self).defaults[name]
        part = Made(None, (), {})
        object.__setattr__(part, "_path", f"{self._path}.{name}")
        object.__setattr__(part, "_above", (self, name))
        return part

    def __setattr__(self, name, value):
        kept(self)
        self._entries[name] = (value, line_here())
        if is_hole(value):
            unread()

    def __setitem__(self, name, value):
        self.__setattr__(str(name), value)

    def __getitem__(self, name):
        return self.__getattr__(str(name))

    def __delattr__(self, name):
        self._entries.pop(name, None)

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return args[0]
        if self._above is None:
            return Made(self._path, args, kwargs)
        owner, name = self._above
        if owner._called is None:                                  # a method of something that was never made
            unread()
            return Made(f"{owner._path}.{name}", args, kwargs)
        if owner._above is None and owner._called.rsplit(".", 1)[-1][:1].isupper() and (args or not owner._entries):
            unread()                                               # `cfg.update(…)`: what it sets is not known
        made = Made(f"{owner._called}.{name}", (), {})
        made._entries.update(owner._entries)
        line = line_here()
        for key, value in [*enumerate(args), *kwargs.items()]:
            made._entries.setdefault(str(key), (value, line))
        return made

    def __copy__(self):
        made = object.__new__(type(self))
        for name in ("_called", "_path", "_above"):
            object.__setattr__(made, name, getattr(self, name))
        object.__setattr__(made, "_entries", dict(self._entries))
        return made

    def __deepcopy__(self, memo):
        import copy
        made = self.__copy__()
        object.__setattr__(made, "_entries", {name: (copy.deepcopy(value, memo), line) for name, (value, line) in self._entries.items()})
        return made

    def __bool__(self):
        if is_unknown(self):
            unread()
            return False
        return True

    def __eq__(self, other):
        return True if self is other else Undecided()

    def __contains__(self, key):
        if str(key) in self._entries:
            return True
        unread()
        return False

    def __str__(self):
        unread()
        return self._path or "unknown"

    def __format__(self, _):
        return str(self)

    def __hash__(self):
        return id(self)


for _name in ("lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg int float index len iter").split():
    setattr(Made, f"__{_name}__", operator(_name))


def is_unknown(value):
    """Whether a value is a part that nobody set, or what a function of another module gives."""
    if not isinstance(value, Made):
        return False
    name = (value._called or "").rsplit(".", 1)[-1].lstrip("_")
    return not value._entries and not name[:1].isupper()


def is_none(value):
    """`value is None`."""
    if is_unknown(value):
        unread()
        return False
    return value is None


def has(value, name):
    """`hasattr`: what an object of the framework has beside what was set is not known."""
    if isinstance(value, Made) and not (name in value._entries or name in type(value).defaults) or isinstance(value, Named):
        unread()
        return False
    return PLAIN["hasattr"](value, name)


def get(value, name, *default):
    """`getattr`: a part that was never set may have any value, whatever its default."""
    return PLAIN["getattr"](value, name, *default) if not isinstance(value, (Made, Named)) else PLAIN["getattr"](value, name)


def is_of(value, kind):
    """`isinstance`: a class that is not here is known by its name; what it inherits from is not known."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    absent = [kind for kind in kinds if not isinstance(kind, (type, types.UnionType))]
    present = tuple(kind for kind in kinds if isinstance(kind, (type, types.UnionType)))
    if PLAIN["isinstance"](value, present):
        return True
    if not absent or not isinstance(value, (Made, Named)):
        return False
    last = lambda path: str(path or "").rsplit(".", 1)[-1]
    if isinstance(value, Made) and any(isinstance(kind, Named) and last(kind.path) == last(value._called) for kind in absent):
        return True
    unread()
    return False


def replaced(value, /, **changes):
    """`dataclasses.replace`, also of an object whose class is not here."""
    if not isinstance(value, Made):
        return REPLACE(value, **changes)
    made = value.__copy__()
    for name, change in changes.items():
        setattr(made, name, change)
    return made


REPLACE, dataclasses.replace = dataclasses.replace, replaced


def number(kind):
    """`int` and `float`, of which what is not known stays so."""
    return lambda *values: Made(None, (), {}) if values and is_unknown(values[0]) else kind(*values)


PLAIN = {"hasattr": hasattr, "getattr": getattr, "isinstance": isinstance, "int": int, "float": float}


class Guarded(ast.NodeTransformer):
    """Tests that a stand-in cannot see go through functions that can: `is None`, `hasattr`, `getattr`, `isinstance`, `int`, `float`."""

    def visit_Compare(self, node):
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)) and isinstance(node.comparators[0], ast.Constant) \
                and node.comparators[0].value is None:
            call = ast.Call(ast.Name("_is_none_", ast.Load()), [node.left], [])
            return ast.copy_location(call if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), call), node)
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in PLAIN:
            node.func = ast.copy_location(ast.Name(f"_{node.func.id}_", ast.Load()), node.func)
        return node


GIVEN = {"_is_none_": is_none, "_hasattr_": has, "_getattr_": get, "_isinstance_": is_of, "_int_": number(int), "_float_": number(float)}


def compiled(tree, file):
    """Code of a module or of a statement of it; annotations are not evaluated."""
    return compile(ast.fix_missing_locations(Guarded().visit(tree)), file, "exec", __future__.annotations.compiler_flag, True)


def kept(part):
    """Puts a part that was only looked at into its owner: something is set on it now."""
    if part._called is None and part._above is not None:
        owner, name = part._above
        if name not in owner._entries:
            kept(owner)
            owner._entries[name] = (part, line_here())
