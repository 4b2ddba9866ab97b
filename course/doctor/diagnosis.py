"""From the facts about a machine to the one cause and the one fix. Nothing here looks at the machine."""

import re
from dataclasses import dataclass

from course.doctor.facts import Device, Facts, visible_entries
from course.doctor.known_errors import entries
from helpers.host import Capability, has_kernels

PHRASES = {
    "colab": "Runtime → Change runtime type → T4 GPU → Save",
    "on_cpu": "Nothing to repair: every lesson runs on the CPU and on practice GPUs.",
}
DRIVERS = {"cuda": "the GPU's driver", "mps": "macOS", "xpu": "Intel's GPU driver"}
UNLISTED = "torch.cuda.is_available() is True, yet no device is listed"


@dataclass(frozen=True)
class Verdict:
    """`code` (a short name), `summary` (what is the matter), `cause` (why), `fix` (the one thing to do)."""

    code: str
    summary: str
    cause: str
    fix: str


def diagnose(facts: Facts) -> Verdict:
    """The `Verdict` on `facts`; besides them it reads only the table of errors.

    Codes. Works: all_well, rocm, mps, xpu. A GPU that fails: architecture, gpu_busy, gpu_fails, some_gpus_fail.
    PyTorch: torch_missing, torch_broken, no_answer, cpu_build, cpu_build_no_gpu. Driver: no_driver, driver_too_old,
    driver_mismatch, initialization_failed. Out of sight: hidden, container_without_gpu, colab_without_gpu,
    kaggle_without_gpu, binder_without_gpu. Neither present nor missing: no_gpu.
    """
    if not isinstance(facts, Facts):
        words = "it takes course.doctor.Facts, for example from gather_facts()"
        raise TypeError(f"facts is {facts!r}; {words}")
    for look in (_torch_itself, _devices, _hosted, _build, _hidden, _start_of_cuda):
        verdict = look(facts)
        if verdict:
            return verdict
    return _nothing_there(facts)


def _verdict(case: str, facts: Facts, **values: object) -> Verdict:
    """The verdict of one case, "no_gpu.mac", with `values` in its texts."""
    entry = entries()[case]
    texts = [entry.get(f"here_{field}", entry[field]) for field in ("title", "cause", "fix")]
    title, cause, fix = (text.format(facts=facts, **(PHRASES | values)) for text in texts)
    return Verdict(case.partition(".")[0], f"{title}.", cause, fix)


def _torch_itself(facts: Facts) -> Verdict | None:
    error = facts.torch_error
    if facts.torch is not None and not error:
        return None
    if facts.torch_hangs:
        return _verdict("no_answer", facts)
    if "No module named 'torch'" in error or not error:
        python = "py" if facts.system == "Windows" else "python3"
        cause = error or "torch was not found."
        return _verdict("torch_missing", facts, cause=cause, python=python)
    if "has no attribute" in error or "circular import" in error:
        case = "torch_broken.name"
    else:
        case = "torch_broken.dll" if ".dll" in error else "torch_broken"
    return _verdict(case, facts, cause=first_line(error), install=_install(facts))


def _devices(facts: Facts) -> Verdict | None:
    if not facts.devices:
        unlisted = Device("cuda", "The GPU", error=UNLISTED)
        return _failing(unlisted, facts) if facts.cuda_available else None
    kind = facts.devices[0].device.split(":")[0]  # the best kind decides
    devices = [device for device in facts.devices if device.device.startswith(kind)]
    bad = [device for device in devices if device.error]
    if not bad:
        code = "all_well" if kind == "cuda" else kind
        if facts.rocm_build and kind == "cuda":
            code = "rocm"
        names = ", ".join(f"{device.device} {device.name}" for device in devices)
        return _verdict(code, facts, names=names, mask=_mask(facts))
    if len(bad) < len(devices):
        return _some_fail(devices, bad, facts)
    lacking = [device for device in bad if _no_code(device, facts)]
    return _no_kernels(lacking[0], facts) if lacking else _failing(bad[0], facts)


def _some_fail(devices: list[Device], bad: list[Device], facts: Facts) -> Verdict:
    # the variable renumbers: PyTorch's 0 may be its entry "2"
    visible = visible_entries(facts.visible or "", 0)
    indices = [int(device.device.split(":")[1]) for device in devices if not device.error]
    good = [visible[index] if index < len(visible) else str(index) for index in indices]
    errors = [f"{device.device} {device.name}: {first_line(device.error)}" for device in bad]
    count = {"bad": len(bad), "all": len(devices)}
    return _verdict("some_gpus_fail", facts, **count, cause="; ".join(errors), good=",".join(good))


def _no_code(device: Device, facts: Facts) -> bool:
    if "no kernel image" in device.error:
        return True
    if not device.capability or not facts.architectures or facts.rocm_build:
        return False
    return not has_kernels(device.capability, facts.architectures)


def _no_kernels(device: Device, facts: Facts) -> Verdict:
    major, minor = device.capability or (0, 0)
    cause = (
        f"{device.name} has compute capability {major}.{minor}; this build holds code for "
        f"{' '.join(facts.architectures)}. See https://docs.nvidia.com/cuda/blackwell-compatibility-guide"
    )
    case = "architecture.too_old" if (major, minor) < (5, 0) else "architecture"
    if facts.host == "kaggle":
        case = "architecture.kaggle"
    return _verdict(case, facts, cause=cause, install=_install(facts, (major, minor)))


def _failing(device: Device, facts: Facts) -> Verdict:
    busy = "out of memory" in device.error or "busy or unavailable" in device.error
    driver = DRIVERS[device.device.split(":")[0]]
    case = "gpu_busy" if busy else "gpu_fails"
    return _verdict(case, facts, device=device, cause=first_line(device.error), driver=driver)


def _hosted(facts: Facts) -> Verdict | None:
    if facts.gpus or facts.host not in ("colab", "kaggle", "binder"):
        return None
    return _verdict(f"{facts.host}_without_gpu", facts)


def _build(facts: Facts) -> Verdict | None:
    if facts.cuda_build or facts.rocm_build:
        return None
    if facts.system == "Darwin":
        return _verdict("no_gpu.mac" if facts.mps_built else "no_gpu.mac_without_mps", facts)
    build = f"for Intel GPUs (XPU {facts.xpu_build})" if facts.xpu_build else "for the CPU only"
    if facts.gpus or ((facts.driver or facts.cards) and not facts.container):
        gpus = ", ".join(facts.gpus) or "an NVIDIA GPU"
        return _verdict("cpu_build", facts, build=build, seen=gpus, install=_install(facts))
    return _verdict("cpu_build_no_gpu", facts, build=build)


def _hidden(facts: Facts) -> Verdict | None:
    if facts.visible is None or not (facts.gpus or facts.driver):
        return None
    if visible_entries(facts.visible, len(facts.gpus)):
        return None
    last = len(facts.gpus) - 1
    numbers = {-1: "", 0: " (GPU 0)"}.get(last, f" (GPU 0 to {last})")
    return _verdict("hidden", facts, there=numbers)


def _start_of_cuda(facts: Facts) -> Verdict | None:
    errors = f"{facts.cuda_error} {facts.smi_error}"
    if "library version mismatch" in errors or "Error 803" in errors:
        return _verdict("driver_mismatch", facts, cause=first_line(facts.smi_error or errors))
    if _too_old(facts, errors):
        version = re.search(r"\(found version (\d+)(\d\d)\d\)", errors)
        speaks = f", which knows CUDA up to {version[1]}.{int(version[2])}" if version else ""
        where = " (in Windows, not inside WSL)" if facts.wsl else ""
        values = {"driver": facts.driver or "older", "speaks": speaks, "where": where}
        needs = driver_needed(facts.cuda_build) or "a newer version"
        return _verdict("driver_too_old", facts, needs=needs, **values)
    if facts.gpus and facts.cuda_build:
        counts = f"PyTorch counts no device, though nvidia-smi lists {', '.join(facts.gpus)}."
        cause = first_line(facts.cuda_error) or counts
        return _verdict("initialization_failed", facts, cause=cause)
    return None


def _too_old(facts: Facts, errors: str) -> bool:
    if re.search(r"too old \(found version \d+\)|Error 804|Error 35\b", errors):
        return True
    needs = driver_needed(facts.cuda_build)
    series = re.match(r"\d{3}", facts.driver or "")
    return bool(series and needs and int(series[0]) < needs)


def _nothing_there(facts: Facts) -> Verdict:
    if facts.rocm_build:
        cause = first_line(facts.cuda_error) or "The ROCm build counts no device."
        return _verdict("no_gpu.rocm", facts, cause=cause)
    # a container shows the host's kernel module
    idle = facts.driver and not facts.smi_error and not facts.container
    if idle or "No devices were found" in facts.smi_error:
        cause = first_line(facts.smi_error) or "The driver lists no device."
        return _verdict("no_gpu.idle_driver", facts, cause=cause)
    if facts.wsl:
        return _verdict("no_driver.wsl", facts)
    if facts.container and (facts.cards != 0 or facts.driver):
        though = f", though the machine holds {facts.cards} NVIDIA GPU(s)" if facts.cards else ""
        return _verdict("container_without_gpu", facts, though=though)
    if facts.cards == 0:
        return _verdict("no_gpu", facts)
    case = "no_driver.card_is_there" if facts.cards else "no_driver"
    cause = first_line(facts.smi_error or facts.cuda_error)
    return _verdict(case, facts, cause=cause or "Neither a driver nor nvidia-smi was found.")


def _install(facts: Facts, capability: tuple[int, int] | None = None) -> str:
    return install_command(facts.system, facts.driver, capability)


def _mask(facts: Facts) -> str:
    count = sum(device.device.startswith("cuda") for device in facts.devices)
    if facts.visible is None or count >= len(facts.gpus):
        return ""
    words = f"because CUDA_VISIBLE_DEVICES is {facts.visible!r}"
    return f" {count} of {len(facts.gpus)} GPUs are visible, {words}."


def first_line(text: str) -> str:
    """The first line that says something, without PyTorch's prefix."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("CUDA initialization: ")[:300] if lines else ""


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
