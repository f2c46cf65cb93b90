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
    """Result of a comparison of such a value: taken as false, and noted."""

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


def number(kind):
    """`int` and `float`, of which what is not known stays so."""
    return lambda *values: Made(None, (), {}) if values and is_unknown(values[0]) else kind(*values)


PLAIN = {"hasattr": hasattr, "getattr": getattr, "int": int, "float": float}


class Guarded(ast.NodeTransformer):
    """Tests that a stand-in cannot see go through functions that can: `is None`, `hasattr`, `getattr`, `int`, `float`."""

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


GIVEN = {"_is_none_": is_none, "_hasattr_": has, "_getattr_": get, "_int_": number(int), "_float_": number(float)}


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


class Stub(types.ModuleType):
    """A module that is not here."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(f"{self.__name__}.{name}")


class Names:
    """A stub as `from module import name` sees it: names without the module's."""

    def __init__(self, module):
        self.__dict__["module"] = module

    def __getattr__(self, name):
        if name == "__path__" or name.startswith("__"):
            raise AttributeError(name)
        found = self.module.__dict__.get(name)
        return found if found is not None else Named(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the clone, and stubs of all that are neither there nor in the standard library."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STANDARD:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        parts = name.split(".")
        for root in ROOTS:
            for file in (os.path.join(root, *parts) + ".py", os.path.join(root, *parts, "__init__.py")):
                if os.path.isfile(file) and os.path.realpath(file) != os.path.realpath(FILE):
                    spec.loader_state = file
                    return spec
        return spec

    def create_module(self, spec):
        module = Stub(spec.name) if spec.loader_state is None else Clone(spec.name)
        module.__dict__["file"] = spec.loader_state
        return module

    def exec_module(self, module):
        module.__path__ = []
        if module.file is not None:
            base = os.path.basename(module.file) == "__init__.py"
            module.__package__ = module.__name__ if base else module.__name__.rpartition(".")[0]


class Clone(types.ModuleType):
    """A module of the clone, of which only the statements run that make the names that are asked for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        own = self.__dict__
        if "statements" not in own:
            own["statements"] = Statements(self)
        try:
            return own["statements"][name]
        except KeyError:
            pass
        if is_module(self.__name__, name):
            return importlib.import_module(f"{self.__name__}.{name}")
        return Named(name)


def is_module(package, name):
    parts = [*package.split("."), name]
    return any(os.path.isfile(os.path.join(root, *parts) + ".py") or os.path.isfile(os.path.join(root, *parts, "__init__.py")) for root in ROOTS)


class Statements(dict):
    """Global names of a module of the clone; a name's statements run when it is first looked up, classes as ones that record."""

    def __init__(self, module):
        super().__init__(__name__=module.__name__, __package__=module.__package__, __file__=module.file, __builtins__=builtins,
                         _class_of_clone_=class_of_clone, **GIVEN)
        CLONES[module.file] = os.path.splitext(os.path.relpath(module.file, next(r for r in ROOTS if module.file.startswith(r + os.sep))))[0]
        self.file, self.of, self.starred, self.under_way = module.file, {}, [], set()
        with open(module.file, encoding="utf-8", errors="replace") as file:
            tree = ast.parse(file.read(), module.file)
        for statement in tree.body:
            self.index(statement)
        self.index_registered(tree.body)

    def index(self, statement):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                if alias.name == "*":
                    self.starred.append(statement)
                    continue
                one = ast.copy_location(type(statement)(**{**dict(ast.iter_fields(statement)), "names": [alias]}), statement)
                self.of.setdefault((alias.asname or alias.name).split(".")[0], []).append(one)
            return
        for name in sorted(bound(statement)):
            self.of.setdefault(name, []).append(statement)

    def index_registered(self, body):
        """Functions behind a decorator of this module belong to the tables that it fills."""
        fills = {statement.name: {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
                 for statement in body if isinstance(statement, ast.FunctionDef)}
        for statement in body:
            for decorator in getattr(statement, "decorator_list", []):
                name = getattr(getattr(decorator, "func", decorator), "id", None)
                for table in fills.get(name, ()):
                    if any(isinstance(made, (ast.Assign, ast.AnnAssign)) for made in self.of.get(table, [])):
                        self.of[table].append(statement)

    def __missing__(self, name):
        for statement in self.of.get(name, []):
            if id(statement) not in self.under_way:                # modules may import each other in a circle
                self.under_way.add(id(statement))
                one = recorded(statement) if isinstance(statement, ast.ClassDef) else statement
                exec(compiled(ast.Module([one], []), self.file), self)
        if name in self:
            return self[name]
        if name not in self.of:
            for star in self.starred:
                module = importlib.import_module("." * star.level + (star.module or ""), self["__package__"])
                if isinstance(module, Clone) and not isinstance(found := getattr(module, name), Named):
                    return self.setdefault(name, found)
        raise KeyError(name)


def bound(statement):
    """Names that a statement at the top of a module makes or changes."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return {statement.name}
    if isinstance(statement, (ast.If, ast.Try, ast.For, ast.With)):
        parts = [part for part in ast.iter_child_nodes(statement) if isinstance(part, (ast.stmt, ast.ExceptHandler))]
        inner = [line for part in parts for line in (part.body if isinstance(part, ast.ExceptHandler) else [part])]
        names = {name for line in inner for name in bound(line)}
        return names | {(alias.asname or alias.name).split(".")[0] for line in inner if isinstance(line, (ast.Import, ast.ImportFrom))
                        for alias in line.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        targets = [statement.value.func]                           # `TABLE.update(…)`
    names = set()
    for target in targets:
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)} if target is not None else set()
    return names


def recorded(node):
    """`class Name(Base): …` as a class that records."""
    plain = {"Enum", "IntEnum", "StrEnum", "TypedDict", "NamedTuple", "str", "int", "Protocol"}
    bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
    if bases and set(bases) <= plain:
        return node
    constants = {}
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
            try:
                constants[part.target.id] = ast.literal_eval(part.value)
            except (ValueError, TypeError):
                pass
    # Methods that hand out constants, such as properties of a registry, are the class's own; the rest records.
    call = f"{node.name} = _class_of_clone_({node.name!r}, {constants!r}, {[name for name in bases if name.isidentifier()]!r}, globals())"
    return ast.copy_location(ast.parse(call).body[0], node)


def class_of_clone(name, constants, bases, known):
    inherited = {}
    for base in bases:
        if isinstance(known.get(base), type) and issubclass(known[base], Made):
            inherited.update(known[base].defaults)
    return RecordedClass(name, (Made,), {"defaults": inherited | constants})


class RecordedClass(type):
    """Class methods of a class that is not run are names: `AutoBridge.from_hf_pretrained(…)`."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in cls.__dict__.get("defaults", {}):
            return cls.__dict__["defaults"][name]
        return Named(f"{cls.__name__}.{name}")


imported = builtins.__import__


def import_name(name, globals=None, locals=None, fromlist=(), level=0):
    module = imported(name, globals, locals, fromlist, level)
    if fromlist and isinstance(module, Stub):
        return Names(module)
    return module


def node(value, line, depth=0):
    """A value as JSON: [kind, content, line]."""
    global LEFT
    LEFT -= 1
    if LEFT < 0 or depth > 60:
        raise Unknown("a configuration of too many values")
    if isinstance(value, Made):
        entries = [] if value._called is None else [[CALLED, line, ["name", value._called, line]]]
        entries += [[name, at, node(inner, at, depth + 1)] for name, (inner, at) in value._entries.items() if not is_hole(inner)]
        return ["map", entries, line]
    if isinstance(value, enum.Enum):
        return ["name", f"{type(value).__name__}.{value.name}", line]
    if isinstance(value, str):
        return ["text", value, line]
    if value is None or isinstance(value, (bool, int)):
        return ["name", str(value), line]
    if isinstance(value, float):
        return ["name", str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value), line]
    if isinstance(value, Named):
        return ["name", value.path, line]
    if isinstance(value, dict):
        return ["map", [[str(key), line, node(inner, line, depth + 1)] for key, inner in value.items()], line]
    if isinstance(value, (list, tuple, set, frozenset)):
        return ["list", [node(item, line, depth + 1) for item in value], line]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = [[CALLED, line, ["name", type(value).__name__, line]]]
        entries += [[field.name, line, node(getattr(value, field.name), line, depth + 1)] for field in dataclasses.fields(value)]
        return ["map", entries, line]
    if isinstance(value, types.FunctionType) or isinstance(value, type):
        return ["name", value.__name__, line]
    if isinstance(value, types.SimpleNamespace) or hasattr(value, "__dict__") and not callable(value):
        return ["map", [[CALLED, line, ["name", type(value).__name__, line]], *[[str(key), line, node(inner, line, depth + 1)]
                       for key, inner in vars(value).items()]], line]
    return ["text", str(value), line]


def is_hole(value):
    """Whether a value is not known at all: it was noted where it was set."""
    return isinstance(value, Made) and value._called is None and not value._entries


REFUSED = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename", "os.mkdir",
           "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.kill", "shutil.", "ctypes.", "pty.", "ftplib.", "urllib.", "http.",
           "smtplib.", "webbrowser.", "tempfile.", "sqlite3.", "mmap.")


def guard(event, args):
    """Refuses what a configuration has no need of: processes, sockets, changes of files, foreign code."""
    if ANSWERED:
        return
    if event == "open" and (isinstance(args[1], str) and set(args[1]) & set("wax+") or args[1] is None and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
        raise PermissionError(f"a configuration may not write {args[0]}")
    if event.startswith(REFUSED):
        raise PermissionError(f"a configuration may not do this: {event}")


def limit(seconds):
    """Bounds of this process, and no network where the kernel lets it be taken away."""
    try:
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass
    if hasattr(os, "unshare"):                                     # Python 3.12, Linux
        try:
            os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
        except OSError:
            pass


def main():
    global FILE, ROOTS, UNREAD, LEFT
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)                                                  # what the configuration prints is no answer
    FILE, UNREAD, LEFT = os.path.abspath(asked["file"]), set(), MOST_VALUES
    ROOTS = [os.path.dirname(FILE), os.getcwd()]
    for _ in range(FOLDERS_ABOVE):
        ROOTS.append(os.path.dirname(ROOTS[-1] if len(ROOTS) > 2 else ROOTS[0]))
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    limit(asked["seconds"])
    sys.meta_path.insert(0, Finder())
    builtins.__import__ = import_name
    module = types.ModuleType("__configuration__")
    module.__file__ = FILE
    for root in ROOTS:                                             # relative imports begin in the file's package
        if FILE.startswith(root + os.sep):
            module.__package__ = os.path.dirname(os.path.relpath(FILE, root)).replace(os.sep, ".")
    sys.addaudithook(guard)
    try:
        sys.modules[module.__name__] = module
        module.__dict__.update(GIVEN)
        exec(compiled(ast.parse(asked["text"], FILE), FILE), module.__dict__)
        if asked["function"]:
            UNREAD.clear()
            value = module.__dict__[asked["function"]]()
        else:
            value = module.__dict__.get("cfg", module.__dict__.get("config"))
        made = {"value": node(value, 1), "unread": sorted(UNREAD)}
    except Unknown as error:
        made = {"error": f"`{error}` is known to the framework alone", "line": failed(error)}
    except BaseException as error:
        made = {"error": f"{type(error).__name__}: {str(error)[:500] if not isinstance(error, Unknown) else error}", "line": failed(error)}
    ANSWERED.append(True)
    os.chdir(os.path.dirname(folder))
    os.rmdir(folder)
    data = json.dumps(made).encode()
    while data:
        data = data[os.write(answer, data):]
    os._exit(0)


def failed(error):
    """Line of the file that is read at which an error came up."""
    line, at = 1, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == FILE:
            line = at.tb_lineno
        at = at.tb_next
    return getattr(error, "lineno", None) or line if isinstance(error, SyntaxError) else line


main()
