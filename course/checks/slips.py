"""Known mistakes: how to make one from the right answer, how to recognize it, what to say.

They stand below their exercise in `words.toml`. A check walks them (`Exercise.word`), and the tests make each of them and
look whether it is told its own words.
"""

import importlib
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Slip:
    """A known mistake.

    `says` is what a learner is told, with fields in braces. `ways` make it from the right answer: each is a list of texts
    (what stands there, what instead, …), or Python for an answer, in which `right` is the right one. `when` is an expression
    that is true of it; without one, it gives what one of its `ways` gives. The check finds it by itself if it is `own`:
    then `says` is a part of the check's words, or of PyTorch's. `more` is what its lesson also says of it.
    """

    says: str
    ways: Sequence = ()
    when: str = ""
    own: bool = False
    more: Mapping = field(default_factory=dict)

    def answers(self, right: Any, room: Mapping) -> Iterator[Any]:
        """The wrong answers that its `ways` make from `right`; `room` holds the names that they may use."""
        for way in self.ways:
            yield (
                _python(way, {**room, "right": right})
                if isinstance(way, str)
                else edited(right, way)
            )

    def fits(self, right: Any, room: Mapping, found: Any, case: tuple, names: Mapping) -> bool:
        """Whether the wrong result `found` of `case` is this slip's; `when` sees `found`, `names` and `room`."""
        if self.own:
            return False
        if self.when:
            seen = {"same": same, "near": near, **room, "found": found, **names}
            return bool(eval(self.when, seen))  # noqa: S307 - our own
        return any(same(found, _given(answer, case)) for answer in self.answers(right, room))

    def is_in(self, message: str) -> bool:
        """Whether its words are in a message, whatever stands in their fields."""
        parts = (re.escape(part) for part in re.split(r"\{[^}]*\}", self.says))
        return re.search(".*".join(parts), message, re.S) is not None


def same(found: Any, other: Any) -> bool:
    """Whether two results are equal up to rounding: numbers, tensors, and tuples of them; anything else by ==."""
    if isinstance(found, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(found) == len(other) and all(map(same, found, other))
    if isinstance(found, torch.Tensor) and isinstance(other, torch.Tensor):
        return found.shape == other.shape and near(found, other)
    if isinstance(found, float) or isinstance(other, float):
        return abs(found - other) <= 1e-6 * abs(other)
    return bool(found == other)


def near(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-4) -> bool:
    """Whether two tensors of one shape hold the same numbers, up to rounding."""
    return torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance, equal_nan=True)


def edited(right: Any, texts: Sequence[str]) -> Any:
    """Return `right`, a function, class or text of CUDA C, with parts of its source changed: (old, new, old, new …)."""
    source = right if isinstance(right, str) else textwrap.dedent(inspect.getsource(right))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if old not in source:
            raise ValueError(f"{old!r} is not in the model answer")
        source = source.replace(old, new)
    if isinstance(right, str):
        return source
    return _python(source, dict(vars(importlib.import_module(right.__module__))), right.__name__)


def _python(source, names, name=""):
    """What `source` evaluates to, or what it defines as `name` (without one, the function that it begins with)."""
    defined = re.match(r"def (\w+)", source)
    if not name and not defined:
        return eval(source, names)  # noqa: S307 - our own
    file = f"<answer {hash(source)}>"
    # a compiler asks for it
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(source, file, "exec"), names)  # noqa: S102 - our own source, changed
    return names[name or defined[1]]


def _given(answer, case):
    """What a wrong answer gives for a case; `...` where it fails, which no result equals."""
    try:
        return answer(*case)
    except Exception:  # noqa: BLE001 - a mistake may raise anything
        return ...
