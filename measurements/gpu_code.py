"""A GPU's measurements as one short line, `G1-…`, to carry from a borrowed GPU to any notebook of the course.

`measure()` makes it in under a minute, `keep(code)` stores it with the learner's progress, and `plots.yours` draws it as
*your GPU*. Its bytes: version, days since 2020, PyTorch's version, memory in GiB, one 16-bit number a slot, the device's
name, and a checksum; written in base32 (letters and 2 to 7, so that nothing looks like anything else).
"""

import base64
import binascii
import math
import struct
import zlib
from dataclasses import dataclass
from datetime import date, timedelta

from helpers import files

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
_VERSION = 1
_PREFIX = f"G{_VERSION}-"
_HEAD = struct.Struct(">BHBBH")
_FIRST_DAY = date(2020, 1, 1)
_LOWEST = -5  # numbers from 10**-5 to 10**8, in steps of 0.05 %
_RANGE = 13
_NAME_BYTES = 40


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


def encode(measured):
    """The code of a `Measured`."""
    days = (measured.date - _FIRST_DAY).days
    major, minor = (int(part) for part in measured.torch.split(".")[:2])
    head = _HEAD.pack(_VERSION, days, major, minor, min(measured.memory_gib, 2**16 - 1))
    numbers = b"".join(struct.pack(">H", _packed(value)) for value in measured.numbers)
    body = head + numbers + cut(measured.device).encode()
    text = base64.b32encode(body + struct.pack(">I", zlib.crc32(body))).decode()
    return _PREFIX + text.rstrip("=")


def cut(name):
    """A device's name as a code carries it: its first 40 bytes."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")


def _packed(value):
    """A positive number in 16 bits, on a logarithmic scale; 0 stands for none."""
    if value is None or not 0 < value < math.inf:
        return 0
    step = round((math.log10(value) - _LOWEST) / _RANGE * 65534) + 1
    return max(1, min(65535, step))


def _unpacked(step):
    if step == 0:
        return None
    return float(f"{10 ** ((step - 1) / 65534 * _RANGE + _LOWEST):.4g}")


def decode(code):
    """The `Measured` in `code`. TypeError for what is no text; ValueError that says what is wrong with it."""
    if not isinstance(code, str):
        raise TypeError(f"code is {code!r}; it takes the text that begins with {_PREFIX}")
    text = "".join(code.split()).upper()
    if not text.startswith("G") or "-" not in text[:4]:
        raise ValueError(f"code is {_short(code)}; a GPU code begins with {_PREFIX}")
    if not text.startswith(_PREFIX):
        version = text.split("-")[0]
        raise ValueError(f"the code is of version {version}, this course reads {_PREFIX[:-1]}")
    body = _body(text.removeprefix(_PREFIX))
    version, days, major, minor, memory = _HEAD.unpack(body[: _HEAD.size])
    end = _HEAD.size + 2 * len(SLOTS)
    steps = struct.unpack(f">{len(SLOTS)}H", body[_HEAD.size : end])
    return Measured(
        device=body[end:].decode(),
        date=_FIRST_DAY + timedelta(days=days),
        torch=f"{major}.{minor}",
        memory_gib=memory,
        numbers=tuple(map(_unpacked, steps)),
    )


def _body(text):
    """The bytes of the code without prefix and checksum, or a ValueError."""
    damaged = "the GPU code is damaged: copy the whole line again, from G1- to its last letter"
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise ValueError(damaged) from None
    body, checksum = data[:-4], data[-4:]
    whole = base64.b32encode(data).decode().rstrip("=") == text
    if len(body) < _HEAD.size + 2 * len(SLOTS) or not whole:
        raise ValueError(damaged)
    if struct.pack(">I", zlib.crc32(body)) != checksum:
        raise ValueError(damaged)
    return body


def _short(code):
    return repr(code if len(code) <= 30 else code[:27] + "...")


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
    _memory["code"] = "".join(code.split()).upper()
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
