"""What a launch is checked for before a thread runs: its sizes, the card's limits, variables that lack a value.

Limits of a launch: NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from practice_gpus.kernels.cards import multiprocessor
from practice_gpus.kernels.errors import KernelError

if TYPE_CHECKING:
    from practice_gpus.kernels.compiler import Compiled
    from practice_gpus.kernels.memory import Memory
    from practice_gpus.kernels.ptx_parser import Module

GRID = (2**31 - 1, 65_535, 65_535)
BLOCK = (1024, 1024, 64)
THREADS = 1024


def sizes(name: str, given: Any, limits: tuple) -> tuple:
    """Return a grid or a block as three sizes; raises ValueError for what no launch takes."""
    found = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(found) <= 3 or any(not isinstance(each, int) or each < 1 for each in found):
        raise ValueError(f"{name} is {found}; it takes one to three whole numbers from 1 on")
    found += (1,) * (3 - len(found))
    for axis, each, most in zip("xyz", found, limits, strict=True):
        if each > most:
            raise ValueError(f"{name} is {given}; its {axis} is at most {most:,}")
    return found


def block_of(compiled: Compiled, block: Any) -> tuple:
    """Return the three sizes of a block; raises ValueError where the card would refuse the launch."""
    if compiled.language == "triton":
        if block is not None and int(np.prod(block)) != compiled.threads:
            raise ValueError(
                f"block is {block}; this Triton kernel has {compiled.threads} threads: leave it None"
            )
        return (compiled.threads, 1, 1)
    if block is None:
        raise ValueError(
            "block is None; a CUDA C kernel takes the threads of a block, such as 256 or (32, 8)"
        )
    found = sizes("block", block, BLOCK)
    threads = int(np.prod(found))
    if threads > THREADS:
        raise ValueError(f"block is {block}, {threads} threads; a block has at most 1,024")
    bounds = re.search(r"\.(maxntid|reqntid) (\d+)(?:, (\d+))?(?:, (\d+))?", compiled.of_entry)
    most = int(np.prod([int(each) for each in bounds.groups()[1:] if each])) if bounds else THREADS
    if threads > most:
        raise ValueError(
            f"block is {block}, {threads} threads; __launch_bounds__ of {compiled.name} allows {most}"
        )
    return found


def check_resources(compiled: Compiled, threads: int) -> None:
    """Raise ValueError where no SM of the card can hold a block of the kernel."""
    sm = multiprocessor(compiled.card)
    if compiled.shared > sm.shared_of_block:
        raise ValueError(
            f"{compiled.name} takes {compiled.shared:,} bytes of shared memory; a block has at most "
            f"{sm.shared_of_block:,} on {compiled.card}"
        )
    needed = -(-threads // 32) * 32 * compiled.registers
    if needed > sm.registers:
        raise ValueError(
            f"{threads} threads of {compiled.registers} registers are {needed:,}; an SM has {sm.registers:,}: "
            f"fewer threads, or __launch_bounds__({threads})"
        )


def set_symbols(compiled: Compiled, module: Module, memory: Memory, given: Mapping) -> None:
    """Write values into __constant__ and __device__ variables. Raises where a name or size is wrong, or one lacks."""
    symbols = compiled.symbols
    for name in given:
        if name not in symbols:
            raise ValueError(
                f"symbols has {name}; {compiled.name} has {', '.join(symbols) or 'none'}"
            )
    used = " ".join(each.text for each in module.instructions)
    for name, label in symbols.items():
        if name in given:
            memory.set(label, _contents(given[name]), name)
        elif compiled.unit.is_set_by_host(name) and re.search(
            rf"(?<![\w$]){re.escape(label)}(?![\w$])", used
        ):
            place = compiled.unit.variables(name)[0].line
            raise KernelError(
                f"{name} (line {place}) has no value before the host copies one to it: give symbols={{'{name}': a tensor}}"
            )


def _contents(value):
    return (
        value if isinstance(value, bytes) else torch.as_tensor(value).contiguous().numpy().tobytes()
    )
