"""Memory that grows from step to step: which line takes it, and which list or dictionary keeps it."""

from __future__ import annotations

import ast
import gc
import linecache
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from practice_gpus.machine import block_of, is_own, line
from practice_gpus.reports import statements

RECENT = 6  # of so many steps
BIRTHS = 4  # at least so many left something from the same line
EARLY = 64  # blocks, before which only a list of the program's outermost level counts
TURNS = 8  # the same, for a program without an optimizer
KEPT = ("parameters", "gradients", "optimizer", "buckets", "replicas")
MOST = 1000  # nodes of a sum's graph
LARGE = 2**20  # bytes that a list without graphs may hold, where there are no steps
SMALL = 4096  # bytes a step that may be kept on purpose, such as detached losses
KEEPS = ("append", "appendleft", "add", "extend", "insert", "put", "update", "setdefault")


def find(recorder: Any, frame: Any) -> Any:
    """{"place": (file, line), "name": what keeps it or None, "bytes": a step} of the largest leak, or None.

    Without an optimizer the turns of the line that takes memory count instead of steps, and a list, or the like, must
    have grown since the look before.
    """
    total = sum_over_steps(recorder, frame) if recorder.steps else None
    if total:
        return total
    groups = defaultdict(list)
    for memory in recorder.memory:
        for block in memory.live:
            if block.kind not in KEPT and block.origin is not None:
                groups[id(block.origin[0]), block.origin[1]].append(block)
    growing = {place: each for place, each in groups.items() if is_growing(each, recorder, place)}
    owned = owned_blocks() if growing else set()
    for origin, blocks in list(growing.items()):
        growing[origin] = [block for block in blocks if block not in owned]
        if not is_growing(growing[origin], recorder, origin):
            del growing[origin]
    leaked = {block for blocks in growing.values() for block in blocks}
    keepers: list = []
    while frame is not None and leaked:
        if is_own(frame.f_code.co_filename):
            keepers += keepers_of(frame, leaked)
        frame = frame.f_back
    if not recorder.steps:
        keepers = grown(keepers, recorder)
    if not leaked or not (keepers or recorder.steps):
        return None
    step = sum(block.size for block in leaked) // len({block.step for block in leaked})
    keeper = max(
        keepers, key=lambda box: (box["graph"], box["bytes"]), default={"graph": False, "bytes": 0}
    )
    small = step <= SMALL or not recorder.steps and keeper["bytes"] < LARGE
    if not keeper["graph"] and small:
        return None
    largest = max(growing.values(), key=lambda blocks: sum(block.size for block in blocks))
    place = keeper.get("place") or line(largest[0].origin)
    return {"place": place, "name": keeper.get("name"), "bytes": step}


def owned_blocks() -> set:
    """The memory of all parameters, their gradients and all buffers: a model may stay, and its copies may."""
    tensors: list = []
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.Parameter):
            tensors += [thing, thing.grad]
        elif issubclass(type(thing), torch.nn.Module):
            tensors += vars(thing).get("_buffers", {}).values()
    with torch._C.DisableTorchFunction():
        return {block_of(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)}


def sum_over_steps(recorder: Any, frame: Any) -> Any:
    """The leak of a variable such as `total` in ``total += loss``, or None; marks what it may find at the next look.

    Such a sum has in its graph the node that the same variable had some steps ago.
    """
    found = None
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            for name, value in variables(frame):
                tensor = issubclass(type(value), torch.Tensor)  # asks the object nothing
                if tensor and value.numel() == 1 and value.grad_fn:
                    if adds(value.grad_fn, recorder):
                        place = keeping_line(frame.f_code.co_filename, name)
                        place = place or (frame.f_code.co_filename, frame.f_lineno)
                        found = found or {"place": place, "name": name, "bytes": 0, "sum": True}
                    value.grad_fn.metadata["practice"] = recorder.steps
        frame = frame.f_back
    return found


def adds(node: Any, recorder: Any) -> Any:
    """Whether a node of the graph adds something to one that was marked at an earlier step."""
    nodes, seen = [node], 0
    while nodes and seen < MOST:
        node = nodes.pop()
        seen += 1
        if node.metadata.get("practice", recorder.steps) < recorder.steps:
            return True
        if node.name().startswith("AddBackward"):
            nodes += [child for child, _ in node.next_functions if child is not None]
    return False


def is_growing(blocks: Any, recorder: Any, place: Any) -> Any:
    """Whether many steps, or turns of its line, a late one among them, left something here."""
    if recorder.steps:  # those of the latest training: models of earlier ones may stay
        births = {max(block.step, 0) for block in blocks}
        births = {step for step in births if step >= recorder.rounds.began}
        before = recorder.steps - 1  # what the latest step made may still be in use
        late = any(before - RECENT < step < before for step in births)
        return len(births) >= BIRTHS and late
    births = {-block.step for block in blocks if block.kind != "data"} or {0}
    return len(births) >= TURNS and max(births) > recorder.turns[place] - RECENT


def grown(keepers: Any, recorder: Any) -> Any:
    """Those that were there at the look before, with less in them, and that don't begin anew in a loop."""
    early = recorder.taken < EARLY
    keepers = [keeper for keeper in keepers if keeper["lasts"] and (keeper["outer"] or not early)]
    before = recorder.boxes
    recorder.boxes = {keeper["box"]: keeper["count"] for keeper in keepers}
    return [
        keeper for keeper in keepers if before.get(keeper["box"], keeper["count"]) < keeper["count"]
    ]


def keepers_of(frame: Any, leaked: Any) -> Iterator[Any]:
    """The lists, dictionaries and sets among a frame's variables that keep leaked tensors."""
    for label, box in variables(frame):
        tensors: Any = kept_in(box, leaked)
        if len(tensors) >= BIRTHS:
            yield {
                "name": label,
                "outer": frame.f_code.co_name == "<module>",
                "lasts": not begins_anew(frame.f_code.co_filename, label),
                "box": (label, id(box)),
                "count": len(tensors),
                "place": keeping_line(frame.f_code.co_filename, label),
                "bytes": sum(block.size for block in map(block_of, tensors) if block is not None),
                "graph": any(tensor.grad_fn is not None for tensor in tensors),
            }


def variables(frame: Any) -> Iterator[Any]:
    """(name, value) of a frame's variables, of an object those of its attributes: "self.total"."""
    for name, value in list(frame.f_locals.items()):
        plain = isinstance(value, (type, torch.nn.Module, torch.Tensor))
        if plain or not hasattr(value, "__dict__"):
            yield name, value
        else:
            yield from ((f"{name}.{key}", item) for key, item in vars(value).items())


def kept_in(box: Any, leaked: Any) -> Any:
    """The leaked tensors in a list, dictionary, set or deque."""
    if not issubclass(type(box), (list, dict, set, deque)) or len(box) > 100_000:
        return []
    values = list(box.values() if isinstance(box, dict) else box)
    with torch._C.DisableTorchFunction():
        leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        return [tensor for tensor in leaves if block_of(tensor) in leaked]


def keeping_line(file: Any, name: Any) -> Any:
    """(file, line) where something is put into the container of that name, or None."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    attribute = name.rpartition(".")[2]
    lines = []
    for node in ast.walk(tree):
        goal = container_of(node)
        at = getattr(node, "lineno", 0)
        if goal is not None and ast.unparse(goal).rpartition(".")[2] == attribute:
            replaces = isinstance(node, ast.Assign)  # rather a line that adds something
            lines.append((replaces, at))
    return (file, min(lines)[1]) if lines else None


def begins_anew(file: str, name: str) -> bool:
    """Whether a loop makes the container of that name anew."""
    tree: Any = statements.tree(file) or ast.Pass()
    made: list[Any] = [node for node in ast.walk(tree) if is_made(node, name)]
    return any(statements.loop(file, node.lineno) for node in made)


def is_made(node: Any, name: str) -> bool:
    """Whether a statement assigns something to a name that isn't made of it."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return name in map(ast.unparse, targets) and name not in ast.unparse(node.value)


def container_of(node: Any) -> Any:
    """The expression for what a statement or call puts something into, or None."""
    goal = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        goal = node.func.value if node.func.attr in KEEPS else None
    elif isinstance(node, ast.AugAssign):
        goal = node.target
    elif isinstance(node, ast.Assign):
        value = node.value
        added = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
        sides = [value.left, value.right] if isinstance(value, ast.BinOp) and added else []
        again = ast.dump(node.targets[0]).replace("Store", "Load") in map(ast.dump, sides)
        goal = node.targets[0] if again or isinstance(node.targets[0], ast.Subscript) else None
    while isinstance(goal, ast.Subscript):
        goal = goal.value
    return goal
