"""Well-known cards: their data sheets' numbers, and the memory that PyTorch finds on them.

Rates are dense (no sparsity), products of tensor cores with accumulation in float32, in TFLOP/s; a format that a card
has no units for is computed at the rate of float32. Bandwidths in GB/s (10⁹ bytes a second).
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30


@dataclass(frozen=True)
class Card:
    """One card. ``memory`` in GiB and where that is from; ``source``: the data sheet of all other numbers.

    ``pcie``: GB/s of its 16 lanes in one direction, ``pageable`` those from memory that is not pinned (`PCIE`); ``nvlink``:
    GB/s in one direction between two such cards, 0 without; ``bus``: GB/s that an all-reduce moves, as published (`BUS`),
    None where nobody did.
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

    def peak(self, unit: str) -> float:
        """FLOP/s of products in ``unit``: "fp64", "fp32", "tf32", "fp16", "bf16" or "fp8"."""
        return 1e12 * getattr(self, unit)


# GB/s of all-reduces of 1 GiB and more on one machine: stas00/ml-engineering@744d01e, network/README.md (8 × A100, 8 × H200,
# 8 × B200, 8 × MI300X); two RTX 3090 Ti without peer access: mli/transformers-benchmarks@3370b2b, transformers.ipynb.
BUS = {"A100": 229.0, "H100": 463.6, "H200": 463.6, "B200": 723.3, "MI300X": 312.9, "RTX": 6.23}
# Generation → GB/s of 16 lanes in one direction (PCI-SIG), and what was measured of pageable memory: Quadro RTX 6000,
# npho/cse554@4eb37c5; A10G, pytorch/tutorials@e12145f (4 GB in 0.387 s). For generation 5 nobody published it: as 4.
PCIE = {3: (15.75, 3.75), 4: (31.5, 10.3), 5: (63.0, 10.3)}
NVIDIA = "https://www.nvidia.com/"
CENTER = NVIDIA + "en-us/data-center/"
PDF = NVIDIA + "content/dam/en-zz/Solutions/"
AMPERE = NVIDIA + "content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
ADA = "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
BLACKWELL = (
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
    "nvidia-rtx-blackwell-gpu-architecture.pdf"
)
BLACKWELL_PRO = (
    NVIDIA + "content/dam/en-zz/Solutions/design-visualization/quadro-product-literature/"
)
SHEET = "data sheet"
ISSUES = "https://github.com/"

# name | GiB | source of it (a thread of GitHub with PyTorch's error, or the data sheet) | GB/s | W | TFLOP/s of fp64, fp32,
# tf32, fp16, bf16, fp8 ("-": no units for it, as fp32; a P100 adds float16 in float32) | PCIe | NVLink | data sheet
TABLE = f"""
P4 (8 GB) | 8 | {SHEET} | 192 | 75 | 0.2 5.5 - - - - | 3 | 0 | {PDF}Data-Center/tesla-p4/pdf/Tesla-P4-Product-Brief.pdf
RTX 4060 (8 GB) | 7.75 | ESRSchao/EdgeRegNet/issues/2 | 272 | 115 | 0.24 15.1 15.1 30.2 30.2 60.4 | 4 | 0 | {NVIDIA}en-us/geforce/graphics-cards/40-series/rtx-4060-4060ti/
RTX 3060 (12 GB) | 11.76 | TencentARC/PhotoMaker/issues/47 | 360 | 170 | 0.2 12.7 12.7 25.5 25.5 - | 4 | 0 | {NVIDIA}en-us/geforce/graphics-cards/30-series/rtx-3060-3060ti/
T4 (16 GB) | 14.56 | Zheng-Chong/CatVTON/issues/133 | 320 | 70 | 0.25 8.1 - 65 - - | 3 | 0 | {CENTER}tesla-t4/
P100 (16 GB) | 16 | {SHEET} | 732 | 250 | 4.7 9.3 - - - - | 3 | 0 | {PDF}Data-Center/tesla-p100/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf
V100 (16 GB) | 16 | {SHEET} | 900 | 300 | 7.8 15.7 - 125 - - | 3 | 150 | {CENTER}v100/
A10G (24 GB) | 22.20 | XavierXiao/Dreambooth-Stable-Diffusion/issues/18 | 600 | 300 | 0.5 35 35 70 70 - | 4 | 0 | https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf
A10 (24 GB) | 24 | {SHEET} | 600 | 150 | 0.5 31.2 62.5 125 125 - | 4 | 0 | {CENTER}products/a10-gpu/
L4 (24 GB) | 24 | {SHEET} | 300 | 72 | 0.5 30.3 60 121 121 242.5 | 4 | 0 | {CENTER}l4/
RTX 3090 (24 GB) | 24 | {SHEET} | 936 | 350 | 0.6 35.6 35.6 71 71 - | 4 | 56 | {AMPERE}
RTX 4090 (24 GB) | 23.64 | ali-vilab/VGen/issues/104 | 1008 | 450 | 1.3 82.6 82.6 165.2 165.2 330.3 | 4 | 0 | {ADA}
RTX 5090 (32 GB) | 32 | {SHEET} | 1792 | 575 | 1.6 104.8 104.8 209.5 209.5 419 | 5 | 0 | {BLACKWELL}
A100 (40 GB) | 39.50 | TianheWu/CoSeR/issues/10 | 1555 | 400 | 19.5 19.5 156 312 312 - | 4 | 300 | {CENTER}a100/
L40 (48 GB) | 44.40 | NVlabs/Eagle/issues/68 | 864 | 300 | 1.4 90.5 90.5 181 181 362 | 4 | 0 | {CENTER}l40/
L40S (48 GB) | 48 | {SHEET} | 864 | 350 | 1.4 91.6 183 362 362 733 | 4 | 0 | {CENTER}l40s/
H100 SXM (80 GB) | 79.11 | vllm-project/vllm/issues/27508 | 3350 | 700 | 67 67 494.7 989.4 989.4 1979 | 5 | 450 | {CENTER}h100/
H100 PCIe (80 GB) | 80 | {SHEET} | 2000 | 350 | 51 51 378 756 756 1513 | 5 | 300 | {PDF}gtcs22/data-center/h100/PB-11133-001_v01.pdf
A100 (80 GB) | 79.25 | HiDream-ai/VAREdit/issues/6 | 2039 | 400 | 19.5 19.5 156 312 312 - | 4 | 300 | {CENTER}a100/
RTX PRO 6000 Max-Q (96 GB) | 96 | {SHEET} | 1792 | 300 | 1.7 109.7 219.5 438.9 438.9 877.9 | 5 | 0 | {BLACKWELL_PRO}NVIDIA-RTX-Blackwell-PRO-GPU-Architecture-v1.0.pdf
H200 (141 GB) | 141 | {SHEET} | 4800 | 700 | 67 67 494.7 989.4 989.4 1979 | 5 | 450 | {CENTER}h200/
B200 (180 GB) | 180 | {SHEET} | 8000 | 1000 | 37 75 1125 2250 2250 4500 | 5 | 900 | {CENTER}hgx/
MI300X (192 GB) | 192 | {SHEET} | 5300 | 750 | 163.4 163.4 653.7 1307.4 1307.4 2614.9 | 5 | 448 | https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf
"""


def _card(line: str) -> Card:
    name, memory, thread, bandwidth, watts, rates, pcie, nvlink, source = line.split(" | ")
    texts = rates.split()
    fp64, fp32, *others = (float(texts[1] if text == "-" else text) for text in texts)
    tf32, fp16, bf16, fp8 = others
    pinned, pageable = PCIE[int(pcie)]
    bus = next((rate for start, rate in BUS.items() if name.startswith(start)), None)
    memory_source = source if thread == SHEET else ISSUES + thread
    return Card(
        name,
        float(memory),
        memory_source,
        float(bandwidth),
        float(watts),
        fp64,
        fp32,
        tf32,
        fp16,
        bf16,
        fp8,
        pinned,
        pageable,
        float(nvlink),
        source,
        bus,
    )


CARDS = {card.name: card for card in map(_card, TABLE.strip().splitlines())}


def fits(peak: int) -> list[tuple[str, float]]:
    """[(card, share of its memory that ``peak`` bytes are)], only the cards on which they fit, smallest first."""
    ordered = sorted(CARDS.values(), key=lambda card: card.memory)
    shares = [(card.name, peak / (card.memory * GIB)) for card in ordered]
    return [(name, share) for name, share in shares if share <= 1]


def get_card(name: str) -> Card:
    """The `Card` called ``name``, or that of a recording whose path ends in ".json". Raises ValueError."""
    name = find_card(name)
    return recorded(name) if name.endswith(".json") else CARDS[name]


# A recording holds what the card reached; a data sheet more, of which `clock.rates` says how much is reached.
UNITS = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}


def recorded(path: str) -> Card:
    """The card that ``python3 -m tools record --out FILE.json`` measured, its rates as if from a data sheet.

    Raises ValueError for a file that is no recording of a GPU's products and memory.
    """
    from .clock.rates import COMPUTE, MEMORY

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
            f"card={path!r}: this is no recording of a GPU, as 'python3 -m tools record --out FILE.json' makes it "
            f"({type(error).__name__}: {error})"
        ) from None
    return Card(
        title, memory, path, bandwidth, 1000, fp32 / 64, **peaks, fp8=peaks["fp16"],
        pcie=pinned / MEMORY, pageable=pageable, nvlink=0, source=path,
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
