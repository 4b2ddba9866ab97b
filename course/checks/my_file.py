"""The learner's module as text: a definition is replaced where it stands, what is new joins it, every other line stays.

Lines end where Python's parser ends them, at \\n, \\r\\n and \\r and nowhere else.
"""

import ast
import functools
import io
import re
import symtable
import tokenize
from pathlib import Path

LINE = re.compile("(?<=\n)|(?<=\r)(?!\n)")
REPLACEABLE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


class NotKept(ValueError):
    """The function was not kept; the message says why, in words for the learner."""


class Another(NotKept):
    """The file has another function of that name, whose place it can take."""


def read(path: Path) -> tuple[str, str]:
    """(text, encoding) of a module, with the line ends that it has; NotKept where it is no text."""
    if not path.is_file():
        raise NotKept(f"{path.name} is no file")
    data = path.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding), encoding
    except (SyntaxError, UnicodeError, LookupError):  # a cookie may name what encodes no text
        raise NotKept(
            f"{path.name} isn't text in UTF-8. Save it as UTF-8, then keep this."
        ) from None


def added(text: str, parts: dict[str, str], imports: list[str], replace: bool, file: str) -> str:
    """`text` with `parts`, {name: source}, and the `imports` that they need; unchanged where all are there already.

    Raises Another where a name has another definition (unless `replace`), and NotKept where the rest can't stay as it is:
    a line is shared, a name is bound twice, or the file, called `file`, is broken.
    """
    body = parsed(text, file)
    owners = {name: [node for node in body if name in _names(node, _binds)] for name in parts}
    differ = [name for name, nodes in owners.items() if nodes and not _same(nodes, parts[name])]
    if differ and not replace:
        raise Another(
            f"{file} has another {' and '.join(differ)} already, and nothing was changed."
        )
    news = {n: source for n, source in parts.items() if n in differ or not owners[n]}
    if not news:
        return text
    _only_theirs(body, differ, [*parts], file)
    lacking = _lacking(body, imports, file)
    fresh = [name for name in news if name not in differ]
    needed = [
        name for name in fresh if [*news].index(name) < min(map([*news].index, differ), default=0)
    ]
    end = "\r\n" if "\r\n" in text else "\n"
    lines = LINE.split(text if text.endswith(("\n", "\r")) or not text else text + end)
    spans = {name: _span(owners[name], lines, f"{name} in {file}") for name in differ}
    edits = [
        (*spans[name], f"{parts[name]}\n") for name in sorted(differ, key=lambda name: spans[name])
    ]
    if needed:
        edits.insert(0, (edits[0][0], edits[0][0], "".join(f"{parts[n]}\n\n\n" for n in needed)))
    for start, stop, piece in reversed(_import_edits(body, lines, lacking) + edits):
        lines[start:stop] = [piece.replace("\n", end)]
    new = "".join(lines)
    later = [parts[name].replace("\n", end) + end for name in fresh if name not in needed]
    if later:
        new = (2 * end).join([new.rstrip() + end, *later] if new.strip() else later)
    _compare(body, differ, new, [*news.values(), *lacking], file)
    return new


def parsed(text: str, file: str) -> list[ast.stmt]:
    """The statements of a module; NotKept names the mistake in it."""
    told = "Mend it, then keep this; nothing was changed."
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise NotKept(f"{file} has a mistake{where}: {error.msg}. {told}") from None
    except (ValueError, MemoryError, RecursionError):
        raise NotKept(f"{file} is nested too deep to be read. {told}") from None


def _only_theirs(body, differ, parts, file):
    """Raise NotKept where what the last of `parts` needs has to change and something else in the file uses it, too."""
    used = {
        inner.id
        for node in body
        if not _names(node, _binds) & set(parts)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name)
    }
    for other in used.intersection(differ) - {parts[-1]}:
        raise NotKept(
            f"{file} uses another {other} elsewhere: give yours another name. Nothing was changed."
        )


def _binds(symbol):
    return symbol.is_assigned() or symbol.is_imported()


def _reads(symbol):
    return symbol.is_referenced()


def _names(node, kind):
    """The names that a statement at the top of a module binds, or reads, when the module is loaded."""
    return {symbol.get_name() for symbol in _symbols(node) if kind(symbol)}


@functools.lru_cache(maxsize=10_000)  # each statement is asked often, while other notebooks wait
def _symbols(node):
    return symtable.symtable(ast.unparse(node), "", "exec").get_symbols()


def _same(nodes, source):
    """Whether the one statement that binds a name is `source`."""
    return [ast.dump(node) for node in nodes] == [ast.dump(node) for node in ast.parse(source).body]


def _span(nodes, lines, what):
    """(first, end) of the lines of a name's one definition; NotKept unless they are its own."""
    node = nodes[-1]
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip()
    own = isinstance(node, REPLACEABLE) and len(_names(node, _binds)) == 1 and len(nodes) == 1
    if not own or node.col_offset or after[:1] not in ("", "#"):
        where = " and ".join(str(each.lineno) for each in nodes)
        raise NotKept(
            f"{what} gets its value in line {where}, together with something else: change it by hand. Nothing was changed."
        )
    return first - 1, node.end_lineno


def _imported(nodes):
    """{(what is imported, under which name)} by statements."""
    found = set()
    for node in nodes:
        home = f"{'.' * node.level}{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            top = alias.name if home or alias.asname else alias.name.partition(".")[0]
            found.add((home + top, alias.asname or top))
    return found


def _lacking(body, imports, file):
    """Those lines of `imports` that the module lacks; NotKept where their name means something else in it."""
    outer = [node for node in body if not isinstance(node, REPLACEABLE)]
    nodes = [inner for node in outer for inner in ast.walk(node)]
    there = _imported(n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)))
    bound = {name for node in body for name in _names(node, _binds)}
    lacking = []
    for line in imports:
        [(thing, name)] = _imported(ast.parse(line).body)
        if (thing, name) in there:
            continue
        if name in bound:
            raise NotKept(
                f"it needs `{line}`, and in {file} {name} is something else. Nothing was changed."
            )
        lacking.append(line)
    return lacking


def _import_edits(body, lines, lacking):
    """The edit that puts lines of imports behind those at the module's top, or behind its docstring."""
    if not lacking:
        return []
    text, place = "".join(f"{line}\n" for line in lacking), 0
    while re.match(r"#!|#.*coding[:=]", "".join(lines[place : place + 1])):
        place += 1
    for number, node in enumerate(body):
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        if not is_import and not (number == 0 and isinstance(node, ast.Expr)):
            break
        place, text = node.end_lineno, text.lstrip() if is_import else f"\n{text}"
    return [(place, place, text)]


def _compare(body, differ, new, pieces, file):
    """Raise NotKept unless the text `new` has every other statement of `body`, in order, and reads no name too early."""
    after = parsed(new, file)
    rest = [ast.dump(node) for node in after]
    for piece in pieces:
        for node in ast.parse(piece).body:
            rest.remove(ast.dump(node))
    others = [ast.dump(node) for node in body if not _names(node, _binds) & set(differ)]
    if rest != others or _early(after) - _early(body):
        raise NotKept(f"other lines of {file} would no longer work. Nothing was changed.")


def _early(body):
    """The names that are read, when the module is loaded, before they are bound."""
    binds = [_names(node, _binds) for node in body]
    return {
        name
        for number, node in enumerate(body)
        for name in _names(node, _reads)
        if any(name in names for names in binds[number:])
        and not any(name in names for names in binds[:number])
    }
