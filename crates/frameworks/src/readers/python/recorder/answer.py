# The run: limits, what is refused, and the answer. Follows `modules.py` in one program.


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
        for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)     # that of whoever started this may be lower
            resource.setrlimit(kind, (most, most))
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
