"""What a learner has done, kept in one small JSON file on the learner's own machine.

The file is `progress.json` in the folder named by the environment variable GPU_COURSE_HOME or, without it, in the
user's data folder. It is written whole or not at all, by one kernel at a time. Before a damaged file
is written anew, it is kept as `progress.damaged.json`, `progress.damaged2.json`, …; where the folder cannot be written, progress lasts as long as the
kernel.
"""

import json
import math
import zlib

from course import files
from course.checks import codes
from course.files import user_folder as folder

MARK = "P2"
# an exercise untried, tried or solved; a question unanswered, answered wrong or right
NOTHING = 0
NOT_YET = 1
DONE = 2
MOST_BYTES = 40  # of a name
# Every exercise and question of the course. A code names them by their place, so new ones come at the end.
ITEMS = tuple(
    """
00.warm_up
01.pick 01.machines 01.limit quiz.01.false quiz.01.driver quiz.01.small
02.batch 02.repair 02.fit quiz.02.alone quiz.02.current quiz.02.pieces
03.flat 03.buffer 03.left quiz.03.inplace quiz.03.stays quiz.03.bend
04.step 04.test 04.checkpoint 04.bugs quiz.04.eval quiz.04.map
05.leak 05.largest 05.accumulation quiz.05.cache quiz.05.empty quiz.05.activations
06.ddp 06.ring 06.worth quiz.06.rank quiz.06.bucket quiz.06.scaling
07.stopwatch 07.waits 07.epoch quiz.07.naive quiz.07.nonzero quiz.07.delay
08.clip 08.diagnosis 08.rung quiz.08.double quiz.08.sixteen quiz.08.twenty
09.tiles 09.kv_cache 09.rate 12.best
10.bytes 10.fsdp quiz.10.whole quiz.10.hidden quiz.10.text
11.softmax 11.product 11.attention quiz.11.bytes quiz.11.mask quiz.11.alpha
12.saxpy 12.transpose 12.matmul quiz.12.sectors quiz.12.banks quiz.12.occupancy
13.triage 13.waiting 13.stranger 13.suspect 13.scores
13.hang 13.recompiles 13.overflow 13.agree
93.outer 93.double 93.row_sums 93.histogram 93.convolve 93.online 93.product 93.quantized 93.attention
14.device 14.memory 14.speed 14.two
know.a.versions know.a.move know.a.buffers know.a.overhead know.a.clock know.a.wait
know.a.graph know.a.cache know.a.memory know.a.several know.a.busy know.a.half
know.b.versions know.b.move know.b.buffers know.b.overhead know.b.clock know.b.wait
know.b.graph know.b.cache know.b.memory know.b.several know.b.busy know.b.half
10.plan 07.limit 10.kept
08.change 09.own 93.add_ten 93.add_two 93.guard 03.bend
""".split()
)
# No longer in a lesson; their places stay, so that older codes can be read
RETIRED = (
    "quiz.01.false",
    "quiz.01.driver",
    "12.best",
    "12.saxpy",
    "13.waiting",
    "10.kept",
    "08.clip",
    "09.tiles",
    "quiz.05.cache",
    "quiz.05.empty",
    "quiz.05.activations",
    "03.flat",
)
_memory: dict = {}
# What a field holds; a value of another kind is left out when the file is read
_FITS = {
    "status": lambda v: isinstance(v, str),
    "hints": lambda v: type(v) is int and v >= 0,
    "guess": lambda v: isinstance(v, str) or type(v) in (int, float) and 1e-300 < v < 1e300,
    "factor": lambda v: type(v) in (int, float) and not math.isnan(v),
}


def load() -> dict[str, dict]:
    """Everything recorded so far: a dict of key to dict, empty at the start."""
    return {**_read()[0], **_memory}


def _read():
    """(what is stored, the file's bytes where some of them are damaged, else None)."""
    try:
        data = (folder() / "progress.json").read_bytes()
    except OSError:
        return {}, None
    try:
        stored = dict(json.loads(data).items())
    except (ValueError, AttributeError, RecursionError):
        return {}, data
    good = {key: _fitting(entry) for key, entry in stored.items() if isinstance(entry, dict)}
    return good, data if len(good) < len(stored) else None


def _fitting(entry):
    """The fields of an entry that hold what they should."""
    return {
        field: value for field, value in entry.items() if field not in _FITS or _FITS[field](value)
    }


def record(key: str, **entry: object) -> bool:
    """Add `entry` to what is kept under `key` and save. Returns True when it reached the disk.

    Values are what JSON holds. Raises TypeError for anything else.
    """
    json.dumps(entry)
    try:
        folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        pass  # it is kept in memory
    with files.locked(folder()):
        stored, damaged = _read()
        everything = {**stored, **_memory}
        everything[key] = {**everything.get(key, {}), **entry}
        _memory[key] = everything[key]
        saved = _set_aside(damaged) and _write(everything)
    if saved:
        _memory.clear()
    return saved


def states() -> dict:
    """What a code keeps: a dict of exercises tried and questions answered to `NOT_YET` or `DONE`."""
    everything = load()
    result = {}
    for item in ITEMS:
        entry = everything.get(item, {})
        if "status" in entry or "right" in entry:
            done = entry.get("status") == "correct" or entry.get("right") is True
            result[item] = DONE if done else NOT_YET
    return result


def code(name: str = "") -> str:
    """All results so far as a short text, to be kept or sent; `name` says whose they are. `restore` reads it.

    Raises ValueError for a `name` of more than 40 bytes or with characters that cannot be printed.
    """
    return encode(states(), name)


def encode(states: dict, name: str = "") -> str:
    """The code of `states`, a dict of items to NOTHING, NOT_YET or DONE, and of a learner's `name`."""
    if len(name.strip().encode("utf-8")) > MOST_BYTES or not name.isprintable():
        raise ValueError(f"name is {name!r}; it takes up to {MOST_BYTES} bytes of printable text")
    digits = "".join(str(states.get(item, NOTHING)) for item in ITEMS).rstrip("0")
    return codes.encode(MARK, [name.strip(), digits, _version(len(digits))])


def decode(code: str) -> tuple:
    """(states, name) of a `code`: states as a dict of those items that are not NOTHING. Raises as `codes.decode`."""
    name, digits, version = codes.decode(MARK, code)
    if version != _version(len(digits)):
        raise ValueError("the code was made by another version of the course: update the older one")
    pairs = zip(ITEMS, map(int, digits), strict=False)  # zeros at the end are left out
    return {item: state for item, state in pairs if state}, name


def _version(count):
    """A number that changes when one of the first `count` items does."""
    return zlib.crc32(" ".join(ITEMS[:count]).encode()) & 0xFFFF


def restore(code: str) -> int:
    """Bring back the results in `code`, which `code()` made, and return how many were new or better than those here.

    What is solved here stays solved. Raises ValueError where the code is damaged; then nothing changes.
    """
    before = states()
    restored, _ = decode(code)
    better = {item: state for item, state in restored.items() if state > before.get(item, NOTHING)}
    for item, state in better.items():
        done = state == DONE
        if item.startswith(("quiz.", "know.")):
            record(item, right=done)
        else:
            record(item, status="correct" if done else "not yet")
    return len(better)


def _set_aside(damaged):
    """Keep the bytes of a damaged file beside it, and say so; False where that can't be."""
    if damaged is None:
        return True
    aside = files.unused(folder() / "progress.damaged.json")
    try:
        files.write(aside, damaged)
    except OSError:
        return False
    print(
        f"Your file of progress is damaged. As it was, it is now {aside}; what can be read goes on."
    )
    return True


def _write(everything):
    try:
        files.write(folder() / "progress.json", json.dumps(everything, indent=1, sort_keys=True))
        return True
    except OSError:
        return False
