"""Measured results of real devices, as facts apart from code: three folders of files, and their readers.

`recordings/`: what `python3 -m tools record` measured; nobody edits them. `published/`: numbers of others, each file
with its source. Nothing here measures, draws or imports PyTorch. Data sheets of cards: `practice_gpus.cards`.
"""

from measurements.reader import (
    Published,
    Recording,
    check,
    load,
    published,
    published_names,
    recordings,
)

__all__ = [
    "Published",
    "Recording",
    "check",
    "load",
    "published",
    "published_names",
    "recordings",
]
