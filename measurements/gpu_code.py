"""A GPU's measurements as one line, `G2-…`, to carry from a borrowed GPU to any notebook of the course.

`measure()` makes it in under a minute, `keep(code)` stores it with the learner's progress, and `plots.yours` draws it as
*your GPU*.
"""

from dataclasses import dataclass
from datetime import date

from helpers import files
from helpers.checks import codes

FORMATS = ("float32", "tf32", "float16", "bfloat16")
SIZES = (512, 2048, 8192)
COPIED = 2**26  # bytes of one copy
BATCH = 256  # of the training step
SLOTS = [  # section, what identifies the row, its number: their order is the code's
    *[("matmul", {"size": n, "dtype": d}, "tflop_per_s") for d in FORMATS for n in SIZES],
    *[
        ("copies", {"bytes": COPIED, "direction": way, "pinned": pinned}, "gb_per_s")
        for way in ("h2d", "d2h")
        for pinned in (False, True)
    ],
    ("bandwidth", {"operation": "copy", "bytes": 2**28}, "gb_per_s"),
    *[
        ("training", {"network": "SmallCNN", "batch": BATCH, "precision": p}, "images_per_s")
        for p in ("float32", "float16")
    ],
]
MARK = "G2"
DIGITS = 4  # that a number keeps
NAME_BYTES = 40


@dataclass(frozen=True)
class Measured:
    """What a code says: device, date, PyTorch's version ("2.11"), memory in GiB, and `numbers`, one a slot or None."""

    device: str
    date: date
    torch: str
    memory_gib: int
    numbers: tuple

    def rows(self, section, **where):
        """Rows of `section` as in a recording: dicts with the fields that identify a row, and its number."""
        rows = []
        for (its, fields, number), value in zip(SLOTS, self.numbers, strict=True):
            fits = all(fields.get(field) == wanted for field, wanted in where.items())
            if its == section and value is not None and fits:
                rows.append({"device": self.device, **fields, number: value})
        return rows


def encode(measured: Measured) -> str:
    """The code of a `Measured`."""
    numbers = [value and float(f"{value:.{DIGITS}g}") for value in measured.numbers]
    day = measured.date.isoformat()
    version = ".".join(measured.torch.split(".")[:2])
    return codes.encode(MARK, [cut(measured.device), day, version, measured.memory_gib, numbers])


def cut(name: str) -> str:
    """A device's name as a code carries it: its first 40 bytes."""
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def decode(code: str) -> Measured:
    """The `Measured` in `code`. TypeError for what is no text; ValueError that says what is wrong with it."""
    device, day, version, memory, numbers = codes.decode(MARK, code)
    if len(numbers) != len(SLOTS):
        raise ValueError("the GPU code was made by another version of the course: measure again")
    return Measured(device, date.fromisoformat(day), version, memory, tuple(numbers))


def measure(device=None):
    """Measure `device` (None: the best one here) in under a minute and return its code."""
    import torch

    from helpers.devices import describe, pick_device
    from measurements.measure import formats

    place = pick_device("auto" if device is None else device)
    known = describe(place)
    takes = formats(place)
    numbers = []
    for section, fields, number in SLOTS:
        skipped = fields.get("dtype", "float32") not in takes
        numbers.append(None if skipped else _number(section, fields, number, place))
    gib = round((known["memory_bytes"] or 0) / 2**30)
    version = torch.__version__.split("+")[0]
    return encode(Measured(known["name"], date.today(), version, gib, tuple(numbers)))


def _number(section, fields, number, device):
    """The number of one slot, measured as the recorder does, or None where it does not fit this device."""
    import torch

    from measurements import measure, networks

    fields = dict(fields)
    if device.type == "cpu" and (section == "copies" or fields.get("size", 0) > 2048):
        return None
    if fields.get("pinned") and device.type != "cuda":
        return None
    if device.type == "cpu" and fields.get("precision") == "float16":
        fields["precision"] = "bfloat16"
    measured, size = {
        "matmul": (measure.product, "size"),
        "copies": (measure.copy, "bytes"),
        "bandwidth": (measure.traffic, "bytes"),
        "training": (networks.trained, "batch"),
    }[section]
    amount = fields.pop(size)
    if section == "bandwidth":
        amount //= 4 * measure.TENSORS[fields["operation"]]  # of floats
    try:
        return measured(device, amount, True, **fields)[number]
    except torch.OutOfMemoryError:
        return None


_memory = {}  # where the folder cannot be written, a code lasts as long as the kernel


def keep(code):
    """Store `code` beside the learner's progress, and return what it says. Raises as `decode`; then nothing changes."""
    measured = decode(code)
    _memory["code"] = codes.cleaned(code)
    try:
        files.user_folder().mkdir(parents=True, exist_ok=True)
        files.write(_file(), _memory["code"])
    except OSError:
        pass  # it is kept in memory
    return measured


def _file():
    return files.user_folder() / "gpu-code.txt"


def yours():
    """What the code that was kept says, a `Measured`, or None where there is none (or one that this course can't read)."""
    try:
        code = _memory.get("code") or _file().read_text(encoding="utf-8")
        return decode(code)
    except (OSError, ValueError):
        return None  # none, or of another version: a figure does without it
