"""From the facts about a machine to the one cause and the one fix. Pure: nothing here looks at the machine."""

import re
from dataclasses import dataclass

from helpers.doctor.facts import Device, Facts, visible_entries
from helpers.gpus import driver_needed, has_kernels, install_command

_COLAB = "Runtime → Change runtime type → T4 GPU → Save"
_ON_CPU = "Nothing to repair: every lesson runs on the CPU and on practice GPUs. "


@dataclass(frozen=True)
class Verdict:
    """`code` (a short name), `summary` (what is the matter), `cause` (why), `fix` (the one thing to do)."""

    code: str
    summary: str
    cause: str
    fix: str


def diagnose(facts):
    """The `Verdict` on `facts`; pure: it looks at nothing else.

    Codes. Works: all_well, rocm, mps, xpu. A GPU that fails: architecture, gpu_busy, gpu_fails, some_gpus_fail.
    PyTorch: torch_missing, torch_broken, no_answer, cpu_build, cpu_build_no_gpu. Driver: no_driver, driver_too_old,
    driver_mismatch, initialization_failed. Out of sight: hidden, container_without_gpu, colab_without_gpu,
    kaggle_without_gpu, binder_without_gpu. Neither present nor missing: no_gpu.
    """
    if not isinstance(facts, Facts):
        raise TypeError(
            f"facts is {facts!r}; it takes helpers.doctor.Facts, for example from gather_facts()"
        )
    for look in (_torch_itself, _devices, _hosted, _build, _hidden, _start_of_cuda, _nothing_there):
        verdict = look(facts)
        if verdict:
            return verdict
    raise AssertionError("unreachable: _nothing_there always answers")


def _torch_itself(facts):
    error = facts.torch_error
    if facts.torch is not None and not error:
        return None
    if "No module named 'torch'" in error or not error:
        return Verdict(
            "torch_missing",
            "PyTorch is not installed for this Python.",
            error or "torch was not found.",
            f"In the folder of the course, run: {'py' if facts.system == 'Windows' else 'python3'} -m helpers lab",
        )
    if "no answer within" in error:
        return Verdict(
            "no_answer",
            "PyTorch does not answer.",
            f"Looking at the devices gave {error}; a driver that hangs does that.",
            "Restart the computer, then run the doctor again.",
        )
    if "has no attribute" in error or "circular import" in error:
        fix = "Rename the file or folder of yours that has the name torch or the name of a module of Python."
    elif ".dll" in error:
        fix = "Install Microsoft's Visual C++ Redistributable: https://aka.ms/vs/17/release/vc_redist.x64.exe"
    else:
        fix = f"In a terminal, run: {_install(facts)}"
    return Verdict(
        "torch_broken", "PyTorch is installed but does not import.", first_line(error), fix
    )


def _devices(facts):
    if not facts.devices and facts.cuda_available:
        return _failing(
            Device(
                "cuda",
                "The GPU",
                error="torch.cuda.is_available() is True, yet no device is listed",
            )
        )
    if not facts.devices:
        return None
    kind = facts.devices[0].device.split(":")[0]
    devices = [
        each for each in facts.devices if each.device.startswith(kind)
    ]  # the best kind decides
    bad = [each for each in devices if each.error]
    lacking = [each for each in bad if _no_code(each, facts)]
    if not bad:
        names = ", ".join(f"{each.device} {each.name}" for each in devices)
        code = (
            "rocm" if facts.rocm_build and kind == "cuda" else {"cuda": "all_well"}.get(kind, kind)
        )
        words = {
            "all_well": "CUDA",
            "rocm": "AMD's ROCm, which PyTorch calls cuda too",
            "mps": "Apple's MPS",
            "xpu": "Intel's XPU",
        }[code]
        return Verdict(
            code,
            f"All is well: {names}.",
            f"PyTorch computes on it through {words}, and a test computation came out right.{_mask(facts)}",
            "Nothing to fix.",
        )
    if len(bad) < len(devices):
        entries = visible_entries(
            facts.visible or "", 0
        )  # the variable renumbers: PyTorch's 0 may be its entry "2"
        indices = [int(each.device.split(":")[1]) for each in devices if not each.error]
        good = ",".join(entries[index] if index < len(entries) else str(index) for index in indices)
        return Verdict(
            "some_gpus_fail",
            f"{len(bad)} of {len(devices)} GPUs fail.",
            "; ".join(f"{each.device} {each.name}: {first_line(each.error)}" for each in bad),
            f"Use the others: before Python starts, set CUDA_VISIBLE_DEVICES={good}.",
        )
    return _no_kernels(lacking[0], facts) if lacking else _failing(bad[0])


def _no_code(device, facts):
    if "no kernel image" in device.error:
        return True
    known = device.capability and facts.architectures and not facts.rocm_build
    return bool(known) and not has_kernels(device.capability, facts.architectures)


def _no_kernels(device, facts):
    major, minor = device.capability or (0, 0)
    cause = (
        f"{device.name} has compute capability {major}.{minor}; this build holds code for "
        f"{' '.join(facts.architectures)}. See https://docs.nvidia.com/cuda/blackwell-compatibility-guide"
    )
    if facts.host == "kaggle":
        fix = "In the notebook's menu: Settings → Accelerator → GPU T4 x2."
    elif (major, minor) < (5, 0):
        fix = f"This GPU is too old for PyTorch. Work on the CPU, or open the lesson in Colab: {_COLAB}."
    else:
        fix = f"Install a build for it: {_install(facts, (major, minor))}"
    return Verdict("architecture", "This build of PyTorch has no code for this GPU.", cause, fix)


def _failing(device):
    words = first_line(device.error)
    if "out of memory" in device.error or "busy or unavailable" in device.error:
        return Verdict(
            "gpu_busy",
            f"{device.name} is there, but other programs occupy it.",
            words,
            "Shut down other notebooks (Kernel → Shut Down Kernel) and programs that use the GPU; "
            "nvidia-smi lists them.",
        )
    update = {"cuda": "the GPU's driver", "mps": "macOS", "xpu": "Intel's GPU driver"}[
        device.device.split(":")[0]
    ]
    return Verdict(
        "gpu_fails",
        f"{device.name} is there, but a test computation fails.",
        words,
        f"Restart the computer; if it fails again, update {update}.",
    )


def _hosted(facts):
    if facts.gpus or facts.host not in ("colab", "kaggle", "binder"):
        return None
    cause = "PyTorch finds no NVIDIA driver, because this runtime has no GPU."
    if facts.host == "colab":
        return Verdict(
            "colab_without_gpu",
            "This Colab runtime has no GPU.",
            cause,
            f"In Colab's menu: {_COLAB}; then run the notebook from its first cell.",
        )
    if facts.host == "kaggle":
        return Verdict(
            "kaggle_without_gpu",
            "This Kaggle session has no GPU.",
            cause,
            "In the notebook's menu: Settings → Accelerator → GPU T4 x2; then run it from its first cell.",
        )
    return Verdict(
        "binder_without_gpu",
        "Binder has no GPUs.",
        "mybinder.org offers processors only.",
        _ON_CPU + f"For a GPU, open the lesson in Colab: {_COLAB}.",
    )


def _build(facts):
    if facts.cuda_build or facts.rocm_build:
        return None
    if facts.system == "Darwin":
        cause = (
            "PyTorch was built with MPS, but this Mac has no GPU for it, which takes an Apple chip and macOS 14: "
            "https://developer.apple.com/metal/pytorch/"
            if facts.mps_built
            else "This build of PyTorch has no MPS; CUDA does not exist on a Mac."
        )
        return Verdict(
            "no_gpu",
            "This Mac has no GPU that PyTorch can use.",
            cause,
            _ON_CPU + f"For a GPU, open a lesson in Colab: {_COLAB}.",
        )
    build = f"for Intel GPUs (XPU {facts.xpu_build})" if facts.xpu_build else "for the CPU only"
    if facts.gpus or ((facts.driver or facts.cards) and not facts.container):
        seen = ", ".join(facts.gpus) or "an NVIDIA GPU"
        return Verdict(
            "cpu_build",
            f"PyTorch {facts.torch} was built {build}.",
            f"The machine has {seen}, but this build cannot use it. On Windows, plain `pip install torch` "
            "installs the build for the CPU.",
            f"In a terminal, run: {_install(facts)}",
        )
    return Verdict(
        "cpu_build_no_gpu",
        f"PyTorch {facts.torch} was built {build}, and no NVIDIA GPU was found.",
        "torch.version.cuda is None, and there is no NVIDIA driver either.",
        _ON_CPU + f"For a GPU, open a lesson in Colab: {_COLAB}.",
    )


def _hidden(facts):
    if facts.visible is None or not (facts.gpus or facts.driver):
        return None
    if visible_entries(facts.visible, len(facts.gpus)):
        return None
    last = len(facts.gpus) - 1
    there = f" (GPU 0 to {last})" if last > 0 else " (GPU 0)" if last == 0 else ""
    return Verdict(
        "hidden",
        "A setting hides the GPUs from PyTorch.",
        f"CUDA_VISIBLE_DEVICES is {facts.visible!r}, which names none of the GPUs here{there}. See "
        "https://docs.nvidia.com/deploy/topics/topic_5_2_1.html",
        "Unset CUDA_VISIBLE_DEVICES (or set it to 0) before Python starts, then restart the kernel.",
    )


def _start_of_cuda(facts):
    told = f"{facts.cuda_error} {facts.smi_error}"
    if "library version mismatch" in told or "Error 803" in told:
        return Verdict(
            "driver_mismatch",
            "The NVIDIA driver is half updated.",
            first_line(facts.smi_error or told),
            "Restart the computer: the running driver and its files have different versions.",
        )
    found = re.search(r"too old \(found version (\d+)\)", told)
    needs = driver_needed(facts.cuda_build)
    major = int(facts.driver.split(".")[0]) if (facts.driver or "")[:3].isdigit() else None
    if (
        found
        or "Error 804" in told
        or re.search(r"Error 35\b", told)
        or (major and needs and major < needs)
    ):
        speaks = (
            f", which knows CUDA up to {int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
            if found
            else ""
        )
        return Verdict(
            "driver_too_old",
            "The NVIDIA driver is too old for this build of PyTorch.",
            f"PyTorch was built for CUDA {facts.cuda_build}; the driver is {facts.driver or 'older'}{speaks}"
            ". See https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
            f"Update the NVIDIA driver to {needs or 'a newer version'} or later: "
            f"https://www.nvidia.com/drivers{' (in Windows, not inside WSL)' if facts.wsl else ''}",
        )
    if facts.gpus and facts.cuda_build:
        return Verdict(
            "initialization_failed",
            "The GPU is there, but CUDA does not start.",
            first_line(facts.cuda_error)
            or "PyTorch counts no device, though nvidia-smi lists " + ", ".join(facts.gpus) + ".",
            "Restart the computer (in the cloud: the runtime or container).",
        )
    return None


def _nothing_there(facts):
    if facts.rocm_build:
        return Verdict(
            "no_gpu",
            "PyTorch was built for AMD GPUs (ROCm) but finds none.",
            first_line(facts.cuda_error) or "The ROCm build counts no device.",
            "Check that your GPU is listed at https://rocm.docs.amd.com/projects/install-on-linux/",
        )
    idle = (
        facts.driver and not facts.smi_error and not facts.container
    )  # a container shows the host's kernel module
    if idle or "No devices were found" in facts.smi_error:
        return Verdict(
            "no_gpu",
            "An NVIDIA driver runs, but it finds no GPU.",
            first_line(facts.smi_error) or "The driver lists no device.",
            "Check that the GPU is plugged in, powered and assigned to you.",
        )
    if facts.wsl:
        return Verdict(
            "no_driver",
            "WSL sees no NVIDIA driver.",
            "WSL uses the driver of Windows.",
            "Install the NVIDIA driver in Windows (not inside WSL), then run in PowerShell: wsl --shutdown. "
            "See https://docs.nvidia.com/cuda/wsl-user-guide/",
        )
    if facts.container and (facts.cards != 0 or facts.driver):
        return Verdict(
            "container_without_gpu",
            "This container was started without the GPU.",
            "No NVIDIA driver is visible inside the container"
            + (f", though the machine holds {facts.cards} NVIDIA GPU(s)." if facts.cards else "."),
            "Start it with: docker run --gpus all … (the host needs the driver and the NVIDIA Container "
            "Toolkit: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/)",
        )
    if facts.cards == 0:
        return Verdict(
            "no_gpu",
            "This machine has no NVIDIA GPU.",
            "PyTorch was built for CUDA, but there is neither a driver nor an NVIDIA GPU on the PCI bus.",
            _ON_CPU + f"For a GPU, open a lesson in Colab: {_COLAB}.",
        )
    return Verdict(
        "no_driver",
        "There is no working NVIDIA driver.",
        first_line(facts.smi_error or facts.cuda_error)
        or "Neither a driver nor nvidia-smi was found.",
        "If this machine has an NVIDIA GPU, install its driver: https://www.nvidia.com/drivers"
        if not facts.cards
        else "Install the NVIDIA driver: https://www.nvidia.com/drivers",
    )


def _install(facts, capability=None):
    return install_command(facts.system, facts.driver, capability)


def _mask(facts):
    cuda = [each for each in facts.devices if each.device.startswith("cuda")]
    if facts.visible is None or len(cuda) >= len(facts.gpus):
        return ""
    return f" {len(cuda)} of {len(facts.gpus)} GPUs are visible, because CUDA_VISIBLE_DEVICES is {facts.visible!r}."


def first_line(text):
    """The first line that says something, without PyTorch's prefix."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("CUDA initialization: ")[:300] if lines else ""
