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
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
TWINS = {"max": "min", "min": "max", "any": "all", "all": "any"}
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
    """Yield mutants of a dict of answers: each answer flipped or replaced by another one's, or left out."""
    values = list(dict.fromkeys(reference.values()))
    for key, value in reference.items():
        others = (
            [not value, 1]
            if isinstance(value, bool)
            else [other for other in values if other != value] + ["else"]
        )
        for other in others:
            yield Mutant(f"{key!r}: {value!r} → {other!r}", {**reference, key: other})
        yield Mutant(f"{key!r}: left out", {k: v for k, v in reference.items() if k != key})


def of_source(reference):
    """Yield mutants of a function or class, compiled where the original stands."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(reference)))
    around, seen = vars(inspect.getmodule(reference)), {ast.unparse(tree)}
    for place, node in enumerate(ast.walk(tree)):
        for new in variants(node, tree):
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


def variants(node, tree):
    """Return the nodes that may stand in the place of `node`."""
    makers = {
        ast.Constant: constants,
        ast.BinOp: operators,
        ast.AugAssign: assignments,
        ast.Compare: comparisons,
        ast.BoolOp: words,
        ast.UnaryOp: signs,
        ast.If: tests,
        ast.While: tests,
        ast.IfExp: tests,
        ast.Call: calls,
        ast.Tuple: turned,
        ast.ExceptHandler: handlers,
        ast.Slice: slices,
        ast.Name: names,
    }
    made = list(makers.get(type(node), lambda node: ())(node))
    return [new for new in made if allowed(node, new, tree)] + removals(node, tree)


def allowed(node, new, tree):
    """Tell whether a change is worth a run: not of docstrings, not of the result of a call that nobody keeps."""
    alone = {id(part.value) for part in ast.walk(tree) if isinstance(part, ast.Expr)}
    stored = isinstance(getattr(node, "ctx", None), ast.Store)
    return not stored and not (id(node) in alone and not isinstance(new, ast.Call))


def like(node, **changes):
    """Return a deep copy of `node` with other fields."""
    twin = copy.deepcopy(node)
    for name, value in changes.items():
        setattr(twin, name, value)
    return twin


def constants(node):
    value = node.value
    if isinstance(value, bool):
        yield like(node, value=not value)
    elif isinstance(value, (int, float)):
        yield like(node, value=value + 1 if isinstance(value, int) else 2 * value)
        if value:
            yield like(node, value=0)
        if isinstance(value, int) and value > 1:
            yield like(node, value=value - 1)
    elif isinstance(value, str):
        yield like(node, value=value + "x")


def operators(node):
    if type(node.op) in OPERATORS:
        yield like(node, op=OPERATORS[type(node.op)]())
    if not isinstance(node.op, (ast.Add, ast.Mult)):
        yield like(node, left=node.right, right=node.left)


def assignments(node):
    if type(node.op) in OPERATORS:
        yield like(node, op=OPERATORS[type(node.op)]())
    yield ast.Assign(targets=[node.target], value=node.value)


def comparisons(node):
    for other in COMPARISONS.get(type(node.ops[0]), ()):
        yield like(node, ops=[other(), *node.ops[1:]])


def words(node):
    yield like(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def signs(node):
    yield node.operand


def tests(node):
    yield like(node, test=ast.UnaryOp(op=ast.Not(), operand=node.test))


def calls(node):
    if len(node.args) >= 2:
        yield like(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for at in range(len(node.keywords)):
        yield like(node, keywords=node.keywords[:at] + node.keywords[at + 1 :])
    if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in MODULES:
        yield node.func.value


def turned(node):
    if len(node.elts) == 2:
        yield like(node, elts=node.elts[::-1])


def handlers(node):
    if getattr(node.type, "id", "") != "Exception":
        yield like(node, type=ast.Name("Exception", ast.Load()))


def slices(node):
    for part in ("lower", "upper", "step"):
        if getattr(node, part):
            yield like(node, **{part: None})


def names(node):
    if node.id in TWINS:
        yield like(node, id=TWINS[node.id])


def removals(node, tree):
    """Return [nothing] for a statement that may be left out."""
    kept = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return (
        [ast.Pass()]
        if isinstance(node, ast.stmt) and not isinstance(node, kept) and not text
        else []
    )
