"""Memory that grows from step to step: which line takes it, and which list or dictionary keeps it."""

import ast
import linecache
from collections import defaultdict, deque

import torch
from torch.utils._pytree import tree_leaves

from .origins import block_of, is_own, line

RECENT = 6  # of so many steps
BIRTHS = 4  # at least so many left something from the same line
SMALL = 4096  # bytes a step that may be kept on purpose, such as detached losses
KEEPS = ("append", "appendleft", "add", "extend", "insert", "put", "update", "setdefault")


def find(recorder, frame):
    """{"place": (file, line), "name": what keeps it or None, "bytes": a step} of the largest leak, or None."""
    groups = defaultdict(list)
    for memory in recorder.memory:
        for block in memory.live:
            if block.kind not in ("parameters", "optimizer") and block.origin is not None:
                groups[id(block.origin[0]), block.origin[1]].append(block)
    growing = [blocks for blocks in groups.values() if is_growing(blocks, recorder.steps)]
    if not growing:
        return None
    leaked = {block for blocks in growing for block in blocks}
    births = {block.step for block in leaked}
    step = sum(block.size for block in leaked) // len(births)
    kept = None
    while frame is not None and kept is None:
        if is_own(frame.f_code.co_filename):
            kept = keeper(frame, leaked)
        frame = frame.f_back
    if (kept is None or not kept["graph"]) and step <= SMALL:
        return None
    largest = max(growing, key=lambda blocks: sum(block.size for block in blocks))
    place = kept and kept["place"] or line(largest[0].origin)
    return {"place": place, "name": kept and kept["name"], "bytes": step}


def is_growing(blocks, steps):
    """Whether most of the latest steps left something here."""
    return len({block.step for block in blocks if block.step > steps - RECENT - 1}) >= BIRTHS


def keeper(frame, leaked):
    """Name, line and nature of the list, dictionary or set among a frame's variables that keeps leaked tensors."""
    for name, value in list(frame.f_locals.items()):
        inside = {name: value}
        if hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module)):
            inside = {f"{name}.{key}": item for key, item in vars(value).items()}
        for label, box in inside.items():
            held = kept_in(box, leaked)
            if len(held) >= BIRTHS:
                place = keeping_line(frame.f_code.co_filename, label)
                return {
                    "name": label,
                    "place": place,
                    "graph": any(tensor.grad_fn is not None for tensor in held),
                }
    return None


def kept_in(box, leaked):
    """The leaked tensors in a list, dictionary, set or deque."""
    if not isinstance(box, (list, dict, set, deque)) or len(box) > 100_000:
        return []
    values = list(box.values() if isinstance(box, dict) else box)
    with torch._C.DisableTorchFunction():
        leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        return [tensor for tensor in leaves if block_of(tensor) in leaked]


def keeping_line(file, name):
    """(file, line) where something is put into the container of that name, or None."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    attribute = name.rpartition(".")[2]
    for node in ast.walk(tree):
        goal = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            goal = node.func.value if node.func.attr in KEEPS else None
        elif isinstance(node, ast.AugAssign):
            goal = node.target
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            goal = node.targets[0].value
        if goal is not None and ast.unparse(goal).rpartition(".")[2] == attribute:
            return file, node.lineno
    return None
