"""The syntax tree of a program: the statement on a line, the loop around it, and what in it reads numbers of a GPU."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Sequence
from typing import Any

READS = ("item", "tolist", "cpu", "numpy")
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPOUND = (*LOOPS, ast.If, ast.With, ast.AsyncWith, ast.Try)


@functools.cache
def tree(file: str) -> Any:
    """The syntax tree of a file, or None."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def around(file: str, line: int, kinds: type | tuple) -> list:
    """The nodes of some kinds that hold a line, outermost first."""
    nodes: list[Any] = [
        node for node in ast.walk(tree(file) or ast.Pass()) if isinstance(node, kinds)
    ]
    held = [node for node in nodes if node.lineno <= line <= node.end_lineno]
    return sorted(held, key=lambda node: (node.lineno, -node.end_lineno))


def statement(file: str, line: int) -> Any:
    """The innermost statement on a line, of a compound one the part before its body; None where there is none.

    Several with `;` between them are a module of them all: which of them ran isn't known.
    """
    found = around(file, line, ast.stmt)
    if not found:
        return None
    beside = [node for node in found if node.lineno == line and not isinstance(node, COMPOUND)]
    if len(beside) > 1:
        return ast.Module(beside, [])
    node = found[-1]
    if isinstance(node, COMPOUND):
        return getattr(node, "test", None) or getattr(node, "iter", None)
    return node


def loop(file: str, line: int) -> Any:
    """The innermost loop around a line, or None."""
    loops = [node for node in around(file, line, LOOPS) if node.lineno < line]
    return loops[-1] if loops else None


def looped(node: Any) -> Any:
    """What a for loop goes over, without ``enumerate``."""
    over = node.iter
    if isinstance(over, ast.Call) and name(over) == "enumerate" and over.args:
        return over.args[0]
    return over


def is_condition(file: str, line: int) -> bool:
    """Whether a line decides where the program goes on."""
    found = around(file, line, ast.stmt)
    return bool(found) and isinstance(found[-1], (ast.If, ast.While, ast.Assert))


def calls(node: Any, names: Sequence[str]) -> list:
    """The calls in a statement whose function or method has one of the names."""
    found = [part for part in ast.walk(node or ast.Pass()) if isinstance(part, ast.Call)]
    return [call for call in found if name(call) in names]


def name(call: Any) -> str:
    """The last word of what a call calls."""
    return ast.unparse(call.func).rpartition(".")[2]


def is_constant(node: Any) -> Any:
    """Whether a node is made of numbers alone, such as [0.1, 0.2]."""
    allowed = (ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load)
    return all(isinstance(part, allowed) for part in ast.walk(node))


def names(node: Any) -> Any:
    """The variables in a node."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
