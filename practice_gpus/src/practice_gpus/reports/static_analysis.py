"""What can be seen in a program without running it: devices that are hard-coded, and calls that are out of date."""

from __future__ import annotations

import ast
import re
from typing import Any

GUARD = re.compile(r"cuda|gpu|device|accelerator|rank", re.I)
DEVICE = re.compile(r"cuda(:\d+)?")
TAKES_DEVICE = ("to", "device", "set_default_device", "set_device")
HARD = "the device is hard-coded and fails where there is no such GPU"
HARD_FIX = (
    "device = torch.accelerator.current_accelerator() or torch.device('cpu'), then .to(device)"
)
NCCL = "nccl"  # a note that no one reads: a program of NCCL's needs GPUs, so it may name them
LOAD = "torch.load without map_location puts tensors where they were saved, and fails where that GPU is missing"
LOAD_FIX = "add map_location='cpu', and move what was loaded afterwards"
PARALLEL = "nn.DataParallel is slower than one process for each GPU, and PyTorch advises against it"
PARALLEL_FIX = "torch.nn.parallel.DistributedDataParallel with torchrun"
OLD = {
    "torch.cuda.amp": "torch.amp.autocast('cuda') and torch.amp.GradScaler('cuda')",
    "allow_tf32": "torch.backends.cuda.matmul.fp32_precision = 'tf32', or that of torch.backends.cudnn",
    "torch.cuda.FloatTensor": "torch.tensor(…, device=device)",
    "torch.set_default_tensor_type": "torch.set_default_dtype and torch.set_default_device",
}


def look(path: str) -> list:
    """[(kind, line, what is wrong, what to write instead)] in a file; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return []
    reader = Reader()
    reader.visit(tree)
    return sorted(set(reader.notes), key=lambda note: note[1])


class Reader(ast.NodeVisitor):
    """Walks through a program, and knows whether a question about devices was asked around a place."""

    def __init__(self) -> None:
        self.notes: list = []
        self.guarded = False

    def note(self, kind: str, node: Any, text: str, fix: str) -> None:
        """Add something that was seen."""
        self.notes.append((kind, node.lineno, text, fix))

    def visit_guarded(self, node: Any, question: Any) -> None:
        """Visit what depends on a question."""
        before = self.guarded
        self.guarded = before or bool(GUARD.search(ast.unparse(question)))
        self.generic_visit(node)
        self.guarded = before

    def visit_If(self, node: Any) -> None:
        self.visit_guarded(node, node.test)

    visit_IfExp = visit_While = visit_Assert = visit_If

    def visit_arguments(self, node: Any) -> None:
        """Defaults of a function are the caller's to change."""

    def visit_ExceptHandler(self, node: Any) -> None:
        """What stands in where something newer is missing."""

    def visit_BoolOp(self, node: Any) -> None:
        self.visit_guarded(node, node.values[0])

    def visit_Assign(self, node: Any) -> None:
        names = " ".join(ast.unparse(goal) for goal in node.targets)
        if is_device(node.value) and "device" in names.lower():
            self.hard(node)
        if "allow_tf32" in names:
            self.note("deprecated", node, "allow_tf32 is out of date", OLD["allow_tf32"])
        self.generic_visit(node)

    def visit_ImportFrom(self, node: Any) -> None:
        if (node.module or "").startswith("torch.cuda.amp"):
            self.note("deprecated", node, "torch.cuda.amp is out of date", OLD["torch.cuda.amp"])

    def visit_Call(self, node: Any) -> None:
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        options = {option.arg: option.value for option in node.keywords}
        if last == "cuda" and name != "torch.cuda":
            self.hard(node)
        if last in TAKES_DEVICE and any(map(is_device, node.args)):
            self.hard(node)
        if any(is_device(options.get(key)) for key in ("device", "map_location")):
            self.hard(node)
        if (
            name == "torch.load"
            and len(node.args) < 2
            and not {"map_location", None} & set(options)
        ):
            self.note("map_location", node, LOAD, LOAD_FIX)
        if last == "init_process_group" and "nccl" in texts(node):
            self.note(NCCL, node, "", "")
        if last == "DataParallel":
            self.note("data-parallel", node, PARALLEL, PARALLEL_FIX)
        for old in OLD:
            if name.startswith(old):
                self.note("deprecated", node, f"{old} is out of date", OLD[old])
        self.generic_visit(node)

    def hard(self, node: Any) -> None:
        """Note a hard-coded device, unless something asked for devices first."""
        if not self.guarded:
            self.note("hard-coded", node, HARD, HARD_FIX)


def texts(node: ast.Call) -> list:
    """The arguments of a call that are constants."""
    options = [option.value for option in node.keywords]
    return [part.value for part in [*node.args, *options] if isinstance(part, ast.Constant)]


def is_device(node: Any) -> bool:
    """Whether a node is a text such as "cuda" or "cuda:1"."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and DEVICE.fullmatch(text) is not None
