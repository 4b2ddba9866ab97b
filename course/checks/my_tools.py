"""`my_gpu_tools.py`: the learner's own module, into which solved exercises go and from which later lessons take them.

It lies in the folder in which the notebook runs. What stands in it is the learner's: code is added, never changed or
taken away unasked. A file that doesn't load is named with its mistake, and the course's function stands in.
"""

import ast
import builtins
import importlib.util
import inspect
import linecache
import os
import symtable
import sys
import textwrap
from pathlib import Path
from typing import Any

from course import files
from course.checks import my_file
from course.checks.my_file import NotKept

FILE = "my_gpu_tools.py"
HEAD = '"""My own GPU tools: what I wrote in the course. This file is mine to change."""\n'
PATIENCE = 60  # seconds, since the lock is not given in turn and a class may share a disk
PLAIN = (int, float, str, bytes, bool, type(None))  # values that can be written into a file


def path() -> Path:
    """Where the learner's module lies, or will lie: in the folder in which the notebook runs."""
    return Path.cwd() / FILE


def mine(name: str, ours: Any) -> Any:
    """The learner's `name` from my_gpu_tools.py; `ours` where it isn't there, with one line that says which it is.

    A lesson writes `pick_device = mine("pick_device", ours)`.
    """
    found, line = _kept(name)
    print(line or f"{name}: the course's own stands in until you keep yours")
    return ours if found is None else found


def mine_all(ours: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """`mine` for each of {name: ours}, with the lines to print: of those that the learner keeps."""
    kept = {name: _kept(name) for name in ours}
    lines = [line for _, line in kept.values() if line]
    found = {name: tool for name, (tool, _) in kept.items() if tool is not None}
    return [*(ours | found).values()], lines


def _kept(name):
    """(the learner's `name` or None, what there is to say of it; "" where it isn't kept yet)."""
    if not path().exists():
        return None, ""
    try:
        found = getattr(_load(), name, None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the learner's file raises
        return None, f"{FILE} doesn't load: {_mistake(error)}. {name}: the course's own stands in"
    return (found, f"{name}: yours, from {FILE}") if callable(found) else (None, "")


def _load():
    """The learner's module, as the file is now."""
    spec = importlib.util.spec_from_file_location(Path(FILE).stem, path())
    module = importlib.util.module_from_spec(spec)
    exec(compile(path().read_bytes(), str(path()), "exec"), vars(module))  # noqa: S102 - not from a stale .pyc
    sys.modules[module.__name__] = module
    return module


def _mistake(error):
    """The error's type, message and line in the learner's file."""
    lines = [error.lineno] if isinstance(error, SyntaxError) else []
    frame = error.__traceback__
    while frame and not isinstance(error, SyntaxError):
        lines += [frame.tb_lineno] if frame.tb_frame.f_code.co_filename == str(path()) else []
        frame = frame.tb_next
    told = getattr(error, "msg", None) or error
    return f"{type(error).__name__}: {told}" + (f" in line {lines[-1]}" if lines else "")


def keep(answer: Any, name: str, replace: bool = False) -> str:
    """Add `answer` to my_gpu_tools.py with what it needs; returns what was done, in a sentence.

    An answer is a function, a class, a kernel of Triton, or CUDA C as text.

    It is reached there by `name`, too. Raises NotKept, and changes nothing, where the file is broken, where it has
    another `name` (unless `replace`; then it is an `Another`), and for code that works only in this notebook.
    """
    if isinstance(answer, str):
        imports, parts = [], {name: _text(name, answer)}
    else:
        imports, parts = _collected(answer)
        if answer.__name__ != name:
            parts[name] = f"{name} = {answer.__name__}"
    file = Path(os.path.realpath(path()))  # a link stays a link
    with files.locked(file.parent, PATIENCE) as alone:
        if not alone:
            raise NotKept(f"another notebook is writing to {FILE}. Keep it once more.")
        old, encoding = my_file.read(file) if os.path.lexists(file) else (HEAD, "utf-8")
        try:
            new = my_file.added(old, parts, imports, replace, FILE)
            if new == old:
                return f"{name} is in {FILE} already, just as it is here."
            files.write(file, new.encode(encoding))
        except (MemoryError, RecursionError, UnicodeError) as error:
            raise NotKept(
                f"{FILE} can't take it ({_mistake(error)}). Nothing was changed."
            ) from None
    return f"Kept: {name} is in {FILE} now. Later lessons, and your own code, take it from there."


def source(answer: Any) -> str:
    """The text of a module with `answer`, a function or class, and what it uses; NotKept where a notebook must be there."""
    imports, parts = _collected(answer)
    return "\n\n".join([*imports, *parts.values()])


def _collected(answer):
    """(lines of imports, {name: source}) that `answer` and all that it uses of the notebook need."""
    imports, parts, todo = [], {}, [(answer.__name__, answer)]
    while todo:
        name, value = todo.pop()
        value = _undecorated(value)
        line = _import_of(name, value) if parts or imports else ""
        if line:
            imports.append(line)
        elif inspect.isfunction(value) or inspect.isclass(value):
            parts = {name: _source(value), **{n: s for n, s in parts.items() if n != name}}
            spaces = _around(value)
            used = [each for each in _names(parts[name]) if each in spaces and each not in parts]
            todo += [(each, spaces[each]) for each in used]
        elif _is_plain(value):
            parts = {name: f"{name} = {value!r}", **parts}
        else:
            raise NotKept(
                f"it uses {name} of this notebook, which no other program has. Make it an argument, then keep it."
            )
    return sorted(set(imports)), parts


def _undecorated(value):
    """The function under `@triton.jit`, whose source has the decorator; any other value as it is."""
    inner = getattr(value, "fn", None)
    return inner if type(value).__module__.startswith("triton.") and inner else value


def _text(name, text):
    """The lines that define `text` under `name`, as it was written."""
    plain = "\\" in text or '"""' in text or text.endswith('"')
    return f"{name} = {text!r}" if plain else f'{name} = """{text}"""'


def _around(value):
    """The names around a function or class: those of its notebook."""
    if inspect.isclass(value):
        value = next(filter(inspect.isfunction, vars(value).values()))
    return inspect.unwrap(value).__globals__


def _is_plain(value):
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return (
        isinstance(value, PLAIN)
        and value == value
        and abs(hash(value)) >= 0
        and "inf" != str(value)
    )


def _import_of(name, value):
    """The line that imports `value` under `name`; "" for what the notebook or my_gpu_tools.py defines."""
    if inspect.ismodule(value):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    home, own = getattr(value, "__module__", None), getattr(value, "__name__", name)
    if (
        home in (None, "__main__", Path(FILE).stem)
        or getattr(sys.modules.get(home), own, None) is not value
    ):
        return ""
    return f"from {home} import {own}" + ("" if own == name else f" as {name}")


def _source(value):
    """The source of a function or class as the learner wrote it."""
    try:
        if inspect.isclass(value):
            return _class_source(value)
        code = getattr(value, "__code__", None)
        if code and code.co_filename == "<string>":  # of eval; Python 3.13 has another text there
            raise OSError
        return textwrap.dedent(inspect.getsource(value)).strip()
    except (OSError, TypeError, SyntaxError, StopIteration):
        raise NotKept("its source isn't to be found: write it with def in a cell.") from None


def _class_source(value):
    """The source of a class of a notebook, which `inspect` doesn't find: from the cell of one of its methods."""
    method = next(filter(inspect.isfunction, vars(value).values()))
    lines = linecache.getlines(method.__code__.co_filename)
    classes = (
        node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.ClassDef)
    )
    found = next(node for node in classes if node.name == value.__name__)
    return "".join(lines[_first_line(found) - 1 : found.end_lineno]).strip()


def _first_line(node):
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _names(source):
    """The names that `source` takes from around it."""
    tables, found = [symtable.symtable(source, FILE, "exec")], []
    while tables:
        table = tables.pop()
        found += [
            s.get_name()
            for s in table.get_symbols()
            if s.is_global() or table.get_type() == "module"
        ]
        tables += table.get_children()
    return [name for name in dict.fromkeys(found) if not hasattr(builtins, name)]
