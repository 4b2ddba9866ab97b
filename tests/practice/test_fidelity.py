"""Compare what the practice GPUs print with what CUDA devices are expected to print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from situations import SITUATIONS, mismatch  # noqa: E402

# Name of the situation: the result that the practice GPUs give instead, and why it is left at that.
# A difference that heals must leave this list, or the test fails.
KNOWN_DIFFERENCES: dict[str, tuple[str, str]] = {}
if not torch.version.cuda:
    KNOWN_DIFFERENCES["device from an integer"] = (
        "RuntimeError: Cannot access accelerator device when none is available.",
        "torch.device is a type written in C, which a CPU build asks before anything in Python could answer for it",
    )


def expected() -> list[str]:
    """Return the lines of `fidelity_expected.txt` without its comments."""
    text = (HERE / "fidelity_expected.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def compare(wanted: list[str], got: list[str]) -> dict[str, tuple[str, str]]:
    """Return what differs: the number and name of each line, with the result wanted and the result got."""
    assert len(wanted) == len(got)
    pairs = [(w.partition(": "), g.partition(": ")) for w, g in zip(wanted, got, strict=True)]
    assert [w[0] for w, _ in pairs] == [g[0] for _, g in pairs], (
        "the same situations in the same order"
    )
    return {
        w[0][4:]: (w[2], g[2]) for w, g in pairs if w != g and not g[2].startswith("needs 2 GPUs")
    }


@pytest.fixture(scope="module")
def run():
    """Run the script once, as a learner or a machine with GPUs would, and return its lines."""
    done = subprocess.run(
        [sys.executable, str(HERE / "fidelity.py")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_practice_gpus_print_what_cuda_devices_print(run):
    differences = compare(expected(), run)
    known = (
        {}
        if torch.cuda.is_available()
        else {name: result for name, (result, _) in KNOWN_DIFFERENCES.items()}
    )
    new = {name: pair for name, pair in differences.items() if known.get(name) != pair[1]}
    healed = set(known) - set(differences)
    assert not new, "\n".join(
        f"{name}\n  wanted {wanted}\n  got    {got}" for name, (wanted, got) in new.items()
    )
    assert not healed, f"take these out of KNOWN_DIFFERENCES: {healed}"


def test_at_least_98_percent_are_equal():
    assert len(KNOWN_DIFFERENCES) <= 0.02 * len(expected())
    assert all(len(reason) > 20 for _, reason in KNOWN_DIFFERENCES.values())


def test_situations_are_many_named_once_and_have_sources():
    names = [one.name for one in SITUATIONS]
    assert len(names) >= 170 and len(set(names)) == len(names)
    assert [line.partition(": ")[0] for line in expected()] == [
        f"{n:03} {name}" for n, name in enumerate(names, 1)
    ]
    assert all(one.source.startswith("https://") for one in SITUATIONS)


def test_expectations_say_where_they_come_from():
    head = (HERE / "fidelity_expected.txt").read_text(encoding="utf-8").splitlines()[:8]
    assert any("Provenance" in line for line in head) and any(
        "Not yet seen on a GPU" in line for line in head
    )


def test_a_changed_line_is_noticed():
    wanted = expected()
    got = wanted[:-1] + [wanted[-1] + "!"]
    assert list(compare(wanted, got)) == [SITUATIONS[-1].name]


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
    real = {"square": mismatch.square, "picks": mismatch.picks, "images": mismatch.images}
    shapes = {
        "square": ((2, 2), torch.float32),
        "picks": ((2,), torch.int64),
        "images": ((4, 1, 5, 5), torch.float32),
    }

    def maker(name):
        return lambda device="cpu": (
            real[name]() if device == "cpu" else hollow(*shapes[name], device)
        )

    for name in real:
        monkeypatch.setattr(mismatch, name, maker(name))
    wanted = {line[4:].partition(": ")[0]: line.partition(": ")[2] for line in expected()}
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
