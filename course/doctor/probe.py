"""Ask PyTorch what it sees and let each device compute; prints the answer as one line of JSON.

The doctor runs this file in a child process, so a PyTorch that hangs, crashes or does not import does no harm, nothing
starts CUDA in the notebook's own process, and practice GPUs, which live in that process, play no part.
"""

import json
import sys
import warnings
from typing import Any

MARK = "doctor-probe:"


def probe() -> dict[str, Any]:
    """A dict of the facts of `course.doctor.facts.Facts` that need torch; values are plain (text, numbers, lists, None)."""
    try:
        import torch

        version = str(torch.__version__)  # fails when another file of the name torch came first
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        place = getattr(sys.modules.get("torch"), "__file__", None)
        hint = f" (torch is {place})" if place else ""
        return {"torch_error": f"{type(error).__name__}: {error}{hint}"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        facts: dict[str, Any] = {
            "torch": version,
            "cuda_build": torch.version.cuda,
            "rocm_build": torch.version.hip,
            "xpu_build": getattr(torch.version, "xpu", None),
            "mps_built": torch.backends.mps.is_built(),
            "architectures": torch.cuda.get_arch_list(),
        }
        facts["cuda_available"] = torch.cuda.is_available()
        facts["cuda_error"] = cuda_error(torch, caught)
        facts["devices"] = [look(torch, name) for name in names(torch)]
    facts["threads"] = threads()
    return facts


def threads() -> str:
    """What is wrong with this machine's threads, a sentence or ""; helpers is on the path, or nothing is said."""
    try:
        from course.threads import complaint
    except ImportError:
        return ""
    return complaint()


def cuda_error(torch: Any, caught: list[warnings.WarningMessage]) -> str:
    """Why CUDA did not start, in PyTorch's words: the warning of its first call, else the error of its start."""
    if torch.cuda.is_available() or not (torch.version.cuda or torch.version.hip):
        return ""
    messages = [str(warning.message) for warning in caught]
    messages = [message for message in messages if "initialization" in message]
    if messages:
        return messages[0]
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - its text is the finding
        return str(error)
    return ""


def names(torch: Any) -> list[str]:
    """The devices that PyTorch says it can use, besides the CPU."""
    result: list[str] = []
    for kind in ("cuda", "mps", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            result += [f"{kind}:{index}" for index in range(module.device_count())]
    return result


def look(torch: Any, name: str) -> dict[str, Any]:
    """Name, capability, memory and the result of a real operation of one device."""
    facts: dict[str, Any] = {"device": name, "name": None, "capability": None, "memory_bytes": None}
    try:
        if name.startswith("mps"):
            facts.update(name="Apple GPU", memory_bytes=torch.mps.recommended_max_memory())
        else:
            properties = getattr(torch, name.split(":")[0]).get_device_properties(name)
            facts.update(name=properties.name, memory_bytes=properties.total_memory)
            if name.startswith("cuda") and not torch.version.hip:
                facts["capability"] = [properties.major, properties.minor]
        facts["error"] = compute(torch, name)
    except Exception as error:  # noqa: BLE001 - its text is the finding
        facts["error"] = f"{type(error).__name__}: {error}"
    return facts


def compute(torch: Any, name: str) -> str:
    """Multiply small matrices of whole numbers on the device and compare with exact arithmetic; "" when they agree.

    The matrix product comes from a library (cuBLAS), the addition from PyTorch's own kernels: each can lack code for
    a GPU. Every number is exact in every format that a device may use inside.
    """
    numbers = torch.arange(64 * 64).reshape(64, 64) % 7
    exact = numbers @ numbers + 1
    matrix = numbers.to(torch.float32).to(name)
    result = (matrix @ matrix + 1).cpu()
    wrong = int((result != exact).sum())
    return f"wrong result: {wrong} of {exact.numel()} numbers differ" if wrong else ""


if __name__ == "__main__":
    sys.stdout.write(f"\n{MARK}{json.dumps(probe())}\n")
