"""This computer's processor and memory, on Linux, macOS and Windows."""

import os
import platform
import subprocess
import sys
from pathlib import Path


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
