"""The one table of errors and fixes, doctor_and_errors.txt: for messages that `course.troubleshooting` explains, and for the doctor."""

import configparser
import functools
from dataclasses import dataclass
from pathlib import Path

GPU = r"(?:cuda|mps|xpu|hip)"
PARTS = {  # what stands in doctor_and_errors.txt for a part of a regular expression
    "<PLACE>": rf"(?:cpu|{GPU})(?::\d+)?",
    "<ON_CPU>": r"torch\.\w*Tensor",
    "<ON_GPU>": r"(?:torch\.(?:cuda|xpu)\.\w*Tensor|MPS\w*)",
    "<GPU>": GPU,
}


@dataclass(frozen=True)
class Known:
    """One error: `key`, `title`, `wordings` ((pattern, releases), …), `cause`, `fix`, and the `lesson` on it or ""."""

    key: str
    title: str
    wordings: tuple[tuple[str, str], ...]
    cause: str
    fix: str
    lesson: str


@functools.cache
def entries() -> dict[str, dict[str, str]]:
    """The sections of doctor_and_errors.txt: {key: {"title": …, "cause": …, "fix": …}}; a text goes on in lines indented below it."""
    file = configparser.ConfigParser(interpolation=None, delimiters=["="], comment_prefixes=["#"])
    file.read_string(Path(__file__).with_name("doctor_and_errors.txt").read_text(encoding="utf-8"))
    return {key: dict(file[key]) for key in file.sections()}


@functools.cache
def known_errors() -> tuple[Known, ...]:
    """Every error that PyTorch or Python reports by words of its own."""
    return tuple(
        Known(key, entry["title"], _wordings(entry["words"]), entry["cause"], entry["fix"], lesson)
        for key, entry in entries().items()
        if "words" in entry
        for lesson in [entry.get("lesson", "")]
    )


def _wordings(lines: str) -> tuple[tuple[str, str], ...]:
    """The patterns and their releases in the lines of `words`."""
    for name, part in PARTS.items():
        lines = lines.replace(name, part)
    pairs = [line.split(": ", 1) for line in lines.strip().splitlines()]
    return tuple((pattern, releases) for releases, pattern in pairs)
