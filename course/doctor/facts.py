"""The facts from which the doctor tells why CUDA is there or not. Plain Python, no torch in this process."""

import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.doctor import probe

HOSTS = {  # the first that is set; Kaggle's image keeps Colab's: https://github.com/Kaggle/kagglehub/pull/230
    "KAGGLE_KERNEL_RUN_TYPE": "kaggle",
    "COLAB_RELEASE_TAG": "colab",
    "BINDER_SERVICE_HOST": "binder",
    "BINDER_LAUNCH_HOST": "binder",
}
TIMEOUT = 90  # seconds for PyTorch to answer


@dataclass(frozen=True)
class Device:
    """One device that PyTorch lists: "cuda:0", its name, compute capability (major, minor), memory in bytes.

    `error` is "" when a small computation on it came out right, else what went wrong.
    """

    device: str
    name: str | None = None
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known about a machine. The defaults are a Linux PC with a CUDA build of PyTorch and no GPU.

    The machine: `system` (platform.system()), `python`, `host` ("colab", "kaggle", "binder" or ""), `wsl` (Linux
    inside Windows), `container`. NVIDIA's side: `driver` (version or None), `gpus` (names that nvidia-smi lists),
    `smi_error` (its complaint), `cards` (how many NVIDIA GPUs sit on the PCI bus; None: no way to look), `visible`
    (CUDA_VISIBLE_DEVICES; None: not set). PyTorch's side: `torch` (version; None: it does not import, and then
    `torch_error` says why, and `torch_hangs` that it gave no answer), `cuda_build`, `rocm_build`, `xpu_build` (version it was built for, or None), `mps_built`,
    `architectures` (it holds code for), `cuda_available`, `cuda_error` (words of its CUDA start), `devices` (what
    it can use besides the CPU), `threads` (what is wrong with them, a sentence). Also `problems` (facts that could not
    be had, and why).
    """

    system: str = "Linux"
    python: str = "3.12.0"
    host: str = ""
    wsl: bool = False
    container: bool = False
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    smi_error: str = ""
    cards: int | None = None
    visible: str | None = None
    torch: str | None = "2.13.0"
    torch_error: str = ""
    torch_hangs: bool = False
    cuda_build: str | None = "13.0"
    rocm_build: str | None = None
    xpu_build: str | None = None
    mps_built: bool = False
    architectures: tuple[str, ...] = ()
    cuda_available: bool = False
    cuda_error: str = ""
    devices: tuple[Device, ...] = ()
    threads: str = ""
    problems: tuple[str, ...] = ()


def gather_facts() -> Facts:
    """Collect the `Facts` of this machine; takes about as long as `import torch`, at most about `TIMEOUT` seconds.

    It looks at the real machine: PyTorch answers in a child process, where practice GPUs do not exist. A source that
    fails costs its facts, never the rest: what failed and why is in `Facts.problems`.
    """
    facts: dict[str, Any] = {"torch": None}
    problems = []
    for source in (_ask_system, _ask_container, find_driver, _ask_cards, _ask_torch):
        try:
            facts.update(source())
        except Exception as error:  # noqa: BLE001 - the report prints it
            problems.append(f"{type(error).__name__}: {error}")
    return Facts(**facts, problems=tuple(problems))


def visible_entries(visible: str, count: int) -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES=`visible` that count among `count` GPUs (0: unknown), as a list of text.

    Entries from the first that names no GPU on are ignored, and a repeated entry hides all: the section on CUDA
    environment variables in https://docs.nvidia.com/cuda/cuda-programming-guide/
    """
    entries: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        number = re.match(r"\+?\d+", entry)
        exists = number and (not count or int(number[0]) < count)
        if not exists and not entry.startswith(("GPU-", "MIG-")):
            break
        entries.append(entry)
    return entries if len(entries) == len(set(entries)) else []


def _ask_system() -> dict[str, Any]:
    hosts = [host for variable, host in HOSTS.items() if variable in os.environ]
    return {
        "system": platform.system(),
        "python": platform.python_version(),
        "host": hosts[0] if hosts else "",
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "wsl": "microsoft" in platform.release().lower(),
    }


def _ask_container() -> dict[str, Any]:
    signs = (
        Path("/.dockerenv").exists(),
        Path("/run/.containerenv").exists(),
        "KUBERNETES_SERVICE_HOST" in os.environ,
        bool(os.environ.get("container")),
        "APPTAINER_CONTAINER" in os.environ,
    )
    return {"container": any(signs)}


def find_driver() -> dict[str, Any]:
    """NVIDIA's "driver", "gpus" and "smi_error" as in `Facts`, as a dict, {} where there is no trace of a driver.

    From nvidia-smi, else from the kernel module.
    """
    module_facts: dict[str, Any] = {}
    kernel_module = Path("/proc/driver/nvidia/version")
    if kernel_module.exists():
        version = re.search(r"\s(\d{3}\.\d+(\.\d+)?)\s", kernel_module.read_text(errors="replace"))
        module_facts["driver"] = version[1] if version else "unknown"
    program = _nvidia_smi()
    if program is None:
        return module_facts
    try:
        answer = _run([program, "--query-gpu=driver_version,name", "--format=csv,noheader"], 20)
    except subprocess.TimeoutExpired:
        return {**module_facts, "smi_error": "nvidia-smi did not answer within 20 seconds"}
    rows = re.findall(r"^(\d+\.\d+[\d.]*), (.*)", answer.stdout, flags=re.M)
    if not rows:
        words = (answer.stdout + answer.stderr).strip()[:500]
        return {**module_facts, "smi_error": words or f"exit status {answer.returncode}"}
    return {"driver": rows[0][0], "gpus": tuple(name.strip() for _, name in rows)}


def _run(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, but does not wait for a child that cannot be killed, as one stuck in a driver."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    try:
        output, errors = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def _nvidia_smi() -> str | None:
    windows = os.environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32\nvidia-smi.exe"
    usual_places = (windows, "/usr/lib/wsl/lib/nvidia-smi", "/opt/bin/nvidia-smi")
    for program in (shutil.which("nvidia-smi"), *usual_places):
        if program and Path(program).exists():
            return program
    return None


def _ask_cards() -> dict[str, Any]:
    """NVIDIA display controllers (vendor 10de, class 03) on the PCI bus; Linux shows it to containers too."""
    vendors = glob.glob("/sys/bus/pci/devices/*/vendor")
    if not vendors or "microsoft" in platform.release().lower():
        return {"cards": None}
    cards = 0
    for vendor in vendors:
        if Path(vendor).read_text().strip() == "0x10de":
            cards += Path(vendor).with_name("class").read_text().startswith("0x03")
    return {"cards": cards}


def _ask_torch() -> dict[str, Any]:
    """Run probe.py in a child, started as a notebook's kernel is: the current folder comes first for imports."""
    code = f"import runpy; runpy.run_path({probe.__file__!r}, run_name='__main__')"
    try:
        child = _run([sys.executable, "-c", code], TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"torch_error": f"no answer within {TIMEOUT:g} seconds", "torch_hangs": True}
    lines = [line for line in child.stdout.splitlines() if line.startswith(probe.MARK)]
    if not lines:
        end = child.stderr.strip()[-500:]
        return {"torch_error": f"crashed with exit status {child.returncode}: {end}"}
    facts = json.loads(lines[-1].removeprefix(probe.MARK))
    devices = []
    for fields in facts.pop("devices", ()):
        capability = fields.pop("capability")
        devices.append(Device(**fields, capability=tuple(capability) if capability else None))
    architectures = tuple(facts.pop("architectures", ()))
    return {**facts, "architectures": architectures, "devices": tuple(devices)}
