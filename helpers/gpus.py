"""NVIDIA GPUs: data sheets of well-known cards, what tensor cores compute, and which builds of PyTorch hold code for them.

Plain Python, no torch: the doctor needs it where torch does not import. Published, not measured: figures must say so.

Rates are dense (without sparsity), in TFLOP/s (10**12 floating-point operations a second); memory in GB (10**9 bytes),
bandwidth in GB/s; `None` where the card has no tensor cores for the format. Sources: the `source` page of each card;
the pages of L4, H100 and H200 give rates with sparsity, which are twice the dense rates used here. V100, A100, H100 and
H200 are the SXM modules; the tensor cores of RTX cards are those that add in float32.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """One card: its published capacity, bandwidth, multiprocessors, compute capability and peak rates."""

    name: str
    memory_gb: float
    bandwidth_gb_s: float
    multiprocessors: int
    capability: tuple
    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    fp8: float | None
    page: str

    @property
    def source(self):
        """The address of the card's data sheet."""
        return f"https://www.nvidia.com/{self.page}"


_CENTER = "en-us/data-center"
_3090 = "content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_4090 = "en-us/geforce/graphics-cards/40-series/rtx-4090/"
CARDS = (
    Card("T4", 16, 320, 40, (7, 5), 8.1, None, 65, None, None, f"{_CENTER}/tesla-t4/"),
    Card("V100", 16, 900, 80, (7, 0), 15.7, None, 125, None, None, f"{_CENTER}/v100/"),
    Card("L4", 24, 300, 58, (8, 9), 30.3, 60, 121, 121, 242.5, f"{_CENTER}/l4/"),
    Card("A10", 24, 600, 72, (8, 6), 31.2, 62.5, 125, 125, None, f"{_CENTER}/products/a10-gpu/"),
    Card("RTX 3090", 24, 936, 82, (8, 6), 35.6, 35.6, 71, 71, None, _3090),
    Card("L40S", 48, 864, 142, (8, 9), 91.6, 183, 362, 362, 733, f"{_CENTER}/l40s/"),
    Card("RTX 4090", 24, 1008, 128, (8, 9), 82.6, 82.6, 165.2, 165.2, 330.3, _4090),
    Card("A100 40 GB", 40, 1555, 108, (8, 0), 19.5, 156, 312, 312, None, f"{_CENTER}/a100/"),
    Card("A100 80 GB", 80, 2039, 108, (8, 0), 19.5, 156, 312, 312, None, f"{_CENTER}/a100/"),
    Card("H100", 80, 3350, 132, (9, 0), 67, 494.5, 989.5, 989.5, 1979, f"{_CENTER}/h100/"),
    Card("H200", 141, 4800, 132, (9, 0), 67, 494.5, 989.5, 989.5, 1979, f"{_CENTER}/h200/"),
)


FORMATS = ("FP16", "BF16", "TF32", "FP8", "FP4")
_GENERATIONS = (  # first compute capability, name, formats that its tensor cores take
    ((5, 0), "Maxwell", ()),
    ((6, 0), "Pascal", ()),
    ((7, 0), "Volta", ("FP16",)),
    ((7, 5), "Turing", ("FP16",)),
    ((8, 0), "Ampere", ("FP16", "BF16", "TF32")),
    ((8, 9), "Ada Lovelace", ("FP16", "BF16", "TF32", "FP8")),
    ((9, 0), "Hopper", ("FP16", "BF16", "TF32", "FP8")),
    ((10, 0), "Blackwell", FORMATS),
    ((13, 0), None, None),  # newer than this table
)


def parse_capability(value):
    """`value`, "8.6" or (8, 6), as a tuple (major, minor); TypeError or ValueError for anything else."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,2})\.(\d)", value)
        if not match:
            raise ValueError(
                f'capability is {value!r}; it takes a compute capability such as "8.6" or (8, 6)'
            )
        return int(match[1]), int(match[2])
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and all(type(part) is int and part >= 0 for part in value)
    ):
        return value
    raise TypeError(
        f'capability is {value!r}; it takes a compute capability such as "8.6" or (8, 6)'
    )


def tensor_cores(capability):
    """Generation and number formats of the tensor cores at compute `capability`, "8.6" or (8, 6).

    A dict: "generation" (its name, or None where it is older or newer than the table) and one True, False or None
    (unknown) for each of `FORMATS`. Source: the tables of compute capabilities in the CUDA Programming Guide,
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html, and for the older
    generations the whitepapers that NVIDIA lists at https://developer.nvidia.com/cuda-gpus.
    """
    capability = parse_capability(capability)
    name, formats = None, ()
    for first, generation, takes in _GENERATIONS:
        if capability >= first:
            name, formats = generation, takes
    return {
        "generation": name,
        **{each: None if formats is None else each in formats for each in FORMATS},
    }


def has_kernels(capability, architectures):
    """True when a build of PyTorch for `architectures` (torch.cuda.get_arch_list()) has code for `capability`.

    "sm_80" is machine code: it runs on the same major version from that minor version on (8.0, 8.6, 8.9; not 9.0).
    "compute_80" is PTX, which the driver compiles for that capability and every later one. A letter narrows this:
    "sm_90a" runs on 9.0 alone, "sm_100f" on its family. Source: "Application compatibility" in
    https://docs.nvidia.com/cuda/blackwell-compatibility-guide (embedded Jetson GPUs have further exceptions).
    """
    capability = parse_capability(capability)
    return any(_runs(capability, each) for each in architectures)


def _runs(capability, architecture):
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
    if not match:
        return False  # not an NVIDIA architecture, for example gfx90a of a ROCm build
    code = int(match[2]), int(match[3])
    if match[4] == "a":
        return capability == code
    if match[1] == "compute" and not match[4]:
        return capability >= code
    return capability[0] == code[0] and capability >= code


def driver_needed(cuda):
    """First series of the NVIDIA driver that runs builds for `cuda` ("13.2"): 580; None where it is not known.

    Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    return {"11": 450, "12": 525, "13": 580}.get((cuda or "").split(".")[0])


def install_command(system, driver=None, capability=None):
    """The command that installs a build of PyTorch for a GPU, on `system` ("Windows", "Linux", "Darwin").

    A `driver` before 580 or a compute `capability` below 7.5 takes the build for CUDA 12.6, everything else that for
    CUDA 13.0 (None: unknown). Both hold torch and torchvision, and one command installs both, so that they match.
    Source: https://pytorch.org/get-started/locally/ and the table of builds in PyTorch's torch/cuda/__init__.py.
    """
    command = "python -m pip install --force-reinstall torch torchvision"
    if system == "Darwin":
        return command
    old_driver = (driver or "")[:3].isdigit() and int(driver[:3]) < 580
    old_gpu = capability is not None and capability < (7, 5)
    return f"{command} --index-url https://download.pytorch.org/whl/{'cu126' if old_driver or old_gpu else 'cu130'}"
