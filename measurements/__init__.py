"""Measured results of real devices, as facts apart from code: three folders of files, and their readers.

`recordings/`: what `python3 -m tools record` measured; nobody edits them. `published/`: numbers of others, each file
with its source. `data_sheets.json`: what NVIDIA says of its cards. Nothing here measures, draws or imports PyTorch.
"""

from measurements.reader import (
    Card,
    Published,
    Recording,
    cards,
    check,
    load,
    published,
    published_names,
    recordings,
)

__all__ = [
    "Card",
    "Published",
    "Recording",
    "cards",
    "check",
    "load",
    "published",
    "published_names",
    "recordings",
]
