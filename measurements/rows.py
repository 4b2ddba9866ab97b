"""What a recording holds: one frozen dataclass a kind of row, with the units in the names of its fields.

A field's unit is its ending: `_ms` time; `_bytes`; `gb_per_s` 10⁹ bytes a second; `tflop_per_s` 10¹²
operations a second; `images_per_s`. Beside a median stands its interquartile range, `time_iqr_ms`.
"""

from dataclasses import dataclass, fields

VERSION = 3


@dataclass(frozen=True)
class Matmul:
    """A product of two [size, size] matrices; dtype "tf32" is float32 on tensor cores."""

    device: str
    size: int
    dtype: str
    time_ms: float
    time_iqr_ms: float
    tflop_per_s: float

    def follows(self):
        return "tflop_per_s", 2 * self.size**3 / self.time_ms / 1e9


@dataclass(frozen=True)
class Moved:
    """Bytes moved in a time; their rate follows."""

    device: str
    bytes: int
    time_ms: float
    time_iqr_ms: float
    gb_per_s: float

    def follows(self):
        return "gb_per_s", self.bytes / self.time_ms / 1e6


@dataclass(frozen=True)
class Copy(Moved):
    """A copy between CPU and device: direction "h2d" (to the device) or "d2h"."""

    direction: str
    pinned: bool


@dataclass(frozen=True)
class Bandwidth(Moved):
    """Work in the device's own memory, "copy" or "add": bytes are those read and written."""

    operation: str


@dataclass(frozen=True)
class Training:
    """A step on data that is on the device, with Adam; peak_bytes: most at once, above what was there before."""

    device: str
    network: str
    batch: int
    precision: str
    time_ms: float
    time_iqr_ms: float
    images_per_s: float
    peak_bytes: int | None

    def follows(self):
        return "images_per_s", 1e3 * self.batch / self.time_ms


SECTIONS = {
    "matmul": Matmul,
    "copies": Copy,
    "bandwidth": Bandwidth,
    "training": Training,
}


@dataclass(frozen=True)
class Provenance:
    """How a recording was made; load_average: programs that wanted a core when it began; done: finished parts."""

    date: str
    code: str
    command: str
    python: str
    torch: str
    cuda: str | None
    rocm: str | None
    cudnn: str | None
    nccl: str | None
    driver: str | None
    system: str
    cpu: str
    cores: int
    load_average: float | None
    quick: bool
    complete: bool
    done: list


@dataclass(frozen=True)
class Device:
    """What was measured; blas_workspace_bytes: what PyTorch may add to a peak for a product of matrices."""

    name: str
    kind: str
    memory_bytes: int | None
    multiprocessors: int | None
    capability: str | None
    l2_bytes: int | None
    bandwidth_bytes_per_s: float | None
    generation: str | None
    blas_workspace_bytes: int | None


def names(section):
    """The fields of `section`, without the device."""
    return [field.name for field in fields(SECTIONS[section]) if field.name != "device"]
