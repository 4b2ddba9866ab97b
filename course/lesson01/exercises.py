"""Exercises and quiz of lesson 01, Check for CUDA."""

import html
from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

import torch

from course import show
from course.checks import expect
from course.checks.core import Exercise, NotYet, Question, call


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
                f"{machine}, it returned {device}; expected {expected}.{_why_pick(device, expected)}"
            )
    return (
        "Your function chose the right device on four machines: NVIDIA, Apple, Intel, and CPU only."
    )


def _why_pick(device, expected):
    if device.type == expected:
        return " Which index exists on a machine with one GPU?"
    if expected == "cpu":
        return " What a build was made for isn't always there: which argument asks for that?"
    return f" {expected!r} is usable on this machine; which of your questions notices it?"


pick = Exercise(
    key="01.pick",
    title="choose the best device",
    check_answer=_check_pick,
    hints=(
        "The cell above prints both answers: what this build was made for, and what is usable here.",
        "`torch.accelerator.current_accelerator(check_available=True)` is a torch.device or None. What do you return for None?",
        'Keep its answer in `found`. `if found is None`, return `torch.device("cpu")`, otherwise `found`.',
    ),
    reference=pick_device,
    explanation="One question covers every maker's GPUs, and every path returns a torch.device, so the callers never need "
    "to ask again.",
    unlocked="You can now start the same script on any machine.",
    tool="pick_device",
)


# --- eight machines --------------------------------------------------------------------------------------------------
class Machine(NamedTuple):
    """A machine with an NVIDIA card: what `nvidia-smi` and PyTorch say there (None: nothing)."""

    story: str
    built_for: str | None  # torch.version.cuda
    driver_cuda: str | None  # the newest CUDA that the driver supports in full
    visible: str | None  # CUDA_VISIBLE_DEVICES


SEEN = {
    "A": Machine("a gaming laptop with an RTX 4060", None, "13.0", None),
    "B": Machine("a freshly installed server with an A10", "13.0", None, None),
    "C": Machine("the lab's workstation with a T4", "13.0", "11.4", None),
    "D": Machine("a shared server with an L4", "13.0", "13.0", "-1"),
}
UNSEEN = {
    "E": Machine("a desktop with an RTX 3090", "12.8", "12.2", ""),
    "F": Machine("a PC from 2017", "12.6", "9.1", None),
    "G": Machine("a PC with an RTX 5090", "12.8", "13.0", "0"),
    "H": Machine("a desk with a GB10", "13.2", "13.0", "0"),
}
_FROM = {
    "built_for": "torch.version.cuda",
    "driver_cuda": "nvidia-smi: CUDA Version",
    "visible": "CUDA_VISIBLE_DEVICES",
}
_LOOK = {
    "CPU-only build": "Does this build of PyTorch include CUDA?",
    "no driver": "Does anything on this machine talk to the card?",
    "driver too old": "Compare the driver's CUDA with the one PyTorch was built for. As numbers: '9' > '12'.",
    "hidden": "Which GPUs does CUDA_VISIBLE_DEVICES leave visible?",
    "works": "Nothing is missing on this one.",
}


def diagnose(machine):
    if machine.built_for is None:
        return "CPU-only build"
    if machine.driver_cuda is None:
        return "no driver"
    if float(machine.driver_cuda) // 1 < float(machine.built_for) // 1:
        return "driver too old"
    if machine.visible in ("", "-1"):
        return "hidden"
    return "works"


def show_machines():
    """Show the first four machines as a table whose columns are their attributes."""
    heads = ["", "", *(f"{_code(name)}<br><small>{told}</small>" for name, told in _FROM.items())]
    rows = [heads]
    for name, (story, *facts) in SEEN.items():
        rows.append([f"<b>{name}</b>", story, *(_code(repr(fact)) for fact in facts)])
    cell = '<td style="text-align:left">'
    table = "".join(f"<tr>{cell}{f'</td>{cell}'.join(row)}</td></tr>" for row in rows)
    text = "\n".join(f"{name}: {_told(machine)}" for name, machine in SEEN.items())
    show.page(f"<table>{table}</table>", text)


def _code(words):
    return f"<code>{html.escape(words)}</code>"


def _told(machine):
    facts = ", ".join(f"{name}={getattr(machine, name)!r}" for name in _FROM)
    return f"{machine.story}: {facts}"


def _check_machines(answer):
    for name, machine in (SEEN | UNSEEN).items():
        said, right = call(answer, machine), diagnose(machine)
        if said is None:
            raise NotYet(f"you return None for {name}, expected a text: is there a `return`?")
        if not isinstance(said, str):
            raise NotYet(f"you say {said!r} of {name}, and a text was expected.")
        if said != right:
            raise NotYet(f"you say {said!r} of {name}, {_told(machine)}.\n{_why_not(said, right)}")
    return "eight machines, and four of them you had never seen. Your function is a doctor."


def _why_not(said, right):
    if said not in list(_LOOK):
        return f"That's none of the answers, which are {', '.join(map(repr, _LOOK))}."
    if said == "driver too old":
        return "A driver runs builds for every older CUDA, and for newer ones of its own major version."
    return _LOOK["hidden" if said == "hidden" else right]


machines = Exercise(
    key="01.machines",
    title="write a doctor",
    check_answer=_check_machines,
    hints=(
        "Go through the table of causes from top to bottom. Which attribute answers each row?",
        'One `if` and one `return` for each cause, in the table\'s order. The versions are texts: `float("12.2")` is a number, '
        "and `// 1` cuts off what follows the point.",
        '`if machine.built_for is None: return "CPU-only build"`, likewise for the driver, then `if float(machine.driver_cuda) // 1 < '
        'float(machine.built_for) // 1:`, and last `if machine.visible in ("", "-1"):`.',
    ),
    reference=diagnose,
    explanation="Each question makes sense only if those before it are answered: without CUDA in the build, no driver helps, and a "
    "driver that's too old hides even a visible GPU. That's why the doctor asks in this order, too.",
    unlocked="You can now read anyone's `nvidia-smi` and say what's missing.",
)


# --- how long, and why? ---------------------------------------------------------------------------
RTX_4090 = {"tflop_per_s": 58.0, "gb_per_s": 912.0, "overhead_ms": 0.017}


def how_long(flops, moved, card):
    compute = flops / (card["tflop_per_s"] * 1e12) * 1e3
    memory = moved / (card["gb_per_s"] * 1e9) * 1e3
    overhead = card["overhead_ms"]
    parts = {"compute": compute, "memory": memory, "overhead": overhead}
    return overhead + max(compute, memory), max(parts, key=parts.get)


def layer(rows):
    """Floating-point operations and bytes moved of one of the 128 layers, in float32."""
    return 2 * rows * 128**2, 4 * (2 * rows * 128 + 128**2)


JOBS = {  # floating-point operations and bytes moved, in float32
    "matmul of 8,192 × 8,192": (2 * 8192**3, 3 * 4 * 8192**2),
    "sum of two vectors of 100 million": (10**8, 12 * 10**8),
    "one of the 128 layers, 2,048 rows": layer(2048),
}
_SLOW = {"tflop_per_s": 0.5, "gb_per_s": 15.0, "overhead_ms": 0.002}


def _check_how_long(answer):
    lines = []
    for card in (RTX_4090, _SLOW):
        for name, (flops, moved) in JOBS.items():
            result = call(answer, flops, moved, dict(card))
            if not isinstance(result, tuple) or len(result) != 2:
                kind = "None: is there a `return`?" if result is None else f"{result!r}."
                raise NotYet(f"expected two values, the milliseconds and the limit; got {kind}")
            _same_time(result, how_long(flops, moved, card), name, card)
            lines.append(f"{name}: {result[0]:,.3g} ms, {result[1]}-bound")
    return "\n".join(
        ["Your formula names time and limit. By it, an RTX 4090 needs:", *lines[: len(JOBS)]]
    )


def _same_time(result, expected, name, card):
    ms, named = expect.number(result[0], f"{name}: the time"), result[1]
    if abs(ms - expected[0]) > 1e-6 * expected[0]:
        where = f"{name}, on {card}: you return {ms:g} ms, expected {expected[0]:g} ms."
        raise NotYet(f"{where} {_why_time(ms, expected[0], card['overhead_ms'])}")
    if named != expected[1]:
        raise NotYet(
            f"{name}, on {card}: the time is right, and the limit isn't {named!r}. Which part is longest?"
        )


def _why_time(ms, right, overhead):
    if abs(ms - (right - overhead)) < 1e-6 * right:
        return "Each call has its overhead, too."
    ratio = (ms - overhead) / (right - overhead)
    if any(abs(ratio * factor - 1) < 0.01 for factor in (1e-3, 1e3, 1e6, 1e9, 1e12)):
        return "Look at the units: tera is 10¹², giga is 10⁹, and a second has 1,000 ms."
    if ratio > 1:
        return "Computing and moving run in parallel, so only the longer of the two counts."
    return "The slower of computing and moving decides, and both belong in ms."


limit = Exercise(
    key="01.limit",
    title="how long, and why?",
    check_answer=_check_how_long,
    hints=(
        "Three times: what would computing alone take, what would moving alone take, and what does every call take?",
        "A time is an amount divided by a rate. Turn TFLOP/s and GB/s into plain units first, then seconds into ms.",
        "`compute = flops / (card['tflop_per_s'] * 1e12) * 1e3`, and `memory` likewise with 1e9. The time is the overhead "
        "plus `max(compute, memory)`; the limit is the name of the longest of the three.",
    ),
    reference=how_long,
    explanation="Arithmetic units and memory work in parallel, so the slower one sets the pace, and the overhead comes on "
    "top. Whichever part is longest is what you would have to improve.",
    unlocked="You can now say what limits a job before you run it.",
)


QUIZ = (
    Question(
        "01.false",
        "torch.cuda.is_available() is False and torch.version.cuda is '13.2'. What is certain?",
        {
            "The build lacks CUDA": "torch.version.cuda would be None then.",
            "No NVIDIA driver is installed": "It may be. But the driver may also be too old, or the GPU hidden.",
            "The build includes CUDA": "What's missing lies outside it: the driver may be absent or too old, or no GPU is visible.",
        },
        right=2,
    ),
    Question(
        "01.driver",
        "nvidia-smi shows CUDA Version 13.0, torch.version.cuda is '12.6', is_available() is False. What do you check next?",
        {
            "CUDA_VISIBLE_DEVICES": "Build and driver are fine, so the GPU may be hidden.",
            "Whether the driver is too new for the build": "Drivers run builds for every older CUDA.",
            "Whether the build includes CUDA": "It does: torch.version.cuda would be None otherwise.",
        },
        right=0,
    ),
    Question(
        "01.small",
        "Why do 128 small layers take an RTX 4090 as long with one row as with 2,048?",
        {
            "The arithmetic of one row already takes 2 ms": "By the formula, that of all 2,048 rows takes 0.15 ms.",
            "Overhead: 128 calls cost more than the work": "About 0.017 ms each, whatever the number of rows. They are overhead-bound.",
            "It has to read the weights from memory either way": "All 128 matrices are 8 MB. At 912 GB/s, reading them takes 0.01 ms.",
        },
        right=1,
    ),
)
