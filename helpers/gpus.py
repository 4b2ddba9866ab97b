"""NVIDIA GPUs: what tensor cores of each generation compute, and which builds of PyTorch hold code for them.

Plain Python, no torch: the doctor needs it where torch does not import. Data sheets of cards: `practice_gpus.cards`.
"""

import re
from collections.abc import Iterable

Capability = tuple[int, int]
CARDS = (  # those that figures compare, by memory: names that `practice_gpus.cards.get_card` takes
    "T4",
    "RTX 4090",
    "A100 40 GB",
    "A100 80 GB",
    "H200",
)
FORMATS = ("FP16", "BF16", "TF32", "FP8", "FP4")
_GENERATIONS: tuple[tuple[Capability, str | None, tuple[str, ...] | None], ...] = (
    # first compute capability, name, formats that its tensor cores take
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


def parse_capability(value: str | Capability) -> Capability:
    """`value`, "8.6" or (8, 6), as a tuple (major, minor); ValueError for anything else."""
    text = ".".join(map(str, value)) if isinstance(value, tuple) else value
    match = re.fullmatch(r"(\d{1,2})\.(\d)", text) if isinstance(text, str) else None
    if not match:
        words = 'it takes a compute capability such as "8.6" or (8, 6)'
        raise ValueError(f"capability is {value!r}; {words}")
    return int(match[1]), int(match[2])


def tensor_cores(capability: str | Capability) -> dict[str, str | bool | None]:
    """Generation and number formats of the tensor cores at compute `capability`, "8.6" or (8, 6).

    A dict: "generation" (its name, or None where it is older or newer than the table) and one True, False or None
    (unknown) for each of `FORMATS`. Source: the tables of compute capabilities in the CUDA Programming Guide,
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html, and for the older
    generations the whitepapers that NVIDIA lists at https://developer.nvidia.com/cuda-gpus.
    """
    capability = parse_capability(capability)
    older = (capability, None, ())
    reached = [each for each in _GENERATIONS if capability >= each[0]]
    _, generation, takes = reached[-1] if reached else older
    known = {each: None if takes is None else each in takes for each in FORMATS}
    return {"generation": generation, **known}


def has_kernels(capability: str | Capability, architectures: Iterable[str]) -> bool:
    """True when a build of PyTorch for `architectures` (torch.cuda.get_arch_list()) has code for `capability`.

    "sm_80" is machine code: it runs on the same major version from that minor version on (8.0, 8.6, 8.9; not 9.0).
    "compute_80" is PTX, which the driver compiles for that capability and every later one. A letter narrows this:
    "sm_90a" runs on 9.0 alone, "sm_100f" on its family. Source: "Application compatibility" in
    https://docs.nvidia.com/cuda/blackwell-compatibility-guide (embedded Jetson GPUs have further exceptions).
    """
    capability = parse_capability(capability)
    return any(_runs(capability, each) for each in architectures)


def _runs(capability: Capability, architecture: str) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
    if not match:
        return False  # not an NVIDIA architecture, for example gfx90a of a ROCm build
    code = int(match[2]), int(match[3])
    if match[4] == "a":
        return capability == code
    if match[1] == "compute" and not match[4]:
        return capability >= code
    return capability[0] == code[0] and capability >= code


def driver_needed(cuda: str | None) -> int | None:
    """First series of the NVIDIA driver that runs builds for `cuda` ("13.2"): 580; None where it is not known.

    Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    return {"11": 450, "12": 525, "13": 580}.get((cuda or "").split(".")[0])


def install_command(
    system: str, driver: str | None = None, capability: Capability | None = None
) -> str:
    """The command that installs a build of PyTorch for a GPU, on `system` ("Windows", "Linux", "Darwin").

    A `driver` before 580 or a compute `capability` below 7.5 takes the build for CUDA 12.6, everything else that for
    CUDA 13.0 (None: unknown). Both hold torch and torchvision, and one command installs both, so that they match.
    Source: https://pytorch.org/get-started/locally/ and the table of builds in PyTorch's torch/cuda/__init__.py.
    """
    command = "python -m pip install --force-reinstall torch torchvision"
    if system == "Darwin":
        return command
    old_driver = (driver or "")[:3].isdigit() and int((driver or "")[:3]) < 580
    old_gpu = capability is not None and capability < (7, 5)
    build = "cu126" if old_driver or old_gpu else "cu130"
    return f"{command} --index-url https://download.pytorch.org/whl/{build}"
