"""Compiles a Triton function or CUDA C for a card that needn't be here, and says what the compiler made of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practice_gpus.kernels import client, source
from practice_gpus.kernels.cards import multiprocessor
from practice_gpus.kernels.dataflow import Flow
from practice_gpus.kernels.errors import Line
from practice_gpus.kernels.occupancy import occupancy
from practice_gpus.kernels.ptx_parser import parse
from practice_gpus.kernels.translation_unit import Unit, file

if TYPE_CHECKING:
    from practice_gpus.kernels.occupancy import Occupancy
    from practice_gpus.kernels.ptx_parser import Module

TENSOR_CORES = re.compile(r"(?:@!?U?P\w+ )?([HIQDBO]MMA|[HIQB]GMMA|UTC\w*MMA)\b")
ACCESS = re.compile(r"\b(LD|ST)(G|S|)(STS)?((?:\.\w+)*) ")
NEVER = "@!PT"  # where a fault of the card asks for an access that isn't done
SIZES = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
SPILLS = re.compile(r"(?:@!?U?P\w+ )?(STL|LDL)\b")
TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
TYPES |= {"int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "i1"}
COMPILED: dict = {}  # what was asked → what came; a compiler gives one answer


@dataclass(frozen=True)
class Compiled:
    """A kernel as `card` would run it. Sizes in bytes; `registers` and `stack` are for one thread.

    A `stack` that isn't 0 means that registers ran out and were spilled to memory (or that an array is indexed by a
    number known only when the kernel runs).
    """

    name: str
    card: str
    language: str
    text: str = field(repr=False)  # the source whose lines are numbered
    ptx: str = field(repr=False)
    machine_code: list = field(repr=False)  # [(line of the text, instruction)]
    registers: int
    stack: int
    static_shared: int
    dynamic_shared: int
    threads: int  # of a block
    divisible: tuple = ()  # places of the arguments that were taken to be divisible by 16
    fixed: dict = field(
        default_factory=dict
    )  # arguments that became part of the code: name → value
    parameters: tuple = ()  # names of the arguments, in order, without those that are fixed
    loops: list = field(default_factory=list, repr=False)  # [(first, end)] in `machine_code`
    offset: int = field(default=0, repr=False)  # lines before the kernel in what was compiled
    entry: str = ""  # the kernel's name in the PTX
    file: str = "kernel.py"  # the source's name there
    kinds: tuple = field(default=(), repr=False)  # of a CUDA C++ kernel: its `Parameter`s
    symbols: dict = field(
        default_factory=dict, repr=False
    )  # its variables → their names in the PTX
    unit: Any = field(
        default=None, repr=False, compare=False
    )  # its file, a `translation_unit.Unit`

    @cached_property
    def module(self) -> Module:
        """The parsed PTX."""
        others = (
            {name: text for name, (text, _) in self.unit.files.items() if name} if self.unit else {}
        )
        return parse(self.ptx, self.entry, self.text, self.offset, self.file, others)

    @property
    def of_entry(self) -> str:
        """What the PTX says of the kernel before its instructions."""
        start = re.search(rf"\.entry\s+{re.escape(self.entry)}\s*\(", self.ptx)
        return self.ptx[start.start() : self.ptx.index("{", start.end())] if start else ""

    @cached_property
    def flow(self) -> Flow:
        """Which values of the code come of which."""
        return Flow(self.module)

    @property
    def shared(self) -> int:
        """Static and dynamic shared memory of a block, in bytes."""
        return self.static_shared + self.dynamic_shared

    @property
    def occupancy(self) -> Occupancy:
        """How many blocks an SM of the card can hold, and why not more."""
        return occupancy(multiprocessor(self.card), self.threads, self.registers, self.shared)

    @property
    def tensor_cores(self) -> dict[str, int]:
        """Tensor-core instructions in the machine code: {"HMMA": 32}; empty where there are none."""
        found = (TENSOR_CORES.match(text) for _, text in self.machine_code)
        return dict(Counter(each[1] for each in found if each))

    @cached_property
    def widths(self) -> dict:
        """How wide the machine code's accesses are: {(line, "load" or "store", space): {bytes of one thread: how many}}."""
        found: dict = {}
        for number, text in self.machine_code:
            for kind, space, copies, words in ACCESS.findall(
                "" if text.startswith(NEVER) else text
            ):
                size = next((SIZES[each] for each in words.split(".") if each in SIZES), 4)
                where = {"G": ["global"], "S": ["shared"], "": ["global", "shared"]}[space]
                moves = [({"LD": "load", "ST": "store"}[kind], each) for each in where]
                for move in [*moves, ("store", "shared")] if copies else moves:
                    found.setdefault((self.line(number), *move), Counter())[size] += 1
        return found

    @property
    def sass(self) -> str:
        """The machine code as text."""
        return "\n".join(text for _, text in self.machine_code)

    @property
    def spills(self) -> dict:
        """Instructions that put registers on the stack or fetch them back: {line: how many}."""
        lines = [line for line, text in self.machine_code if SPILLS.match(text)]
        return {self.line(number): count for number, count in Counter(lines).most_common()}

    def line(self, number: int) -> Line:
        """Return the `Line` of the kernel that is line `number` of what was compiled."""
        texts = self.text.splitlines()
        words = texts[number - 1].strip() if 0 < number <= len(texts) else ""
        return Line(number - self.offset, words)

    @property
    def accesses(self) -> list[tuple]:
        """Each load and store of global memory in the PTX: [(line, "load" or "store", bytes of one thread)]."""
        found = []
        for each in self.module.instructions:
            if each.moves_global:
                kind = "store" if each.name in ("st", "red") else "load"
                found.append((each.line, kind, each.bytes))
        return found

    def by_line(self) -> dict:
        """Return {line of the source: [PTX instructions that came of it]}, lines in their order."""
        found: dict = {}
        for each in sorted(self.module.instructions, key=lambda each: each.line.number):
            found.setdefault(each.line, []).append(each.text)
        return found

    def __str__(self):
        cores = ", ".join(f"{count} {name}" for name, count in self.tensor_cores.items())
        return (
            f"{self.name} on {self.card}: {self.registers} registers, {self.stack} bytes of stack, "
            f"{self.shared:,} bytes of shared memory, occupancy {self.occupancy}, "
            f"tensor cores: {cores or 'none'}"
        )


def compile(
    function: Any,
    signature: Any = None,
    card: str = "H100",
    *,
    aligned: bool = True,
    limit: float = 60,
    **options: Any,
) -> Compiled:
    """Return a `Compiled` kernel; needs no GPU.

    `function` under @triton.jit with `signature` {parameter: tensor, number, or type such as "*fp32"}; values of
    tl.constexpr among them. Or CUDA C++, as text or a `Path`, with `signature` the kernel's name, such as "transpose<32>"; host
    code is set aside. `aligned`: pointers and integers count
    as divisible by 16 where they are (types always), as at a real launch; False: never. `limit` in seconds.
    More `options`: for Triton num_warps, num_stages; for CUDA C threads (of a block), shared (dynamic bytes), flags.
    Raises CompileError, CompileTimeout or CompilerMissing.
    """
    sm = multiprocessor(card)
    if isinstance(function, (str, Path, Unit)):
        request, rest = _cuda_request(_unit(function), signature, **options)
    else:
        request, rest = _triton_request(function, signature, aligned, options)
    request["capability"] = sm.capability
    key = repr((request, aligned))
    if key not in COMPILED:
        COMPILED[key] = client.ask(request, limit)
    found = COMPILED[key]
    block = re.search(r"\.(?:reqntid|maxntid) (\d+)", found["ptx"])
    given = rest.pop("threads", None) or (int(block[1]) if block else 256)
    return Compiled(
        name=request["name"],
        card=card,
        language=request["language"],
        text=rest.pop("text", request["text"]),
        entry=found["entry"],
        symbols=found["symbols"],
        ptx=found["ptx"],
        machine_code=found["sass"],
        loops=found["loops"],
        registers=found["registers"],
        stack=found["stack"],
        static_shared=found["static"]
        - (sm.shared_reserved if found["static"] and sm.capability >= 90 else 0),
        dynamic_shared=found["dynamic"] + rest.pop("shared", 0),
        threads=found["threads"] or given,
        **rest,
    )


def _unit(given):
    if isinstance(given, Unit):
        return given
    return Unit(given) if isinstance(given, str) else file(given)


def _cuda_request(unit, name, threads=None, shared=0, flags=()):
    if name is not None and not isinstance(name, str):
        raise TypeError(f"signature is {type(name).__name__}; for CUDA C++ it is the kernel's name")
    name = name or unit.only()
    request = {"language": "cuda", "options": list(flags)} | unit.request(name)
    kinds = unit.parameters(name)
    rest = {
        "threads": threads,
        "shared": shared,
        "text": unit.text,
        "file": unit.name,
        "unit": unit,
    }
    return request, rest | {"kinds": kinds, "parameters": tuple(each.name for each in kinds)}


def _triton_request(function, signature, aligned, options):
    found = source.of_triton(function)
    lacking = [name for name in found.parameters if name not in signature]
    if lacking or len(signature) > len(found.parameters):
        needed = ", ".join(found.parameters)
        raise ValueError(f"signature has {', '.join(signature)}; {found.name} takes {needed}")
    values = {name: signature[name] for name in found.parameters}
    fixed = {name: value for name, value in values.items() if name in found.constants}
    fixed |= {name: 1 for name, value in values.items() if _is_one(value)}
    types = {name: "constexpr" if name in fixed else _type(name, values[name]) for name in values}
    places = [place for place, name in enumerate(values) if name not in fixed]
    names = list(values)
    divisible = [each for each in places if aligned and _is_divisible(values[names[each]])]
    request = {
        "language": "triton",
        "text": found.text,
        "name": found.name,
        "signature": types,
        "constants": fixed,
        "divisible": divisible,
        "options": options,
    }
    parameters = tuple(name for name in names if name not in fixed)
    return request, {
        "divisible": tuple(names[each] for each in divisible),
        "fixed": fixed,
        "parameters": parameters,
        "offset": found.offset,
    }


def _is_one(value):
    """True for an integer 1: a real launch makes it part of the code, too."""
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def _type(name, value):
    """Return Triton's name of a type: "*fp32" of a float tensor, "i32" of an int."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if dtype not in TYPES:
        raise TypeError(
            f"{name} is {type(value).__name__} {dtype}; it takes a tensor, a number, or a type such as '*fp32'"
        )
    return f"*{TYPES[dtype]}"


def _is_divisible(value):
    if isinstance(value, str):
        return value[0] == "*" or value in ("i32", "i64")
    if isinstance(value, (bool, float)):
        return False
    return (value if isinstance(value, int) else value.data_ptr()) % 16 == 0
