"""Mutants of model answers: one small change to the source each, to see whether a check notices it."""

import ast
import copy
import inspect
import textwrap
from dataclasses import dataclass

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
}
COMPARISONS = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.In: (ast.NotIn,),
}
MODULES = {"torch", "nn", "F", "dist", "math", "statistics", "argparse", "os"}


@dataclass(frozen=True)
class Mutant:
    """A changed model answer; `change` names the line of the answer, what stood there and what stands there now."""

    change: str
    answer: object


def mutants(exercise):
    """Return all mutants of an exercise's reference: of its source, or of its value where it is one."""
    if inspect.isfunction(exercise.reference) or inspect.isclass(exercise.reference):
        return list(of_source(exercise.reference))
    return list(of_dict(exercise.reference))


def of_dict(reference):
    """Yield mutants of a dict of answers: each answer replaced by another one's, or left out."""
    values = list(dict.fromkeys(reference.values()))
    for key, value in reference.items():
        for other in [other for other in values if other != value] + ["else"]:
            yield Mutant(f"{key!r}: {value!r} → {other!r}", {**reference, key: other})
        yield Mutant(f"{key!r}: left out", {k: v for k, v in reference.items() if k != key})


def of_source(reference):
    """Yield mutants of a function or class, compiled where the original stands."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(reference)))
    around, seen = vars(inspect.getmodule(reference)), {ast.unparse(tree)}
    for place, node in enumerate(ast.walk(tree)):
        for new in variants(node):
            twin = copy.deepcopy(tree)
            twin = ast.fix_missing_locations(Swap(list(ast.walk(twin))[place], new).visit(twin))
            text = ast.unparse(twin)
            if text not in seen:
                seen.add(text)
                names = dict(around)
                exec(compile(twin, "<mutant>", "exec"), names)  # noqa: S102 - our own source, changed
                yield Mutant(described(node, new), names[reference.__name__])


class Swap(ast.NodeTransformer):
    """Put `new` in the place of the node `old`."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def described(old, new):
    """Return "line: old → new", each side on one line."""
    before, after = (" ".join(ast.unparse(node).split()) for node in (old, new))
    return f"{old.lineno}: {before} → {after if after != 'pass' else 'nothing'}"


def variants(node):
    """Yield the nodes that may stand in the place of `node`."""
    if isinstance(node, ast.Constant):
        for value in constants(node.value):
            yield like(node, value=value)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield like(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for other in COMPARISONS.get(type(node.ops[0]), ()):
            yield like(node, ops=[other(), *node.ops[1:]])
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield like(node, test=ast.UnaryOp(op=ast.Not(), operand=node.test))
    elif isinstance(node, ast.Call):
        yield from calls(node)
    if removable(node):
        yield ast.Pass()


def like(node, **changes):
    """Return a deep copy of `node` with other fields."""
    twin = copy.deepcopy(node)
    for name, value in changes.items():
        setattr(twin, name, value)
    return twin


def constants(value):
    """Return other values for a constant; texts stay, or docstrings and messages would count."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return {value + 1, max(0, value - 1), 0} - {value}
    return {2 * value, 0} - {value} if isinstance(value, float) else []


def calls(node):
    """Yield a call with two arguments swapped, with a keyword left out, or without its method."""
    if len(node.args) >= 2:
        yield like(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for at in range(len(node.keywords)):
        yield like(node, keywords=node.keywords[:at] + node.keywords[at + 1 :])
    if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in MODULES:
        yield node.func.value


def removable(node):
    """Tell whether a node is a statement that may be left out."""
    stays = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Pass
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, ast.stmt) and not isinstance(node, stays) and not text
