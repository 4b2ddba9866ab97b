"""Measured results of real devices: recordings of this course, and what others published.

`all()` reads `recordings/`, which `python3 -m tools record --out FILE.json` writes and nobody edits. `published(name)`
reads one source of `published/`: `published("sort_v100").rows(synchronized=True)`; `published_names()` lists them. A
file that does not fit is refused with its name and the field's.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from measurements import schema
from measurements.rows import SECTIONS
from measurements.sources import published, published_names

__all__ = ["Recording", "all", "load", "published", "published_names"]
FOLDER = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Recording:
    """One run of the record command. `provenance`, and `devices` (best first) by name, are dicts of plain values."""

    path: Path
    provenance: dict
    devices: dict
    sections: dict

    @property
    def label(self):
        """Best device and date, for figures: "NVIDIA H200, 2026-11-20"."""
        return self.label_of(next(iter(self.devices)))

    @property
    def busy(self):
        """Whether other programs kept more than half of the cores at work when it began, so that CPU times are high."""
        return (self.provenance["load_average"] or 0) > self.provenance["cores"] / 2

    def label_of(self, device):
        """Name and date of one of the `devices`; a CPU says how many cores it had, and whether it was busy."""
        known = self.devices[device]
        more = (
            f", {self.provenance['cores']} cores{' (busy)' if self.busy else ''}"
            if known["kind"] == "cpu"
            else ""
        )
        return f"{known['name']}{more}, {self.provenance['date'][:10]}"

    def is_here(self, device):
        """Whether `device` of this recording is one of the machine that runs: the same name, and a CPU's cores."""
        from helpers import host

        known = self.devices[device]
        if known["kind"] == "cpu":
            return known["name"] == host.cpu_name() and self.provenance["cores"] == host.cpu_cores()
        return known["name"] in gpus_here()

    def rows(self, section, device=None):
        """Rows of `section` as dicts, "device_kind" beside "device"; only those of `device` (such as "cpu") if given.

        A section that was not measured has no rows. ValueError for an unknown section or device.
        """
        for name, value, known in (
            ("section", section, SECTIONS),
            ("device", device, self.devices),
        ):
            if value not in known and (name, value) != ("device", None):
                raise ValueError(f"{name} is {value!r}; there are {', '.join(known)}")
        return [
            {**row, "device_kind": self.devices[row["device"]]["kind"]}
            for row in self.sections.get(section, [])
            if device in (None, row["device"])
        ]

    def by_device(self, section):
        """Rows of `section` by the label of their device, best device first; devices without rows are left out."""
        found = {self.label_of(device): self.rows(section, device) for device in self.devices}
        return {label: rows for label, rows in found.items() if rows}


def gpus_here():
    """The names of this machine's GPUs."""
    from helpers import devices

    names = [name for name in devices.device_names() if name != "cpu"]
    return [devices.describe(name)["name"] for name in names]


def load(path):
    """The Recording in the file `path`. FileNotFoundError, or ValueError that names the file and the field."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, and there is no such file")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: not a JSON file in UTF-8 ({error})") from error
    schema.check(data, path.name)
    return Recording(path, data["provenance"], data["devices"], data["sections"])


def all():
    """Every Recording that the course has, GPUs first, then by file name."""
    found = [load(path) for path in sorted(FOLDER.glob("*.json"))]
    return sorted(found, key=lambda recording: not _has_gpu(recording))


def _has_gpu(recording):
    return any(device["kind"] != "cpu" for device in recording.devices.values())
