# Modules: stand-ins, and those of the clone, of which only what is asked for runs. Follows `values.py` in one program.


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
