"""A borrowed GPU's measurements as one short line, `G2-…`, to carry to any notebook of the course.

`course.measurements.measure.gpu_code()` makes it in under a minute, `keep(code)` stores it beside the learner's progress, and
`yours` is its group in a chart.
"""

from dataclasses import asdict, dataclass
from typing import Any

from course import files
from course.checks import codes
from course.measurements import reader
from helpers import devices
from helpers.plots import Group

MARK = "G2"
FORMATS = ("float32", "tf32", "float16", "bfloat16")
SLOTS: list[
    tuple[str, dict[str, Any], str]
] = [  # section, what identifies the row, its number; in the code's order
    *[
        ("matmul", {"size": size, "dtype": dtype}, "tflop_per_s")
        for dtype in FORMATS
        for size in (512, 2048, 8192)
    ],
    *[
        ("copies", {"bytes": 2**26, "direction": way, "pinned": pinned}, "gb_per_s")
        for way in ("h2d", "d2h")
        for pinned in (False, True)
    ],
    ("bandwidth", {"operation": "copy", "bytes": 2**28}, "gb_per_s"),
    *[
        ("training", {"network": "SmallCNN", "batch": 256, "precision": precision}, "images_per_s")
        for precision in ("float32", "float16")
    ],
]


@dataclass(frozen=True)
class Measured:
    """What a code says: device, date ("2026-11-22"), PyTorch's version, memory in GiB, one number a slot or None."""

    device: str
    date: str
    torch: str
    memory_gib: int
    numbers: tuple[float | None, ...]

    def rows(self, section: str, **where: Any) -> list[dict[str, Any]]:
        """Rows of `section` as in a recording: dicts with the fields that identify a row, and its number."""
        rows = []
        for (name, fields, number), value in zip(SLOTS, self.numbers, strict=True):
            fits = all(fields.get(field) == wanted for field, wanted in where.items())
            if name == section and value is not None and fits:
                rows.append({"device": self.device, **fields, number: value})
        return rows


def encode(measured: Measured) -> str:
    """The code of a `Measured`; its numbers keep four digits."""
    numbers = [None if each is None else float(f"{each:.4g}") for each in measured.numbers]
    return codes.encode(MARK, list((asdict(measured) | {"numbers": numbers}).values()))


def decode(code: str) -> Measured:
    """The `Measured` in a `code`. TypeError for what is no text; ValueError that says what is wrong with it."""
    values = codes.decode(MARK, code)
    if len(values) != 5 or len(values[-1]) != len(SLOTS):
        raise ValueError(
            "the code is of another version of the course: measure again with this one"
        )
    device, date, torch, memory_gib, numbers = values
    return Measured(device, date, torch, memory_gib, tuple(numbers))


_memory: dict[
    str, str
] = {}  # where the folder cannot be written, a code lasts as long as the kernel


def keep(code: str) -> Measured:
    """Store `code` beside the learner's progress, and return what it says. Raises as `decode`; then nothing changes."""
    measured = decode(code)
    _memory["code"] = codes.cleaned(code)
    try:
        files.user_folder().mkdir(parents=True, exist_ok=True)
        files.write(files.user_folder() / "gpu-code.txt", _memory["code"])
    except OSError:
        pass  # it stays in memory
    return measured


def stored() -> Measured | None:
    """What the stored code says, or None where there is none, or one that this course can't read."""
    try:
        path = files.user_folder() / "gpu-code.txt"
        return decode(_memory.get("code") or path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None


def yours(section: str, y: str, x: str | None = None, **where: Any) -> Group:
    """The group of the device whose code was stored: its name to `y`, or to (xs, ys); empty if none, or it is here.

    `section` ("matmul", "copies", "bandwidth", "training") and `where` choose its rows, see `SLOTS`.
    """
    measured = stored()
    rows = measured.rows(section, **where) if measured else []
    if measured is None or not rows or measured.device in devices.names_here():
        return Group("yours", {})
    values = [row[y] for row in rows]
    value = values[0] if x is None else ([row[x] for row in rows], values)
    source = f"your GPU: {measured.device}, {measured.date}, PyTorch {measured.torch}"
    return Group("yours", {measured.device: value}, [source])


def recorded(
    section: str,
    x: str,
    y: str,
    kind: str | None = None,
    **where: Any,
) -> Group:
    """The group of recorded machines: label (device and date) to (xs, ys) of fields `x` and `y` of `section`.

    `where` keeps rows with these values, `kind` ("cuda", "cpu") such devices. The devices of this machine are left out. An
    unknown section or field raises ValueError.
    """
    fields = reader.sections().get(section)
    if fields is None:
        raise ValueError(f"section is {section!r}; it takes one of {list(reader.sections())}")
    for name in (x, y, *where):
        if name not in fields:
            raise ValueError(f"field {name!r} is not in section {section!r}, which has {fields}")
    series: dict[str, tuple[list, list]] = {}
    here = devices.names_here()
    for recording in reader.recordings():
        for device, known in recording.devices.items():
            rows = recording.rows(section, device)
            rows = [row for row in rows if all(row[field] == v for field, v in where.items())]
            if not rows or kind not in (None, known["kind"]):
                continue
            if recording.identity(device) not in here:
                rows.sort(key=lambda row: row[x])
                columns = [row[x] for row in rows], [row[y] for row in rows]
                series[recording.label_of(device)] = columns
    return Group("recorded", series, [f"recorded: {label}" for label in series])
