"""This computer in plain Python, without torch: its processor, cores and memory, and which builds run on its GPU.

On Linux, macOS and Windows; a container's limits count. The course's doctor works where torch does not import, so
nothing here needs it; `helpers.devices` describes what torch sees.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

Capability = tuple[int, int]  # compute capability: (8, 6)


def cpu_name() -> str:
    """The processor's name, for example "AMD Ryzen 7 5800X"; the kind of machine ("arm64") where it has no name."""
    if sys.platform == "darwin":
        name = _read_command(["sysctl", "-n", "machdep.cpu.brand_string"])
    elif sys.platform == "win32":
        name = _windows_name()
    else:
        name = _linux_name(_read("/proc/cpuinfo"))
    return " ".join(name.split()) or platform.processor() or platform.machine()


def cpu_cores() -> int:
    """How many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """The memory of this computer in bytes, or a container's limit where that is lower; None when unknown."""
    try:
        import psutil
    except ImportError:
        return None  # the doctor runs where nothing is installed, too
    limits = [
        _read("/sys/fs/cgroup/memory.max"),
        _read("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    known = [int(limit) for limit in limits if limit.strip().isdigit()]
    return min([*known, psutil.virtual_memory().total])


def _read(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # another system, or a file that this user may not read


def _read_command(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _linux_name(cpuinfo):
    fields = dict(line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    return fields.get("model name") or fields.get("Model") or ""


def _windows_name():
    import winreg

    with winreg.OpenKey(
        winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    ) as key:
        return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])


def has_kernels(capability: Capability, architectures: Iterable[str]) -> bool:
    """True when a build of PyTorch for `architectures` (torch.cuda.get_arch_list()) has code for `capability`.

    "sm_80" is machine code: it runs on the same major version from that minor version on (8.0, 8.6, 8.9; not 9.0).
    "compute_80" is PTX, which the driver compiles for that capability and every later one. A letter narrows this:
    "sm_90a" runs on 9.0 alone, "sm_100f" on its family. Source: "Application compatibility" in
    https://docs.nvidia.com/cuda/blackwell-compatibility-guide (embedded Jetson GPUs have further exceptions).
    """
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
