"""The known errors of known.txt. Notebook 91 reproduces them; `helpers.troubleshooting` looks messages up."""

import functools
from dataclasses import dataclass
from pathlib import Path

from helpers import files

GPU = r"(?:cuda|mps|xpu|hip)"
PARTS = {  # what stands in known.txt for a part of a regular expression
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
    wordings: tuple
    cause: str
    fix: str
    lesson: str


@functools.cache
def known_errors():
    """Every `Known` error of known.txt, as a tuple."""
    return tuple(
        Known(
            key,
            entry["title"],
            tuple(_wording(line) for line in entry["words"].strip().splitlines()),
            entry["cause"],
            entry["fix"],
            entry.get("lesson", ""),
        )
        for key, entry in files.sections(Path(__file__).with_suffix(".txt")).items()
    )


def _wording(line):
    """The pattern and the releases of one line of `words`."""
    releases, pattern = line.split(": ", 1)
    for name, part in PARTS.items():
        pattern = pattern.replace(name, part)
    return pattern, releases
