"""``python -m practice_gpus kernel my.cu 'transpose<32>' --grid 32,32 --block 32,8 --arg 'float[1024,1024]' …``.

Compiles one kernel of a CUDA C++ file for a card, runs it on the CPU and prints what it did: registers, occupancy, sectors,
bank conflicts, findings, each with its line. Without --grid it only compiles. A Python file runs as it is, on a practice
GPU, and each Triton kernel that it launches is reported.

--arg takes, in the kernel's order: a tensor such as float[1024,1024] (filled by randn; of whole numbers by zeros), with
=zeros, =ones, =arange, =randn, =rand, =empty or =FILE.pt behind it; a number; true or false; null; a struct as {3,1.5}.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

from practice_gpus.settings import can_be_written

MOST_THREADS = 1024  # of a block, on every card
TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bf16": torch.bfloat16,
}
TYPES |= {
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
}
TYPES |= {"bool": torch.bool, "uint": torch.uint32, "ulong": torch.uint64}
TENSOR = re.compile(r"(\w+)\[([\d,\s]*)\](?:=(.+))?$")
WORDS = {"null": None, "nullptr": None, "true": True, "false": False}


def options(arguments: list[str]) -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m practice_gpus kernel",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=_file, help="a .cu file, or a Python file that launches Triton kernels"
    )
    parser.add_argument(
        "name",
        nargs="?",
        type=_name,
        help="the kernel, such as 'transpose<32>'; not needed where there is one",
    )
    parser.add_argument("--grid", type=_sizes, help="blocks, such as 32,32")
    parser.add_argument("--block", type=_threads, default=(256,), help="threads of a block (256)")
    parser.add_argument("--arg", action="append", default=[], metavar="VALUE", help="an argument")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a __constant__ or __device__ variable",
    )
    parser.add_argument("--card", default="A100", help="compile for this card (A100)")
    parser.add_argument("--shared", type=_bytes, default=0, help="bytes of dynamic shared memory")
    parser.add_argument(
        "--flag", action="append", default=[], help="for the compiler, such as --flag=-DN=32"
    )
    parser.add_argument(
        "--limit", type=_seconds, default=60, help="seconds for the compiler, and for the run (60)"
    )
    parser.add_argument(
        "--save",
        type=_new_file,
        metavar="FILE",
        help="write the arguments there after the run, by torch.save",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status: 0, or 1 with one sentence on the standard error."""
    args = options(arguments)
    try:
        if args.file.endswith(".py"):
            _python(args)
        else:
            _cuda(args)
    except (
        OSError,
        ValueError,
        TypeError,
        ImportError,
        NotImplementedError,
        TimeoutError,
    ) as error:
        return _failed(error)
    except Exception as error:
        from practice_gpus.kernels import KernelError

        if not isinstance(error, KernelError):
            raise
        return _failed(error)
    return 0


def _failed(error):
    print(f"python -m practice_gpus kernel: {error}", file=sys.stderr)
    return 1


def _cuda(args):
    from practice_gpus import kernels

    torch.manual_seed(0)
    unit = kernels.file(args.file)
    threads = torch.Size(args.block).numel()
    settings = {"threads": threads, "shared": args.shared, "flags": args.flag, "limit": args.limit}
    compiled = kernels.compile(unit, args.name, args.card, **settings)
    print(compiled)
    if args.grid is None:
        return
    if len(args.arg) != len(compiled.kinds):
        takes = ", ".join(f"{each} {each.name}" for each in compiled.kinds)
        raise TypeError(f"{len(args.arg)} --arg; {compiled.name} takes {takes or 'none'}")
    values = [value(each) for each in args.arg]
    symbols = {name: value(text) for name, _, text in (each.partition("=") for each in args.set)}
    result = kernels.run(
        compiled, args.grid, args.block, *values, symbols=symbols, limit=args.limit
    )
    show(result)
    for name, each in zip(compiled.parameters, values, strict=True):
        if isinstance(each, torch.Tensor):
            print(f"{name}: {summary(each)}")
    if args.save:
        torch.save(dict(zip(compiled.parameters, values, strict=True)), args.save)


def show(result: Any) -> None:
    """Print what a run counted, and its findings."""
    for block, thread, text in result.printed:
        print(f"block {block} thread {thread}: {text}", end="" if text.endswith("\n") else "\n")
    print(result)
    for what, line, words in result.findings():
        print(f"finding: {what}: {words}, in {line}")


def summary(tensor: torch.Tensor) -> str:
    """Return a tensor's first numbers, and how many aren't finite."""
    first = ", ".join(f"{each:.5g}" for each in tensor.flatten()[:6].double().tolist())
    bad = 0 if not tensor.is_floating_point() else int((~tensor.float().isfinite()).sum())
    return f"{first}{', …' if tensor.numel() > 6 else ''}{f' ({bad:,} not finite)' if bad else ''}"


def value(text: str) -> Any:
    """Return the argument that a text on the command line means; raises ValueError."""
    text = text.strip()
    if text in WORDS:
        return WORDS[text]
    if text[:1] == "{" and text[-1:] == "}":
        return tuple(value(each) for each in _split(text[1:-1]))
    if found := TENSOR.match(text):
        return _tensor(text, *found.groups())
    for kind in (lambda each: int(each, 0), float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise ValueError(
        f"--arg {text}: it takes a tensor such as float[1024], a number, null, or {{a,struct}}"
    )


def _split(text):
    """Return what stands between the commas that are in no bracket."""
    parts, depth = [""], 0
    for each in text:
        depth += (each in "[{") - (each in "]}")
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def _tensor(text, kind, sizes, how):
    if kind not in TYPES:
        raise ValueError(f"--arg {text}: {kind} is none of {', '.join(TYPES)}")
    dtype, shape = TYPES[kind], [int(each) for each in sizes.split(",") if each.strip()]
    how = how or ("randn" if dtype.is_floating_point else "zeros")
    if how == "arange":
        return torch.arange(torch.Size(shape).numel()).to(dtype).reshape(shape)
    if how in ("zeros", "ones", "empty", "randn", "rand"):
        made = getattr(torch, how)
        return made(shape).to(dtype) if how in ("randn", "rand") else made(shape, dtype=dtype)
    found = torch.load(how, weights_only=True)
    if list(found.shape) != shape or found.dtype != dtype:
        raise ValueError(f"--arg {text}: the file has {found.dtype} of shape {list(found.shape)}")
    return found.contiguous()


def _sizes(text):
    sizes = tuple(int(each) if each.strip().isdecimal() else 0 for each in text.split(","))
    if min(sizes) < 1 or len(sizes) > 3:
        raise argparse.ArgumentTypeError(
            f"takes one to three numbers above 0, such as 32,32, not {text!r}"
        )
    return sizes


def _threads(text):
    sizes = _sizes(text)
    if math.prod(sizes) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"takes at most {MOST_THREADS} threads, not {text!r}")
    return sizes


def _seconds(text):
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"takes seconds above 0, not {text!r}")


def _bytes(text):
    if text.isascii() and text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"takes a number of bytes, 0 or more, not {text!r}")


def _file(text):
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"is {text!r}, and there is no such file")
    return text


def _new_file(text):
    if os.path.lexists(text) or not can_be_written(Path(text)):
        raise argparse.ArgumentTypeError(
            f"takes a new file in a folder that can be written, not {text!r}"
        )
    return text


def _name(text):
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def _python(args):
    """Run a program on a practice GPU, and show the first launch of each kernel."""
    from practice_gpus import kernels, practice_gpus

    with (
        practice_gpus(1, memory="16 GiB", real="hide"),
        kernels.launches(args.card, args.limit, args.limit) as seen,
    ):
        runpy.run_path(args.file, run_name="__main__")
    first: dict = {}
    for result in seen:
        first.setdefault(result.compiled.name, []).append(result)
    if args.name:
        first = {name: results for name, results in first.items() if name == args.name}
    if not first:
        raise ValueError(
            f"{args.file} launched no kernel{f' named {args.name}' if args.name else ''}"
        )
    for name, results in first.items():
        print(f"\n{results[0].compiled}")
        if len(results) > 1:
            print(f"the first of {len(results)} launches of {name}:")
        show(results[0])
