"""Compare what the practice GPUs print with what CUDA devices are expected to print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from practice_gpus import verify

SOURCE = Path(verify.__file__).resolve().parents[1]
SITUATIONS = verify.situations().SITUATIONS
mismatch = verify.situations().mismatch
# Name of the situation: the result that the practice GPUs give instead, and why it is left at that.
# A difference that heals must leave this list, or the test fails.
KNOWN_DIFFERENCES: dict[str, tuple[str, str]] = {}
if not torch.version.cuda:
    KNOWN_DIFFERENCES["device from an integer"] = (
        "RuntimeError: Cannot access accelerator device when none is available.",
        "torch.device is a type written in C, which a CPU build asks before anything in Python could answer for it",
    )


@pytest.fixture(scope="module")
def lines():
    """Run the situations once in a process of their own, and return its lines."""
    code = (
        "from practice_gpus import verify; [print(line, flush=True) for line in verify.printed()]"
    )
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120}
    done = subprocess.run([sys.executable, "-c", code], cwd=SOURCE, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_practice_gpus_print_what_cuda_devices_print(lines):
    known = {} if torch.cuda.is_available() else KNOWN_DIFFERENCES
    differences = verify.compare(verify.expected(), lines)
    healed = set(known) - set(differences)
    assert not healed, f"take these out of KNOWN_DIFFERENCES: {healed}"
    new = []
    for name, (wanted, got) in differences.items():
        if name not in known or known[name][0] != got:
            new.append(f"{name}\n  wanted {wanted}\n  got    {got}")
    assert not new, "\n".join(new)


def test_at_least_98_percent_are_equal():
    assert len(KNOWN_DIFFERENCES) <= 0.02 * len(verify.expected())
    assert all(len(reason) > 20 for _, reason in KNOWN_DIFFERENCES.values())


class Hollow(torch.Tensor):
    """A tensor that says it is on a CUDA device and holds nothing."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Refuse to run."""
        raise NotImplementedError(func)


def hollow(shape: tuple, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a hollow tensor; "cuda" means cuda:0."""
    place = "cuda:0" if device == "cuda" else device
    return torch.Tensor._make_wrapper_subclass(Hollow, shape, dtype=dtype, device=place)


@pytest.mark.skipif(
    not torch.version.cuda or torch.cuda.is_available(),
    reason="needs PyTorch's CUDA build without a GPU, which would compute with what is hollow",
)
def test_words_of_errors_are_those_of_this_build(monkeypatch):
    """CUDA operators check devices before they need a driver, so their words can be read without one."""
    shapes = {
        "square": ((2, 2), torch.float32),
        "picks": ((2,), torch.int64),
        "images": ((4, 1, 5, 5), torch.float32),
    }

    def maker(name):
        real = getattr(mismatch, name)
        return lambda device="cpu": real() if device == "cpu" else hollow(*shapes[name], device)

    for name in shapes:
        monkeypatch.setattr(mismatch, name, maker(name))
    wanted = dict(line[4:].split(": ", 1) for line in verify.expected())
    same = []
    for one in SITUATIONS:
        if one.action.__module__ != mismatch.__name__ or "Error: " not in wanted[one.name]:
            continue
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
            try:
                one.action()
                words = "no error"
            except Exception as error:  # compared below
                words = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if not re.search("driver|CUDA error", words):
            assert words == wanted[one.name], one.name
            same.append(one.name)
    assert len(same) >= 30


def test_verify_shows_each_difference_and_fails(monkeypatch, capsys):
    """Whoever has a GPU would be told that all is as expected."""
    wanted = verify.expected()
    monkeypatch.setattr(
        verify, "printed", lambda: [*wanted[:-2], wanted[-2] + "!", "999 x: needs 2 GPUs"]
    )
    monkeypatch.setattr(verify, "expected", lambda: [*wanted[:-1], "999 x: 1"])
    assert verify.main() == 1
    out = capsys.readouterr().out
    assert (
        f"{len(wanted) - 2} lines of {len(wanted)} as expected, 1 differ, 1 need a second GPU"
        in out
    )
    assert SITUATIONS[-2].name in out and "practice GPUs, for want of a real one" in out
