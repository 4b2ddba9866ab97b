"""Choose a device, describe it, wait for it: on CUDA and ROCm, Apple MPS, Intel XPU, and on a CPU alone.

`device = pick_device()` at the top of a program, then `tensor.to(device)`, and `synchronize(device)` before a clock is
read. Why CUDA is not there: `python3 -m course doctor`.
"""

import warnings
from typing import Any

import torch

from helpers import host

GENERATIONS = {  # of NVIDIA's GPUs, by their first compute capability: CUDA Programming Guide, compute capabilities
    (13, 0): None,  # newer than this table
    (10, 0): "Blackwell",
    (9, 0): "Hopper",
    (8, 9): "Ada Lovelace",
    (8, 0): "Ampere",
    (7, 5): "Turing",
    (7, 0): "Volta",
    (6, 0): "Pascal",
    (5, 0): "Maxwell",
}


def pick_device(prefer: str | torch.device = "auto") -> torch.device:
    """The device to work on: the best one here (CUDA or ROCm, then Apple MPS, then Intel XPU, then CPU), or `prefer`.

    `prefer` takes "auto", a name such as "cpu", "cuda", "cuda:1", "mps", or a torch.device. The answer carries an
    index ("cuda" gives cuda:0), so it equals the `.device` of the tensors made on it. A device that is not here raises
    ValueError, which lists what is. "auto" passes over a GPU for which this build of PyTorch has no code, with a
    warning. Where practice GPUs are on, they count as CUDA devices. Lesson 01 teaches how to write this function.
    """
    if prefer != "auto":
        return _checked("prefer", prefer)
    for name in device_names():
        if _usable(name):
            break
        major, minor = torch.cuda.get_device_capability(name)
        warnings.warn(
            f"{name} has compute capability {major}.{minor}, for which this build of PyTorch has no "
            "code, so it is passed over. `python3 -m course doctor` says how to repair that.",
            stacklevel=2,
        )
    return torch.device(name)


def _checked(argument: str, device: str | torch.device) -> torch.device:
    """`device` with its index, where it is here; errors name the `argument`."""
    if not isinstance(device, (str, torch.device)):
        words = 'it takes a device name such as "cuda:1" or a torch.device'
        raise TypeError(f"{argument} is {device!r}; {words}")
    name = str(device).removesuffix(":0")
    name = name if ":" in name or name == "cpu" else f"{name}:0"
    if name not in device_names():
        here = ", ".join(device_names())
        raise ValueError(f"{argument} is {str(device)!r}; this machine has: {here}")
    return torch.device(name)


def device_names() -> list[str]:
    """The names of all devices that PyTorch can use here, best first, for example ["cuda:0", "cuda:1", "cpu"]."""
    names = []
    for kind in ("cuda", "mps", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            names += [f"{kind}:{index}" for index in range(module.device_count())]
    return [*names, "cpu"]


def _usable(name: str) -> bool:
    """Whether this build of PyTorch has code for the device called `name`, such as "cuda:0"."""
    if not name.startswith("cuda") or torch.version.hip or not torch.cuda.get_arch_list():
        return True
    capability = torch.cuda.get_device_capability(name)
    return host.has_kernels(tuple(capability), torch.cuda.get_arch_list())


def names_here() -> set[str]:
    """What tells this machine's devices from others in a figure: GPUs' names, the CPU's name, also with its cores."""
    names = [describe(name)["name"] for name in device_names()]
    return {*names, f"{host.cpu_name()}, {host.cpu_cores()} cores"}


def describe(device: str | torch.device) -> dict[str, Any]:
    """What is known about `device`, as a dict of plain values; None stands for unknown.

    "device" ("cuda:0"), "name", "kind" ("cuda", "rocm", "mps", "xpu" or "cpu"), "memory_bytes", "multiprocessors" (of
    a CPU: the cores this process may use), "capability" (NVIDIA: compute capability, "9.0"; CPU: instruction set,
    "AVX2"), "l2_bytes", "bandwidth_bytes_per_s" (of the memory, from its clock and bus width), "generation" (NVIDIA).
    """
    device = _checked("device", device)
    description: dict[str, Any] = {"device": str(device), "name": None, "kind": device.type}
    fields = "memory_bytes multiprocessors capability l2_bytes bandwidth_bytes_per_s generation"
    description |= dict.fromkeys(fields.split())
    if device.type == "cpu":
        description["name"] = host.cpu_name()
        description["memory_bytes"] = host.memory_bytes()
        description["multiprocessors"] = host.cpu_cores()
        description["capability"] = torch.backends.cpu.get_cpu_capability()
    elif device.type == "mps":
        description["name"] = f"{host.cpu_name()} GPU"
        description["memory_bytes"] = torch.mps.recommended_max_memory()
    else:
        description |= _describe_gpu(device)
    return description


def _describe_gpu(device: torch.device) -> dict[str, Any]:
    """The fields of `describe` of a CUDA, ROCm or XPU device, except those that stay unknown."""
    properties = getattr(torch, device.type).get_device_properties(device)
    compute_units = getattr(properties, "max_compute_units", None)  # of Intel's
    description = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": getattr(properties, "multi_processor_count", compute_units),
        "l2_bytes": getattr(properties, "L2_cache_size", None) or None,
        "bandwidth_bytes_per_s": _bandwidth(properties),
    }
    if torch.version.hip:
        description["kind"] = "rocm"
    elif device.type == "cuda":
        capability = f"{properties.major}.{properties.minor}"
        generation = next(
            (n for c, n in GENERATIONS.items() if (properties.major, properties.minor) >= c), None
        )
        description |= {"capability": capability, "generation": generation}
    return description


def _bandwidth(properties: Any) -> int | None:
    """Peak bytes per second: two transfers a clock (memory_clock_rate is in kHz) times the bus width (in bits).

    Source: https://developer.nvidia.com/blog/how-implement-performance-metrics-cuda-cc/
    """
    clock = getattr(properties, "memory_clock_rate", None)
    width = getattr(properties, "memory_bus_width", None)
    return 2 * clock * 1000 * width // 8 if clock and width else None


def synchronize(device: str | torch.device) -> None:
    """Wait until all work queued on `device` (a name or torch.device) is done; a CPU has nothing to wait for."""
    try:
        _wait(torch.device(device) if isinstance(device, str) else device)
    except Exception:
        _checked("device", device)  # says what is wrong with the argument
        raise


def _wait(device: torch.device) -> None:
    """Wait for a torch.device without asking first whether it is there, which would cost microseconds."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        getattr(torch, device.type).synchronize(torch.device(device.type, device.index or 0))
    elif device.index:
        raise ValueError("a second CPU")
