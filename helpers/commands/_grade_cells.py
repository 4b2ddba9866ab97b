"""What a submitted notebook holds: statements, lesson, checks, and what an answer needs. Runs none of it."""

import ast
import dis
import os
import re
import stat
import types
from collections import namedtuple
from pathlib import Path

MEGABYTES = 20
DOUBTFUL = frozenset(
    """_getframe _current_frames currentframe f_back f_locals tb_frame gi_frame gc ctypes settrace
    setprofile reference wrong check_answer solution_source __subclasses__ __globals__ __code__ _exit fork system Popen
    exec __import__ importlib""".split()
)

Statement = namedtuple("Statement", "cell node code stores loads direct sets")


class Unreadable(ValueError):
    """The notebook cannot be graded; the text says why."""


def read(path):
    """Return the sources of the code cells of the notebook at `path`, a list of texts. Raises Unreadable."""
    import nbformat

    if Path(path).is_symlink():
        raise Unreadable("a symbolic link; links are not followed")
    try:
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
        with open(handle, "rb") as file:
            text = (
                file.read(MEGABYTES * 10**6 + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else None
            )
    except OSError as error:
        raise Unreadable(f"cannot be opened: {error.strerror}") from None
    if text is None:
        raise Unreadable("not a regular file")
    if len(text) > MEGABYTES * 10**6:
        raise Unreadable(f"larger than {MEGABYTES} MB; clear its outputs")
    try:
        notebook = nbformat.reads(text.decode("utf-8"), as_version=4)
        return ["".join(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    except Exception as error:
        raise Unreadable(f"not a notebook ({type(error).__name__}: {str(error)[:80]})") from None


def parse(source):
    """Return the statements of one cell, lines with magics left out; SyntaxError where it is not Python."""
    magic = re.match(r"\s*%%(\w+).*", source)
    if magic and magic[1] not in ("time", "timeit", "capture", "prun"):
        return []
    source = source.replace(magic[0], "", 1) if magic else source
    try:
        return ast.parse(source).body
    except SyntaxError:
        plain = re.sub(r"(?m)^([ \t]*)(?:[%!?]|[\w,][\w, ]*= *[%!]).*$|^.*\?$", r"\1pass", source)
        return ast.parse(plain).body


def statements(sources):
    """Return the top-level statements of all cells, in order, and the numbers of the cells that are not Python."""
    found, broken = [], []
    for cell, source in enumerate(sources, 1):
        try:
            found += [statement(cell, node) for node in parse(source)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            broken.append(cell)
    return found, broken


def statement(cell, node):
    """Return a Statement: what it binds, all it looks up, what it looks up at once, and whether it sets parts."""
    code = compile(ast.Module([node], []), f"<cell {cell}>", "exec")
    words = {step.opname for step in dis.get_instructions(code)}
    sets = not words.isdisjoint(("STORE_ATTR", "STORE_SUBSCR", "DELETE_ATTR", "DELETE_SUBSCR"))
    stores = names_in(code, "STORE_(NAME|GLOBAL)")
    return Statement(cell, node, code, stores, names_in(code), names_in(code, inner=False), sets)


def names_in(code, words="LOAD_.*(NAME|GLOBAL)", inner=True):
    """Return the global names in the operations `words` of `code`; if `inner`, also of functions inside it."""
    found = {step.argval for step in dis.get_instructions(code) if re.match(words, step.opname)}
    for part in code.co_consts if inner else ():
        if isinstance(part, types.CodeType):
            found |= names_in(part, words.replace("STORE_(NAME|GLOBAL)", "STORE_GLOBAL"))
    return found


def all_names(code):
    """Return every name in `code` and inside it: variables, attributes, modules."""
    return set(code.co_names).union(
        *(all_names(part) for part in code.co_consts if isinstance(part, types.CodeType))
    )


def lesson_of(path, found, known):
    """Return the lesson's number and the names its module has in the notebook: by its import, or by the file's name."""
    for node in (part for each in found for part in ast.walk(each.node)):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            full = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            match = re.fullmatch(r"helpers\.exercises\.lesson(\d\d)", full)
            if match and match[1] in known and (alias.asname or isinstance(node, ast.ImportFrom)):
                return match[1], {"ex", alias.asname or alias.name}
    named = Path(path).name[:2] if Path(path).name[2:3] == "_" else ""
    if named not in known:
        raise Unreadable(
            "no lesson's notebook: it imports no exercises, and its name does not begin with a lesson's"
        )
    return named, {"ex"}


def checks(found, aliases):
    """Return {exercise's name: (index of the statement, the answer as an expression)}; the last check counts."""
    calls = {}
    for index, each in enumerate(found):
        for node in ast.walk(each.node):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "check"
            ):
                owner = node.func.value
                if isinstance(owner, ast.Attribute) and getattr(owner.value, "id", None) in aliases:
                    answer = [
                        *node.args,
                        *(word.value for word in node.keywords),
                        ast.Constant(None),
                    ][0]
                    expression = text_of(answer)
                    calls.update({owner.attr: (index, expression)} if expression else {})
    return calls


def text_of(answer):
    """Return the text of an expression; an empty one where it cannot stand by itself, such as *x, or is too large."""
    try:
        text = ast.unparse(answer)
        compile(text, "<answer>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return text


def needed(found, expression):
    """Return the indices of the statements that the answer `expression` depends on, by the names in them.

    Statements that bind a needed name, and those that may change a needed value: a bare expression that looks it up,
    an assignment to a part of it. Calls of `check` and changes of what was imported stay out.
    """
    made = [each for each in found if not isinstance(each.node, ast.Import | ast.ImportFrom)]
    own = set().union(*(each.stores for each in made))
    data = set().union(
        *(each.stores for each in made if not isinstance(each.node, ast.FunctionDef | ast.ClassDef))
    )
    names, kept = names_in(compile(expression, "<answer>", "eval")), set()
    while True:
        new = {
            index
            for index, each in enumerate(found)
            if index not in kept and touches(each, names, own, data)
        }
        if not new:
            return sorted(kept)
        kept |= new
        names = names.union(*(found[index].loads for index in new))


def touches(each, names, own, data):
    """Tell whether a Statement binds one of `names`, or may change one: `own` are not imported, `data` no functions."""
    if (
        each.stores & names
        or isinstance(each.node, ast.ImportFrom)
        and each.node.names[0].name == "*"
    ):
        return True
    if isinstance(each.node, ast.Expr):
        called = getattr(getattr(each.node.value, "func", None), "attr", "")
        return called not in ("check", "hint", "solution") and bool(each.direct & names & data)
    return each.sets and bool(each.direct & names & own)
