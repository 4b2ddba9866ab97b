"""Exercises and quiz of lesson 01, Check for CUDA."""

from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

import torch

from course.checks import expect
from course.checks.core import NotYet, call
from course.checks.words import exercise, quiz


# --- choose the best device ------------------------------------------------------------------------------------------
def pick_device():
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def _pick_on(answer, gpu):
    """What `answer` returns on a machine whose GPU is of the kind `gpu`, or which has none and a build for CUDA."""
    built = torch.device(gpu or "cuda")
    stand_ins = {
        f"{module}.is_available": lambda module=module: gpu in (module.rpartition(".")[2], "any")
        for module in ("cuda", "xpu", "backends.mps")
    } | {
        "cuda.device_count": lambda: int(gpu == "cuda"),
        "backends.mps.is_built": lambda: gpu == "mps",
        "accelerator.is_available": lambda: gpu is not None,
        "accelerator.device_count": lambda: int(gpu is not None),
        "accelerator.current_accelerator":  # without check_available it names what was compiled in
        lambda check_available=False: built if gpu or not check_available else None,
    }
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(mock.patch(f"torch.{name}", stand_in))
        return call(answer)


def _check_pick(answer):
    makers = {"cuda": "NVIDIA", "mps": "Apple", "xpu": "Intel", None: None}
    for gpu, maker in makers.items():
        device, expected = _pick_on(answer, gpu), gpu or "cpu"
        machine = f"With a GPU by {maker}" if gpu else "Without a GPU, in a build for CUDA"
        if isinstance(device, str):
            raise NotYet(
                f"pick_device() returned the string {device!r}. Wrap it: torch.device({device!r})."
            )
        if not isinstance(device, torch.device):
            raise NotYet(
                f"{machine}, it returned {device!r}; expected a torch.device. Does every path return?"
            )
        if str(device) not in (expected, f"{expected}:0"):
            raise NotYet(
                f"{machine}, it returned {device}; expected {expected}. {pick.word(device, expected=expected)}"
            )
    return (
        "Your function chose the right device on four machines: NVIDIA, Apple, Intel, and CPU only."
    )


pick = exercise("01.pick", _check_pick, pick_device, tool="pick_device")


# --- ten machines -----------------------------------------------------------------------------------------------------
class Machine(NamedTuple):
    """A machine with an NVIDIA card: what PyTorch, `nvidia-smi` and the environment say there (None: nothing)."""

    story: str
    built_for: str | None  # torch.version.cuda
    driver_cuda: str | None  # the newest CUDA that the driver supports in full
    gpus: int  # how many nvidia-smi lists
    visible: str | None  # CUDA_VISIBLE_DEVICES


SEEN = {  # the page names the reports, and says what is filled in
    "A": Machine("a laptop", None, "12.4", 1, None),
    "B": Machine("a container", "12.1", None, 0, None),
    "C": Machine("a test server", "13.0", "12.8", 1, None),
    "D": Machine("a PC", "11.3", "12.0", 1, "2"),
}
UNSEEN = {
    "F": Machine("a desktop with an RTX 3090", "12.8", "12.2", 1, ""),
    "G": Machine("a PC from 2017", "12.6", "9.1", 1, None),
    "H": Machine("a new PC with an RTX A2000", None, None, 0, None),
    "I": Machine("a rented server with an A10", "13.0", None, 0, "-1"),
    "J": Machine("a workstation with two L4", "13.2", "13.0", 2, "1,0"),
    "K": Machine("a shared server with an L4", "13.0", "13.0", 1, "-1"),
}
ANSWERS = ("CPU-only build", "no driver", "driver too old", "hidden", "CUDA available")


def diagnose(machine):
    if machine.built_for is None:
        return "CPU-only build"
    if machine.driver_cuda is None:
        return "no driver"
    if float(machine.driver_cuda) // 1 < float(machine.built_for) // 1:
        return "driver too old"
    if machine.visible is not None:
        first = machine.visible.split(",")[0]
        if first not in map(str, range(machine.gpus)):
            return "hidden"
    return "CUDA available"


# what is cured before one sees the later faults of a machine
_CURED = {"built_for": "11.0"}, {"built_for": "11.0", "driver_cuda": "11.0"}


def _check_machines(answer):
    for name, machine in (SEEN | UNSEEN).items():
        said, right = call(answer, machine), diagnose(machine)
        if said is None:
            raise NotYet(f"you return None for {name}, expected a text: is there a `return`?")
        if not isinstance(said, str):
            raise NotYet(f"you say {said!r} of {name}, and a text was expected.")
        if said != right:
            answers = ", ".join(map(repr, ANSWERS))
            later = {diagnose(machine._replace(**cured)) for cured in _CURED} - {"CUDA available"}
            why = machines.word(said, right=right, later=later, answers=answers)
            raise NotYet(f"you say {said!r} of {name}, {_told(machine)}.\n{why}")
    return "ten machines, and six of them you had never seen. Your function is a doctor."


def _told(machine):
    facts = machine._asdict()
    story = facts.pop("story")
    return f"{story}: " + ", ".join(f"{name}={fact!r}" for name, fact in facts.items())


machines = exercise("01.machines", _check_machines, diagnose)


# --- how long, and why? ---------------------------------------------------------------------------
RTX_4090 = {"tflop_per_s": 58.0, "gb_per_s": 912.0, "launch_ms": 0.017}


def how_long(flops, moved, card):
    arithmetic = flops / (card["tflop_per_s"] * 1e12) * 1e3
    memory = moved / (card["gb_per_s"] * 1e9) * 1e3
    launch = card["launch_ms"]
    parts = {"launches": launch, "memory": memory, "arithmetic": arithmetic}
    return launch + max(arithmetic, memory), max(parts, key=parts.get)


def layer(rows):
    """Floating-point operations and bytes moved of one of the 128 layers, in float32."""
    return 2 * rows * 128**2, 4 * (2 * rows * 128 + 128**2)


JOBS = {  # floating-point operations and bytes moved, in float32
    "matmul of 8,192 × 8,192": (2 * 8192**3, 3 * 4 * 8192**2),
    "sum of two vectors of 100 million": (10**8, 12 * 10**8),
    "one of the 128 layers, 2,048 rows": layer(2048),
}
_SLOW = {"tflop_per_s": 0.5, "gb_per_s": 15.0, "launch_ms": 0.002}


def _check_how_long(answer):
    lines = []
    for card in (RTX_4090, _SLOW):
        for name, (flops, moved) in JOBS.items():
            result = call(answer, flops, moved, dict(card))
            if not isinstance(result, tuple) or len(result) != 2:
                kind = "None: is there a `return`?" if result is None else f"{result!r}."
                raise NotYet(f"expected two values, the milliseconds and the limit; got {kind}")
            _same_time(result, how_long(flops, moved, card), name, card)
            lines.append(f"{name}: {result[0]:,.3g} ms, and the limit is {result[1]}")
    return "\n".join(
        [
            "Your formula names time and limit. According to it, an RTX 4090 takes:",
            *lines[: len(JOBS)],
        ]
    )


def _same_time(result, expected, name, card):
    ms, named = expect.number(result[0], f"{name}: the time"), result[1]
    if abs(ms - expected[0]) > 1e-6 * expected[0]:
        where = f"{name}, on {card}: you return {ms:g} ms, expected {expected[0]:g} ms."
        right, launch = expected[0], card["launch_ms"]
        ratio = (ms - launch) / (right - launch)
        why = limit.word(ms, ms=ms, right=right, launch=launch, ratio=ratio)
        raise NotYet(f"{where} {why}")
    if named != expected[1]:
        raise NotYet(
            f"{name}, on {card}: the time is right, and the limit isn't {named!r}. Which part is longest?"
        )


limit = exercise("01.limit", _check_how_long, how_long, letter="b")


QUIZ = quiz("01")
