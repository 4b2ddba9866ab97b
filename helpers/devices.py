"""Choose a device, describe it, wait for it.

The doctor, which says why CUDA is not there, lives in `helpers.doctor`: it must work where torch does not import.
"""

import platform
import warnings

import torch

from helpers import gpus, host

KINDS = ("cuda", "mps", "xpu", "cpu")  # best first; AMD GPUs (ROCm builds) are "cuda" too


def pick_device(prefer="auto"):
    """The device to work on: the best one here (CUDA or ROCm, then Apple MPS, then Intel XPU, then CPU), or `prefer`.

    `prefer` takes "auto", a name such as "cpu", "cuda", "cuda:1", "mps", or a torch.device. The answer carries an
    index ("cuda" gives cuda:0), so it equals the `.device` of the tensors made on it. A device that is not here raises
    ValueError, which lists what is. "auto" passes over a GPU for which this build of PyTorch has no code, with a
    warning. Where practice GPUs are on, they count as CUDA devices. Lesson 01 teaches how to write this function.
    """
    names = device_names()
    if prefer == "auto":
        for name in names:
            if usable(name):
                return torch.device(name)
            major, minor = torch.cuda.get_device_capability(name)
            warnings.warn(
                f"{name} has compute capability {major}.{minor}, for which this build of PyTorch has no "
                "code, so it is passed over. `python3 -m tools doctor` says how to repair that.",
                stacklevel=2,
            )
    return _checked("prefer", prefer, names)


def _checked(argument, device, names):
    """`device`, a name or torch.device, as a torch.device with its index; errors name the `argument`."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(
            f'{argument} is {device!r}; it takes a device name such as "cuda:1" or a torch.device'
        )
    name = str(device) if ":" in str(device) or str(device) == "cpu" else f"{device}:0"
    name = "cpu" if name == "cpu:0" else name
    if name not in names:
        raise ValueError(f"{argument} is {str(device)!r}; this machine has: {', '.join(names)}")
    return torch.device(name)


def device_names():
    """The names of all devices that PyTorch can use here, best first, for example ["cuda:0", "cuda:1", "cpu"]."""
    return [name for kind in KINDS for name in _names(kind)]


def _names(kind):
    if kind == "cpu":
        return ["cpu"]
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return []
    return [f"{kind}:{index}" for index in range(module.device_count())]


def usable(name):
    """Whether this build of PyTorch has code for the device called `name`, such as "cuda:0"."""
    if not name.startswith("cuda") or torch.version.hip or not torch.cuda.get_arch_list():
        return True
    return gpus.has_kernels(
        tuple(torch.cuda.get_device_capability(name)), torch.cuda.get_arch_list()
    )


def describe(device):
    """What is known about `device`, as a dict of plain values; None stands for unknown.

    "device" ("cuda:0"), "name", "kind" ("cuda", "rocm", "mps", "xpu" or "cpu"), "memory_bytes", "multiprocessors" (of
    a CPU: the cores this process may use), "capability" (NVIDIA: compute capability, "9.0"; CPU: instruction set,
    "AVX2"), "l2_bytes", "bandwidth_bytes_per_s" (of the memory, from its clock and bus width), "generation" (NVIDIA).
    """
    device = _checked("device", device, device_names())
    read = {"cpu": _describe_cpu, "mps": _describe_mps}.get(device.type, _describe_gpu)
    empty = dict.fromkeys(
        (
            "name",
            "kind",
            "memory_bytes",
            "multiprocessors",
            "capability",
            "l2_bytes",
            "bandwidth_bytes_per_s",
            "generation",
        )
    )
    return {"device": str(device), **empty, **read(device)}


def _describe_cpu(device):
    return {
        "name": host.cpu_name(),
        "kind": "cpu",
        "memory_bytes": host.memory_bytes(),
        "multiprocessors": host.cpu_cores(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def _describe_mps(device):
    return {
        "name": f"{host.cpu_name()} GPU",
        "kind": "mps",
        "memory_bytes": torch.mps.recommended_max_memory(),
    }


def _describe_gpu(device):
    properties = getattr(torch, device.type).get_device_properties(device)
    kind = "rocm" if device.type == "cuda" and torch.version.hip else device.type
    compute_units = getattr(properties, "max_compute_units", None)  # of Intel's
    description = {
        "name": properties.name,
        "kind": kind,
        "memory_bytes": properties.total_memory,
        "multiprocessors": getattr(properties, "multi_processor_count", compute_units),
        "l2_bytes": getattr(properties, "L2_cache_size", None) or None,
        "bandwidth_bytes_per_s": _bandwidth(properties),
    }
    if kind == "cuda":
        description["capability"] = f"{properties.major}.{properties.minor}"
        cores = gpus.tensor_cores(description["capability"])
        description["generation"] = cores["generation"]
    return description


def _bandwidth(properties):
    """Peak bytes per second: two transfers a clock (memory_clock_rate is in kHz) times the bus width (in bits).

    Source: https://developer.nvidia.com/blog/how-implement-performance-metrics-cuda-cc/
    """
    clock = getattr(properties, "memory_clock_rate", None)
    width = getattr(properties, "memory_bus_width", None)
    return 2 * clock * 1000 * width // 8 if clock and width else None


def features(capability_or_device):
    """Which number formats the tensor cores take: FP16, BF16, TF32, FP8, FP4, each True, False or None (unknown).

    Takes a compute capability ("8.6" or (8, 6)) or a device. "generation" names NVIDIA's generation, None for other
    devices. A CPU has no tensor cores; of AMD, Apple and Intel GPUs this table knows nothing. Source: see
    `helpers.gpus.tensor_cores`.
    """
    value = capability_or_device
    if isinstance(value, tuple) or (isinstance(value, str) and value[:1].isdigit()):
        return gpus.tensor_cores(value)
    description = describe(value)
    if description["kind"] == "cuda":
        return gpus.tensor_cores(description["capability"])
    answer = False if description["kind"] == "cpu" else None
    return {"generation": None, **dict.fromkeys(gpus.FORMATS, answer)}


def versions():
    """Versions of Python, torch and the libraries it was built with, as a dict; None where it was built without.

    "python", "torch", "cuda", "rocm", "cudnn", "nccl", each text. What each library does: lesson 01.
    """
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    nccl = None
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": None if cudnn is None else _cudnn_text(cudnn),
        "nccl": nccl,
    }


def _cudnn_text(number):
    """cuDNN's version number as text: major * 10000 + minor * 100 + patch since 9.0, major * 1000 before."""
    thousands = 10000 if number >= 90000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


def synchronize(device):
    """Wait until all work queued on `device` (a name or torch.device) is done; a CPU has nothing to wait for."""
    try:
        _wait(torch.device(device) if isinstance(device, str) else device)
    except Exception:
        _checked("device", device, device_names())  # says what is wrong with the argument
        raise


def _wait(device):
    """Wait for a torch.device without asking first whether it is there, which would cost microseconds."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        getattr(torch, device.type).synchronize(torch.device(device.type, device.index or 0))
    elif device.index:
        raise ValueError("a second CPU")
