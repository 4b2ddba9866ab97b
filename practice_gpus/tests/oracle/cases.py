"""The cases of the oracle: each operator of PyTorch's OpInfo tables by devices, dtypes, out= and in place, and snippets.

A case is (key, what to call). Its key says what it is: ``add/float32/cuda cpu`` or a snippet's text.
"""

from __future__ import annotations

import ast
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import words
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

T = torch.Tensor
SNIPPETS = Path(__file__).with_name("snippets.txt")
DTYPES = "float32 float64 float16 bfloat16 complex64 int64 int32 int16 int8 uint8 bool"
DTYPES += " complex128 complex32 uint16 float8_e4m3fn"
MOST_MOVED = 4  # tensors of a call that are moved to other devices, one by one
Case = tuple[str, Callable[[], Any]]


def groups(every: int = 1) -> list[Callable[[], Iterator[Case]]]:
    """What makes the cases of each line of snippets.txt and of each operator, or of one of ``every``."""
    from torch.testing._internal.common_methods_invocations import op_db

    lines = [line for line in SNIPPETS.read_text().splitlines() if line and line[0] != "#"]
    operators = [op for op in op_db if "jiterator" not in op.name]  # which are refused by name
    found = [(line, partial(snippets, line)) for line in lines]
    found += [(op.full_name, partial(of_operator, op)) for op in operators]
    return [made for name, made in found if zlib.crc32(name.encode()) % every == 0]


def of_operator(op: Any) -> Iterator[Case]:
    """The cases of one operator."""
    for dtype in DTYPES.split():
        sample = best_sample(op, getattr(torch, dtype))
        if sample is None:
            continue
        yield f"{op.full_name}/{dtype}/cuda", lambda s=sample: call(op, placed(s, "cuda"))
        if dtype in ("float32", "int64", "float16"):
            yield from with_numbers(op, dtype, sample)
        if dtype == "float32" or "float32" not in names_of(op.dtypes) and dtype == first_of(op):
            yield from by_devices(op, dtype, sample)
            yield from into(op, dtype, sample)
            yield from in_place(op, dtype, sample)
            yield from backwards(op, dtype, sample)


def names_of(dtypes: Any) -> list[str]:
    """Their names, in this file's order."""
    return [name for name in DTYPES.split() if getattr(torch, name) in set(dtypes)]


def first_of(op: Any) -> str:
    """The dtype that stands for all where an operator has no float32."""
    return (names_of(op.dtypes) or ["float32"])[0]


def best_sample(op: Any, dtype: torch.dtype) -> tuple | None:
    """(arguments, named arguments) of the sample with the most tensors, none of them empty or a number, else the largest
    numbers; None without samples."""
    torch.manual_seed(0)
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), 12))
    except Exception:  # made for dtypes that this one is none of: the generators are PyTorch's
        return None
    found = [((s.input, *s.args), s.kwargs) for s in samples]
    return max(found, key=size, default=None)


def size(sample: tuple) -> tuple:
    """What is larger for the sample that says more."""
    inputs = tensors(sample)
    numbers = sum(value for value in tree_flatten(sample)[0] if type(value) is int)
    filled = all(x.numel() for x in inputs)
    return len(inputs), filled, all(x.dim() for x in inputs), 0 if inputs else numbers


def tensors(value: Any) -> list[T]:
    """The tensors in nested lists and dictionaries."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, T)]


def placed(sample: Any, *devices: str, change: Callable | None = None) -> Any:
    """``sample`` with its tensors on ``devices``, the last of which stands for the rest."""
    leaves, spec = tree_flatten(sample)
    turns = iter((*devices, *[devices[-1]] * len(leaves)))
    moved = []
    for leaf in leaves:
        if isinstance(leaf, T):
            leaf = leaf.detach().to(next(turns))
        elif isinstance(leaf, torch.device) or leaf == "cpu":
            leaf = torch.device(devices[0])
        moved.append(leaf)
    return tree_unflatten(moved, spec)


def call(op: Callable, sample: tuple, **options: Any) -> Any:
    """What the operator returns."""
    args, named = sample
    return op(*args, **named, **options)


def by_devices(op: Any, dtype: str, sample: tuple) -> Iterator[Case]:
    """One tensor elsewhere than the others, whole or as a single number; all on another device than the current one."""
    count = min(len(tensors(sample)), MOST_MOVED)
    base = ["cuda:0"] * count
    patterns = [["cuda:1"] * count, ["cpu"] * count] if count else []
    for index in range(count):
        for there in ("cpu", "cuda:1"):
            patterns.append([*base[:index], there, *base[index + 1 :]])
    rest = ["cuda:0"] if len(tensors(sample)) > count else []
    for pattern in [p for i, p in enumerate(patterns) if p not in patterns[:i] and p != base]:
        key = f"{op.full_name}/{dtype}/{' '.join(pattern)}"
        yield key, lambda p=pattern: call(op, placed(sample, *p, *rest))
        if count > 1 and len(set(pattern)) > 1:
            odd = next(i for i, device in enumerate(pattern) if pattern.count(device) == 1)
            yield (
                f"{key} number{odd}",
                lambda p=pattern, i=odd: call(op, number(placed(sample, *p, *rest), i)),
            )


def number(sample: tuple, index: int) -> tuple:
    """``sample`` with a tensor without dimensions in place of the one at ``index``."""
    count = itertools.count()

    def one(x: T) -> T:
        return (
            x.reshape(-1)[:1].reshape(())
            if next(count) == index and x.layout == torch.strided
            else x
        )

    return tree_map_only(T, one, sample)


def with_numbers(op: Any, dtype: str, sample: tuple) -> Iterator[Case]:
    """Numbers of Python that a half cannot hold, where the sample has numbers."""
    args, named = sample
    if not any(type(value) is float for value in (*args, *named.values())):
        return
    large = tree_map_only(float, lambda value: 1e9 if type(value) is float else value, sample)
    yield f"{op.full_name}/{dtype}/cuda large", lambda: call(op, placed(large, "cuda"))


def into(op: Any, dtype: str, sample: tuple) -> Iterator[Case]:
    """``out=`` on each device, and of a dtype that may not fit."""
    if not op.supports_out:
        return
    for device, other in (("cuda", "cpu"), ("cuda", "cuda:1"), ("cpu", "cuda"), ("cuda", "cuda")):
        for kind in ("", "long")[: 1 + (device == other)]:

            def run(device=device, other=other, kind=kind):
                made = call(op, placed(sample, "cpu"))
                change = {"dtype": torch.int64} if kind else {}
                out = tree_map_only(
                    T,
                    lambda x: torch.empty(x.shape, **({"dtype": x.dtype} | change)).to(other),
                    made,
                )
                return call(op, placed(sample, device), out=out)

            yield f"{op.full_name}/{dtype}/{device} out={other} {kind}".rstrip(), run


def in_place(op: Any, dtype: str, sample: tuple) -> Iterator[Case]:
    """The method with an underscore, on devices that differ, and on integers."""
    inplace = op.get_inplace()
    if inplace is None:
        return
    many = len(tensors(sample)) > 1
    for devices in (("cuda",), ("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda:1"))[
        : 4 if many else 1
    ]:
        yield (
            f"{op.full_name}_/{dtype}/{' '.join(devices)}",
            lambda d=devices: call(inplace, placed(sample, *d)),
        )

    def integers():
        (first, *rest), named = placed(sample, "cuda")
        return inplace(first.long(), *rest, **named)

    if isinstance(sample[0][0], T):
        yield f"{op.full_name}_/{dtype}/cuda long", integers


def backwards(op: Any, dtype: str, sample: tuple) -> Iterator[Case]:
    """Gradients: where they are, of what dtype and shape."""
    if (
        not op.supports_autograd
        or not torch.zeros(0, dtype=getattr(torch, dtype)).is_floating_point()
    ):
        return

    def run():
        ours = placed(sample, "cuda")
        wanted = [
            x.requires_grad_()
            for x in tensors(ours)
            if x.is_floating_point() and x.layout == torch.strided
        ]
        results = [x for x in tensors(call(op, ours)) if x.requires_grad]
        return torch.autograd.grad([x.sum() for x in results], wanted, allow_unused=True)

    yield f"{op.full_name}/{dtype}/cuda backward", run


def snippets(line: str) -> Iterator[Case]:
    """What a line of snippets.txt stands for."""
    for text in choices(line):
        yield text, partial(evaluated, text)


def choices(line: str) -> Iterator[str]:
    """``line`` with each way to choose between <a|b>; $1 repeats the first choice, $2 the second."""
    parts = re.split(r"<([^<>]*\|[^<>]*)>", line)
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    for chosen in itertools.product(*options):
        yield re.sub(r"\$(\d)", lambda match, c=chosen: c[2 * int(match[1]) - 1], "".join(chosen))


def evaluated(source: str) -> Any:
    """The value of the last expression of a snippet."""
    names = {"torch": torch, "T": T, "dist": torch.distributed} | vars(words)
    tree = ast.parse(source.replace("⏎", "\n"))
    last = ast.Expression(tree.body.pop().value)
    uses = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    uses |= {node.id for node in ast.walk(last) if isinstance(node, ast.Name)}
    names |= {name: make() for name, make in words.MADE.items() if name in uses}
    try:
        exec(compile(tree, "snippet", "exec"), names)
        return eval(compile(last, "snippet", "eval"), names)
    finally:
        words.clean()
