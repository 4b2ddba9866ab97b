"""Reads PTX, NVIDIA's assembly language for GPUs: the instructions of one kernel, its variables and parameters.

Grammar: NVIDIA, "PTX ISA" (docs.nvidia.com/cuda/parallel-thread-execution).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

from practice_gpus.kernels.errors import CompileError, Line, Unsupported

BITS = {"pred": 1} | {f"{kind}{bits}": bits for kind in "busf" for bits in (8, 16, 32, 64)}
BITS |= {"f16x2": 32, "bf16": 16, "bf16x2": 32, "tf32": 32, "s16x2": 32, "u16x2": 32, "b128": 128}
BITS |= {"e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "s4": 4, "u4": 4}
SPACES = ("global", "shared", "local", "const", "param")
VARIABLE = re.compile(
    r"^\s*(?:\.(extern|visible|weak|common)\s+)?\.(shared|const|global|local)\s+(?:\.align\s+(\d+)\s+)?"
    r"\.(\w+)\s+([$\w]+)(\[\d*\])?\s*(?:=\s*\{?([^;}]*)\}?\s*)?;",
    re.MULTILINE,
)
REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+([^;]+);")
SCOPE = re.compile(r"(?:^|[;{}:])(?:\s|//[^\n]*\n)*\{", re.MULTILINE)  # at the start of a statement
LINK = re.compile(
    r"(?:(?P<mask>0x[0-9a-fA-F]+)\()?(?:generic\()?(?P<name>[A-Za-z_$][\w$]*)\)?(?P<more>[+-]\d+)?\)?"
)
LOCATION = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,\s*function_name\s+\S+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?"
)
STATEMENT = re.compile(r"\s*(?:(@)(!?)([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
FUNCTION = re.compile(
    r"\.func\s+(?:\((?P<returns>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*\((?P<takes>[^)]*)\)[^{};]*\{"
)
CALL = re.compile(r"(?:\(([^)]*)\)\s*,\s*)?([%\w$]+)\s*(?:,\s*\(([^)]*)\))?\s*(,.*)?", re.DOTALL)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
BEGIN, END = "// begin inline asm", "// end inline asm"


@dataclass
class Instruction:
    """One instruction: `parts` of its name ("ld", "global", "v4", "b32"), operands as text, and where it came from.

    `guard` is (predicate, negated) or None. Operands: "%r1", "0x10", "name", ("[", base, offset), or a list of operands.
    """

    parts: tuple
    operands: list
    guard: tuple
    line: Line
    text: str

    @property
    def name(self) -> str:
        return self.parts[0]

    @property
    def type(self) -> str:
        return self.parts[-1]

    @property
    def space(self) -> str:
        """The memory it touches; "" where its address says so (a generic address)."""
        return next(
            (each.split("::")[0] for each in self.parts if each.split("::")[0] in SPACES), ""
        )

    @property
    def width(self) -> int:
        """How many elements each thread moves."""
        return next((int(each[1:]) for each in self.parts if each in ("v2", "v4", "v8")), 1)

    @property
    def bytes(self) -> int:
        """How many bytes each thread moves."""
        if self.name == "cp":
            return int(self.operands[2], 0)
        return self.width * BITS[self.type] // 8

    @property
    def moves_global(self) -> bool:
        """True where it reads or writes the card's memory."""
        if self.parts[:2] == ("cp", "async"):
            return len(self.operands) > 1
        return self.name in ("ld", "st", "atom", "red") and self.space in ("global", "")


@dataclass(frozen=True)
class Variable:
    """Memory that the kernel declares: `space`, `size` in bytes, `start` values as bytes."""

    name: str
    space: str
    size: int
    align: int
    start: bytes = b""
    extern: bool = False
    links: tuple = ()  # (place, bytes, variable, what is added, bits shifted out) of addresses in it


@dataclass(frozen=True)
class Function:
    """A function that isn't inlined: names of what it `returns` and `takes`, and its places among the instructions."""

    returns: list
    takes: list
    start: int
    end: int


@dataclass
class Module:
    """A kernel's `instructions`, `labels` {name: place}, `parameters` [(name, type, size)], `variables`, register `bits`."""

    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)
    parameters: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)
    prefixes: dict = field(default_factory=lambda: {"CC": 1})
    functions: dict = field(
        default_factory=dict
    )  # name → Function, those called before the callers
    start: int = 0  # where the kernel begins among the instructions

    def is_register(self, word: str) -> bool:
        """True where a word is a register that the code declares."""
        return word in self.prefixes or word.rstrip("0123456789") in self.prefixes

    def is_predicate(self, word: str) -> bool:
        """True where a word is a register of one bit, negated or not."""
        word = word.removeprefix("!")
        return self.is_register(word) and self.bits(word) == 1

    def bits(self, register: str) -> int:
        """Return the size of a register in bits; raises KeyError for what isn't one."""
        found = self.prefixes.get(register)
        return found or self.prefixes[register.rstrip("0123456789")]

    def smallest(self, space: str) -> int:
        """Return the fewest bytes that one element of an access to a space has, at most 4: what races are looked for in."""
        names = (space, "") if space == "global" else (space,)
        found = [each for each in self.instructions if each.space in names]
        sizes = [
            BITS.get(each.type, 32) // 8
            for each in found
            if each.name in ("ld", "st", "atom", "red")
        ]
        return max(1, min([*sizes, 4]))


def parse(
    text: str, kernel: str, source: str = "", offset: int = 0, file: str = "", others: Any = None
) -> Module:
    """Return the `Module` of one kernel in PTX `text`; `source` gives its lines their words, less `offset` lines.

    `file` is the source's name, `others` {name: text} of files that it includes; lines of any more count as the line that
    called them.
    """
    entry = re.search(rf"\.entry\s+{re.escape(kernel)}\s*\(", text)
    if not entry:
        raise CompileError(f"no kernel named {kernel} in this PTX")
    ends = text.index(")", entry.end())
    body = _own_names(_body(text, text.index("{", ends)))
    module = Module()
    module.parameters = [
        _parameter(each) for each in text[entry.end() : ends].split(",") if each.strip()
    ]
    _declare(module, _outside(text))
    numbers = re.findall(r'\.file\s+(\d+)\s+"(?:[^"]*/)?([^"/]*)"', text)
    texts = {each.rpartition("/")[2]: words for each, words in (others or {}).items()}
    texts[file] = source
    ours = {number: (name, texts[name].splitlines()) for number, name in numbers if name in texts}
    ours = {number: ("" if name == file else name, words) for number, (name, words) in ours.items()}
    ours = ours or {"1": ("", source.splitlines())}
    found = {each["name"]: each for each in FUNCTION.finditer(text)}
    for name in _called(body, text, found):
        first = len(module.instructions)
        code = _own_names(_body(text, found[name].end() - 1), f"f{len(module.functions)}_")
        _declare(module, code)
        _Body(module, ours, offset).read(code)
        returns, takes = (_names(found[name][each]) for each in ("returns", "takes"))
        module.functions[name] = Function(returns, takes, first, len(module.instructions))
    module.start = len(module.instructions)
    _declare(module, body)
    _Body(module, ours, offset).read(body)
    return module


def _body(text, begins):
    return text[begins + 1 : _closing(text, begins)]


def _outside(text):
    """Return what a PTX text says outside of functions."""
    found, place = [], 0
    while begins := re.compile(r"^\s*\{", re.MULTILINE).search(text, place):
        found.append(text[place : begins.start()])
        place = _closing(text, begins.end() - 1) + 1
    return "".join([*found, text[place:]])


def _names(parameters):
    return [each.split()[-1].partition("[")[0] for each in (parameters or "").split(",") if each]


def _called(body, text, found, above=()):
    """Return the functions that a body calls, and those that they call, first. Raises Unsupported for recursion."""
    names: list = []
    for name in re.findall(r"\bcall(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)", body):
        if name in above:
            raise Unsupported(f"recursion isn't executed here: {name} calls itself")
        if name in found and name not in names:
            inner = _called(_body(text, found[name].end() - 1), text, found, (*above, name))
            names += [each for each in [*inner, name] if each not in names]
    return names


def _own_names(code, prefix=""):
    """Return code in which the registers and labels of inner scopes have names of their own, with `prefix` the outer, too."""
    found, place, number = [], 0, 0
    for scope in SCOPE.finditer(code):
        if scope.start() < place:
            continue
        begins = scope.end() - 1
        ends = _closing(code, begins)
        if ";" not in code[begins:ends]:
            continue  # a list of operands
        found += [code[place:begins], _own_names(code[begins + 1 : ends], f"{prefix}s{number}_")]
        place, number = ends + 1, number + 1
    found.append(code[place:])
    if not prefix:
        return "".join(found)
    own = "".join(found[::2])
    names = [each for names in REGISTERS.findall(own) for each in names[1].split(",")]
    declared = [each.strip().lstrip("%").partition("<")[::2] for each in names]
    whole = {name for name, count in declared if not count}
    stems = {name for name, count in declared if count}
    labels = set(re.findall(r"(?:^|[;{}])\s*([\w$]+):(?!:)", own, re.MULTILINE))

    def renamed(word):
        name = word[2]
        own = name in whole or name.rstrip("0123456789") in stems or not word[1] and name in labels
        return f"{word[1]}{prefix}{name}" if own else word[0]

    return re.sub(r"(?<![\w$%.])(%?)([A-Za-z_$][\w$]*)", renamed, "".join(found))


def _closing(text, place):
    depth = 0
    for found in re.finditer(r"//[^\n]*|[{}]", text[place:]):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return place + found.start()
    raise CompileError("this PTX ends inside a kernel")


def _parameter(text):
    """Return (name, type, bytes) of a parameter; a struct has type "b8"."""
    found = re.search(
        r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s.*?([$\w]+)(?:\[(\d+)\])?\s*$", text.strip()
    )
    return found[2], found[1], BITS[found[1]] // 8 * int(found[3] or 1)


def _declare(module, text):
    """Add the variables and registers that `text` declares."""
    for extern, space, align, kind, name, count, values in VARIABLE.findall(text):
        size = BITS[kind] // 8
        given = [each.strip() for each in values.split(",") if each.strip()]
        start = b"".join(_packed(each, kind) for each in given)
        links = tuple(
            (at * size, size, *_link(each)) for at, each in enumerate(given) if _link(each)
        )
        length = size * int(count.strip("[]") or 0) if count else size
        module.variables[name] = Variable(
            name,
            space,
            length,
            int(align or size),
            start,
            extern == "extern" and length == 0,
            links,
        )
    for kind, names in REGISTERS.findall(text):
        for name in names.split(","):
            module.prefixes[name.strip().split("<")[0]] = BITS[kind]


def _link(text):
    """Return (name, what is added, shift) of a start value that is an address, or a byte of one; else ()."""
    found = LINK.fullmatch(text)
    if not found:
        return ()
    mask = int(found["mask"] or "0", 16)
    shift = (mask & -mask).bit_length() - 1 if mask else 0
    return found["name"], int(found["more"] or "0"), shift


def _packed(text, kind):
    size = BITS[kind] // 8
    if _link(text):
        return bytes(size)
    return (number(text) & (1 << 8 * size) - 1).to_bytes(size, "little")


def number(text: str) -> int:
    """Return the bits of an immediate operand as an int: 12, -1, 0x1F, 0f3F800000, 0d…; raises ValueError."""
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return int(text[2:], 16)
    if "." in text:
        return struct.unpack("I", struct.pack("f", float(text)))[0]
    return int(text.rstrip("U"), 0)


class _Body:
    """Reads the statements of a kernel's body."""

    def __init__(self, module, files, offset):
        self.module = module
        self.files = files  # number in the PTX → (name, lines)
        self.offset = offset
        self.line = Line()
        self.inline = 0  # 1: inside inline assembly, 2: its place is known. Triton counts its lines as the kernel's

    def read(self, body: Any) -> None:
        pending = ""
        for raw in body.splitlines():
            if BEGIN in raw:
                self.inline = 1
            elif END in raw:
                self.inline = 0
            text = raw.split("//")[0].strip()
            if re.match(r"\.loc\s", text):
                self._locate(text)
                continue
            pending += " " + text
            *done, pending = re.split(r";", pending)
            for statement in done:
                self._statement(statement)
            pending = self._labels(pending)

    def _locate(self, text):
        if self.inline == 2:
            return
        self.inline *= 2
        file, line, outer_file, outer_line = LOCATION.match(text).groups()
        if file not in self.files and outer_file not in self.files:
            return  # inside a library: the line that called it was the last one named
        name, lines = self.files[file if file in self.files else outer_file]
        place = int(line if file in self.files else outer_line)
        if place:
            words = lines[place - 1].strip() if place <= len(lines) else ""
            self.line = Line(place if name else place - self.offset, words, name)

    def _labels(self, text):
        text = text.strip()
        while found := re.match(r"[{}\s]*([$\w]+):(?!:)", text):
            self.module.labels[found[1]] = len(self.module.instructions)
            text = text[found.end() :].strip()
        return text.lstrip("{} \t") if text[:1] in "{}" else text

    def _statement(self, text):
        text = self._labels(text)
        if not text or text.startswith("."):
            return
        _, negated, guard, name, rest = STATEMENT.match(text).groups()
        instruction = Instruction(
            tuple(name.split(".")),
            _call(rest) if name.startswith("call") else _operands(rest),
            (guard, negated == "!") if guard else None,
            self.line,
            " ".join(text.split()),
        )
        self.module.instructions.append(instruction)


def _operands(text):
    return [_operand(each) for each in OPERAND.findall(text)]


def _call(text):
    """Return [what it returns, name, arguments] of a call, and what comes after them."""
    returns, name, takes, *more = CALL.match(text.strip()).groups()
    return [_names(returns), name, _names(takes), *(each for each in more if each)]


def _operand(text):
    if text[0] == "{":
        return _operands(text[1:-1])
    if text[0] == "[":
        inner = text[1:-1].replace(" ", "")
        base, _, offset = inner.partition("+")
        if not offset and "-" in base[1:]:
            base, _, offset = base.partition("-")
            offset = f"-{offset}"
        return "[", base, int(offset or "0", 0)
    return text
