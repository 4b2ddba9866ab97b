"""Well-known cards: their data sheets' numbers, and the memory that PyTorch finds on them. The table is `cards.json`.

Rates are dense (no sparsity), products of tensor cores with accumulation in float32, in TFLOP/s; a format that a card
has no units for is computed at the rate of float32. Bandwidths in GB/s (10⁹ bytes a second).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

GIB = 1 << 30
TABLE = Path(__file__).parent / "cards.json"
TWO = ("A100", "GH200")  # names of two cards, apart by their memory


@dataclass(frozen=True)
class Card:
    """One card. ``memory`` in GiB and where that is from; ``source``: the data sheet of all other numbers.

    ``pcie``: GB/s of its lanes in one direction, ``pageable`` those from memory that is not pinned (`PCIE`); ``nvlink``:
    GB/s in one direction between two such cards, 0 without; ``bus``: GB/s that an all-reduce moves, as published (`BUS`),
    None where nobody did. ``device``: what its driver says of it: name, compute capability, SMs, MiB of L2, MHz of SMs and
    memory, bits of the memory's bus (those of an A100 where a recording doesn't tell). ``read``: number → the page on which it was read; what isn't in it, no page that could be opened
    says. ``note``: where pages differ, or a number follows from others.
    """

    name: str
    memory: float
    memory_source: str
    bandwidth: float
    watts: float
    fp64: float
    fp32: float
    tf32: float
    fp16: float
    bf16: float
    fp8: float
    pcie: float
    pageable: float
    nvlink: float
    source: str
    bus: float | None = None
    device: tuple = ("Practice GPU", (8, 0), 108, 40, 1410, 1593, 5120)
    read: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    note: str = field(default="", repr=False, compare=False)

    @property
    def short(self) -> str:
        """The name without its memory, such as "T4"; with it where there are two such cards: "A100 80 GB"."""
        name = self.name.split(" (")[0]
        return self.name.replace("(", "").replace(")", "") if name in TWO else name

    @property
    def gigabytes(self) -> int:
        """GB of memory on the data sheet, which the name says; of a recording what was found."""
        match = re.search(r"\((\d+) GB\)", self.name)
        return int(match[1]) if match else round(self.memory * GIB / 1e9)

    def peak(self, unit: str) -> float:
        """FLOP/s of products in ``unit``: "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8".

        Tensor cores multiply int8 at twice the rate of float16, as fast as float8 where they have it (NVIDIA's white papers of
        Turing to Blackwell); before them there is a fourfold dot product (dp4a).
        """
        if unit == "int8":
            tensor_cores = self.fp16 > 2 * self.fp32 or self.bf16 > self.fp32
            volta = self.name.startswith("V100")
            return 1e12 * (
                max(2 * self.fp16, self.fp8) if tensor_cores and not volta else 4 * self.fp32
            )
        return 1e12 * getattr(self, unit)


# GB/s of all-reduces of 1 GiB and more on one machine: stas00/ml-engineering@744d01e, network/README.md (8 × A100, 8 × H200,
# 8 × B200, 8 × MI300X); two RTX 3090 Ti without peer access: mli/transformers-benchmarks@3370b2b, transformers.ipynb.
BUS = {"A100": 229.0, "H100 SXM": 463.6, "H200": 463.6, "B200": 723.3, "MI300X": 312.9, "RTX": 6.23}
# Generation → GB/s of 16 lanes in one direction (PCI-SIG), and what was measured of pageable memory: Quadro RTX 6000,
# npho/cse554@4eb37c5; A10G, pytorch/tutorials@e12145f (4 GB in 0.387 s). For generation 5 and C2C nobody published it: as 4.
# C2C is NVLink between a Grace CPU and its GPU: 377 GB/s of its 450 were measured (copies_gh200).
PCIE = {3: (15.75, 3.75), 4: (31.5, 10.3), 5: (63.0, 10.3), "C2C": (450.0, 10.3)}


def _card(row: dict) -> Card:
    """The card of a row of the table."""
    row = dict(row)
    pinned, pageable = PCIE[row["pcie"]]
    row["pcie"] = pinned * row.pop("lanes") / 16
    row.pop("not_read")
    row["read"] = {name: page for page, names in row["read"].items() for name in names.split()}
    bus = next((rate for start, rate in BUS.items() if row["name"].startswith(start)), None)
    return Card(**row, pageable=pageable, bus=bus)


class Cards(Mapping[str, Card]):
    """The cards by name; the table is read when one is first asked for."""

    @cached_property
    def _found(self) -> dict[str, Card]:
        rows = json.loads(TABLE.read_text(encoding="utf-8"))["cards"]
        return {row["name"]: _card(row) for row in rows}

    def __getitem__(self, name: str) -> Card:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


CARDS = Cards()


def fits(peak: int) -> list[tuple[str, float]]:
    """[(card, share of its memory that ``peak`` bytes are)], only the cards on which they fit, smallest first."""
    ordered = sorted(CARDS.values(), key=lambda card: card.memory)
    shares = [(card.name, peak / (card.memory * GIB)) for card in ordered]
    return [(name, share) for name, share in shares if share <= 1]


def get_card(name: str) -> Card:
    """The `Card` called ``name``, or that of a recording whose path ends in ".json". Raises ValueError."""
    name = find_card(name)
    return recorded(name) if name.endswith(".json") else CARDS[name]


# Of what a data sheet says: a recording holds what the card reached.
MEMORY = 0.75  # of the bandwidth that a kernel reaches
COMPUTE = 0.8  # of the peak that a product or convolution reaches
UNITS = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}


def recorded(path: str) -> Card:
    """The card that ``python3 -m course record --out FILE.json`` measured, its rates as if from a data sheet.

    Raises ValueError for a file that is no recording of a GPU's products and memory.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        name, device = next(
            (name, each) for name, each in data["devices"].items() if each["kind"] != "cpu"
        )
        rows = {
            part: [r for r in found if r["device"] == name]
            for part, found in data["sections"].items()
        }
        best = {
            unit: max((r["tflop_per_s"] for r in rows["matmul"] if r["dtype"] == dtype), default=0)
            for unit, dtype in UNITS.items()
        }
        if not best["fp32"]:
            raise LookupError("no products in float32")
        fp32 = best["fp32"] / COMPUTE
        peaks = {unit: rate / COMPUTE if rate else fp32 for unit, rate in best.items()}
        bandwidth = max(r["gb_per_s"] for r in rows["bandwidth"]) / MEMORY
        copies = rows.get("copies", [])
        pinned, pageable = (
            max(
                (r["gb_per_s"] for r in copies if r["pinned"] is kind and r["direction"] == "h2d"),
                default=rate,
            )
            for kind, rate in zip((True, False), PCIE[3], strict=True)
        )
        title = f"{device['name']} ({Path(path).name})"
        memory = (device["memory_bytes"] or 0) / GIB
    except (OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
        raise ValueError(
            f"card={path!r}: this is no recording of a GPU, as 'python3 -m course record --out FILE.json' makes it "
            f"({type(error).__name__}: {error})"
        ) from None
    return Card(
        title, memory, path, bandwidth, 1000, fp32 / 64, peaks["fp32"], peaks["tf32"], peaks["fp16"], peaks["bf16"], peaks["fp16"],
        pinned / MEMORY, pageable, 0, path,
    )  # fmt: skip


def words(text: str) -> set[str]:
    """The words and numbers of a card's name, in small letters."""
    return set(re.findall(r"[a-z]+\d*[a-z]*|\d+", text.lower())) - {
        "gb",
        "gib",
        "nvidia",
        "geforce",
    }


def find_card(name: str) -> str:
    """The only card whose name has all words of ``name``, such as "A100 80". Raises ValueError with the nearest names."""
    if not isinstance(name, str):
        raise ValueError(f"card={name!r}: give the name of a card as text")
    if name.endswith(".json"):
        return name
    wanted = words(name)
    if "a100" in wanted:
        wanted -= {"sxm", "sxm4"}  # the A100 of the table is the one with 400 W
    found = [card for card in CARDS if wanted and wanted <= words(card)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"card={name!r}: there is more than one, give one of {', '.join(found)}")
    short = {card.split(" (")[0].lower(): card for card in CARDS}
    short |= {card.split()[0].lower(): card for card in CARDS if not card.startswith("RTX")}
    near = difflib.get_close_matches(name.lower(), short, 1, 0.5)
    hint = f"did you mean {short[near[0]]!r}? " if near else ""
    raise ValueError(
        f"card={name!r}: {hint}Give the name of a recording, such as 'my-gpu.json', or one of {', '.join(CARDS)}"
    )
