"""What a user may ask of practice GPUs: one field a setting, each with its check."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from practice_gpus.cards import GIB, find_card, get_card

SMALLEST = 2 << 20  # bytes: one small segment of the allocator
REAL = ("use", "hide", "skip")
ASSERTS = ("once", "sticky")


@dataclasses.dataclass(frozen=True)
class Settings:
    """A machine as it was asked for. Raises TypeError or ValueError for what does not fit.

    ``n``: number of GPUs. ``memory``: bytes of each, or text such as "16 GiB"; None: as ``card`` has, else 1 GiB.
    ``card``: the card they stand for, words of its name in `cards.CARDS`, or the path of a recording.
    ``values``: whether anything is computed; False: tensors have shapes alone, and ``stand_in`` is read instead of
    values, a number or a function of the tensor.
    ``clock``: whether times are forecast. ``asynchronous``: whether calls return before their work is done.
    ``asserts``: after a device-side assert, whether only the call that waits fails ("once"), or each later one, too
    ("sticky", as CUDA has it). ``real``: beside ``n`` real GPUs use those, hide them, or skip the test.
    """

    n: int = 1
    memory: int | str | None = None
    card: str | None = None
    values: bool = True
    stand_in: float | Callable[..., Any] | None = None
    clock: bool = False
    asynchronous: bool = False
    asserts: str = "once"
    real: str = "use"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = CHECKS[field.name](self, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @property
    def capacity(self) -> int:
        """Bytes of each GPU."""
        assert isinstance(self.memory, int)
        return self.memory

    def to_json(self) -> str:
        """Text for a child process: see `from_json`. A function stays behind."""
        return json.dumps(dataclasses.asdict(self), default=lambda function: None)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings in ``text``. Raises ValueError or TypeError where there are none."""
        return cls(**json.loads(text))


def parse_size(size: object) -> int:
    """Bytes of ``size``: an int, or text such as "1 GiB", "512 MiB" or "2 GB". Raises TypeError or ValueError."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(
            f"memory={size!r}: give an int (bytes) or text such as '1 GiB', not {type(size).__name__}"
        )
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?\s*", str(size).upper())
    if not match:
        raise ValueError(
            f"memory={size!r}: give bytes, or a number with a unit, such as '512 MiB' or '1 GiB'"
        )
    count = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))
    if count < SMALLEST:
        raise ValueError(
            f"memory={size!r} is {count} bytes: a practice GPU needs at least 2 MiB (one small segment)"
        )
    return count


def _check_n(settings: Settings, n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"n={n!r}: give the number of practice GPUs as an int")
    if not 1 <= n <= 64:
        raise ValueError(f"n={n}: a machine has 1 to 64 practice GPUs")
    return n


def _check_memory(settings: Settings, memory: object) -> int:
    if memory is not None:
        return parse_size(memory)
    if isinstance(settings.card, str):
        return int(get_card(settings.card).memory * GIB) or GIB
    return GIB


def _check_card(settings: Settings, card: object) -> str | None:
    if card is not None and not isinstance(card, str):
        raise TypeError(f"card={card!r}: give the name of a card as text, or None")
    return None if card is None else find_card(card)


def _flag(name: str) -> Callable[[Settings, object], bool]:
    def check(settings: Settings, value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: give True or False")
        return value

    return check


def _choice(name: str, choices: tuple[str, ...]) -> Callable[[Settings, object], str]:
    def check(settings: Settings, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name}={value!r}: give one of {', '.join(choices)}")
        return value

    return check


def _check_stand_in(settings: Settings, stand_in: object) -> object:
    if stand_in is not None and not callable(stand_in) and not isinstance(stand_in, (int, float)):
        raise TypeError(f"stand_in={stand_in!r}: give a number, or a function of a tensor")
    if stand_in is not None and settings.values:
        raise ValueError(f"stand_in={stand_in!r}: it is for values=False, and there are values")
    return stand_in


def _check_clock(settings: Settings, clock: object) -> bool:
    if _flag("clock")(settings, clock) and settings.card is None:
        raise ValueError("clock=True: name the card whose times to forecast, such as card='T4'")
    return bool(clock)


CHECKS: dict[str, Callable[[Settings, Any], Any]] = {
    "n": _check_n,
    "memory": _check_memory,
    "card": _check_card,
    "values": _flag("values"),
    "stand_in": _check_stand_in,
    "clock": _check_clock,
    "asynchronous": _flag("asynchronous"),
    "asserts": _choice("asserts", ASSERTS),
    "real": _choice("real", REAL),
}


def can_be_written(path: Path) -> bool:
    """Whether a file of this name, with its half beside it, can be made in its folder: known before a long run."""
    try:
        os.lstat(half(path))
    except FileNotFoundError:
        pass
    except OSError:  # such as a name that is too long
        return False
    folder = path.absolute().parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def half(path: Path) -> Path:
    """The file that is written in the place of ``path``, until it is whole."""
    return path.with_name(f".{path.name}.part")
