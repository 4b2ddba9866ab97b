"""Measured results of real devices, as facts apart from code: folders of files, and their readers.

`recordings/`: what `python3 -m course record` measured; nobody edits them. `published/`: numbers of others, each file
with its source. `forecasts/`: the clock beside them. Nothing here measures or draws. Data sheets: `practice_gpus.cards`.
"""

from course.measurements.reader import (
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
