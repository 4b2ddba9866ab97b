"""What a learner has done, kept in one small JSON file on the learner's own machine.

The file is `progress.json` in the folder named by the environment variable GPU_COURSE_HOME or, without it, in the
user's data folder. It is written whole or not at all, by one kernel at a time. A damaged file is set aside as
`progress.damaged.json` and costs nothing but itself; where the folder cannot be written, progress lasts as long as the
kernel.
"""

import json
import math
import os

from helpers import files
from helpers.checks import codes
from helpers.files import user_folder as folder

_memory = {}
# What a field holds; a value of another kind is left out when the file is read
_FITS = {
    "status": lambda v: isinstance(v, str),
    "hints": lambda v: type(v) is int and v >= 0,
    "guess": lambda v: isinstance(v, str) or type(v) in (int, float) and 1e-300 < v < 1e300,
    "factor": lambda v: type(v) in (int, float) and not math.isnan(v),
}


def load():
    """Everything recorded so far: a dict of key to dict, empty at the start."""
    file = folder() / "progress.json"
    try:
        text = file.read_bytes()
    except OSError:
        return dict(_memory)
    try:
        stored = json.loads(text)
        if not (isinstance(stored, dict) and all(isinstance(v, dict) for v in stored.values())):
            raise ValueError("not a dict of dicts")
    except (ValueError, RecursionError):
        _set_aside(file)
        stored = {}
    return {**{key: _fitting(entry) for key, entry in stored.items()}, **_memory}


def _fitting(entry):
    """The fields of an entry that hold what they should."""
    return {
        field: value for field, value in entry.items() if field not in _FITS or _FITS[field](value)
    }


def record(key, **entry):
    """Add `entry` to what is kept under `key` and save. Returns True when it reached the disk.

    Values are what JSON holds. Raises TypeError for anything else.
    """
    json.dumps(entry)
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        pass  # it is kept in memory
    with files.locked(folder()):
        everything = load()
        everything[key] = {**everything.get(key, {}), **entry}
        _memory[key] = everything[key]
        saved = _write(everything)
    if saved:
        _memory.clear()
    return saved


def states():
    """What a code keeps: a dict of exercises tried and questions answered to `codes.NOT_YET` or `codes.DONE`."""
    everything = load()
    result = {}
    for item in codes.ITEMS:
        entry = everything.get(item, {})
        if "status" in entry or "right" in entry:
            done = entry.get("status") == "correct" or entry.get("right") is True
            result[item] = codes.DONE if done else codes.NOT_YET
    return result


def code(name=""):
    """All results so far as a short text, to be kept or sent; `name` says whose they are. `restore` reads it.

    Raises ValueError for a `name` of more than 40 bytes or with characters that cannot be printed.
    """
    return codes.encode(states(), name)


def restore(code):
    """Bring back the results in `code`, which `code()` made, and return how many were new or better than those here.

    What is solved here stays solved. Raises ValueError where the code is damaged; then nothing changes.
    """
    before = states()
    restored, _ = codes.decode(code)
    better = {
        item: state for item, state in restored.items() if state > before.get(item, codes.NOTHING)
    }
    for item, state in better.items():
        done = state == codes.DONE
        if item.startswith("quiz."):
            record(item, right=done)
        else:
            record(item, status="correct" if done else "not yet")
    return len(better)


def _set_aside(file):
    try:
        os.replace(file, file.with_name("progress.damaged.json"))
    except OSError:
        return  # read-only: it is read as empty each time


def _write(everything):
    try:
        files.write(folder() / "progress.json", json.dumps(everything, indent=1, sort_keys=True))
        return True
    except OSError:
        return False
