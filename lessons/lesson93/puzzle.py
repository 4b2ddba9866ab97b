"""Kernel puzzles with par: a kernel is compiled for an A100, its code is run here, and what it did is its score.

Par is the model answer's score, computed then and there by the same compiler: a lower score is better, under par is fine.
"""

import inspect
import re
from dataclasses import dataclass, field

import torch

from helpers.checks.core import Exercise, LearnerError, NotAttempted, NotYet, is_untouched

CARD = "A100"  # the newest card whose tensor cores are executed here
UNTOUCHED = -77.0  # what results hold before a kernel runs


class triton:
    """Stands in for Triton in model answers; the compiling process has the real one."""

    @staticmethod
    def jit(function):
        """Return the function as it is."""
        return function


class tl:
    """Stands in for triton.language in model answers."""

    constexpr = "constexpr"


@dataclass
class Problem:
    """Inputs of a kernel in the order of its parameters, and what belongs into `out`, one of them."""

    values: list
    out: torch.Tensor
    expected: torch.Tensor
    grid: object
    words: str  # such as "n = 33"
    block: object = None  # threads of CUDA C; Triton's follow from its warps
    options: dict = field(default_factory=dict)
    tolerance: float = 1e-4


def blank(*shape, dtype=torch.float32):
    """Return a tensor for results, full of a value that no answer has."""
    return torch.full(shape, UNTOUCHED, dtype=torch.float32).to(dtype)


def run(answer, problem, card=CARD):
    """Compile `answer` for `problem` and run it; returns (Compiled, Result). Raises what the kernel does wrong."""
    from practice_gpus import kernels

    if isinstance(answer, str):
        threads = int(torch.tensor(problem.block).prod())
        name = re.search(r"__global__\s+void\s+(\w+)", answer)
        if not name:
            raise NotYet(
                "there is no kernel in this text: it begins with __global__ void and a name."
            )
        compiled = kernels.compile(answer, name[1], card, threads=threads, **problem.options)
        return compiled, kernels.run(compiled, problem.grid, problem.block, *problem.values)
    names = list(inspect.signature(getattr(answer, "fn", answer)).parameters)
    signature = dict(zip(names, problem.values, strict=True))
    compiled = kernels.compile(answer, signature, card, **problem.options)
    arguments = [signature[name] for name in compiled.parameters]
    return compiled, kernels.run(compiled, problem.grid, None, *arguments)


def judged(answer, problem, reference):
    """Run an answer, and raise `NotYet` where it is wrong: not a kernel, not allowed on a GPU, or another value."""
    from practice_gpus import kernels

    _look_at(answer, reference)
    try:
        compiled, result = run(answer, problem)
    except (kernels.CompileError, kernels.CompileTimeout) as error:
        raise LearnerError(error) from error
    except kernels.KernelError as error:
        raise NotYet(f"with {problem.words}: {error}") from error
    compare(problem)
    return compiled, result


def _look_at(answer, reference):
    """Raise where an answer isn't a kernel of the kind that is wanted, or is the starter."""
    if isinstance(reference, str):
        if not isinstance(answer, str):
            raise NotYet(f"expected CUDA C as text, got {type(answer).__name__}.")
        if re.search(r"\)\s*\{\s*\}\s*$", re.sub(r"//[^\n]*", "", answer)):
            raise NotAttempted
        return
    function = getattr(answer, "fn", answer)
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise NotYet(
            "expected a kernel: the name of a function under @triton.jit, without parentheses."
        )
    if is_untouched(function):
        raise NotAttempted
    wanted = inspect.signature(reference).parameters
    if len(inspect.signature(function).parameters) != len(wanted):
        raise NotYet(f"the kernel is called with {', '.join(wanted)}: keep these parameters.")


def compare(problem):
    """Raise `NotYet` where the result differs from what is expected, naming the first element that does."""
    near = {"rtol": problem.tolerance, "atol": problem.tolerance}
    wrong = (~torch.isclose(problem.out.float(), problem.expected.float(), **near)).nonzero()
    if len(wrong) == 0:
        return
    place = tuple(wrong[0].tolist())
    value = problem.out[place].item()
    finding = "was never written" if value == UNTOUCHED else f"is {value:.4g}"
    name = f"out[{', '.join(map(str, place))}]"
    raise NotYet(
        f"with {problem.words}, {name} {finding}, expected {problem.expected[place].item():.4g}."
    )


@dataclass(frozen=True)
class Puzzle(Exercise):
    """An exercise with a score: `problems()` gives the cases, `score(compiled, result, problem)` counts the last one."""

    problems: object = None
    score: object = None
    unit: str = ""
    mistakes: object = None  # mistakes(problem) → [(wrong result, its cause)]

    def par(self):
        """Return the model answer's score, counted now."""
        problem = self.problems()[-1]
        return self.score(*run(self.reference, problem), problem)

    def scored(self, answer):
        """Return an answer's score after its check; raises `NotYet` where it is wrong."""
        for problem in self.problems():
            try:
                compiled, result = judged(answer, problem, self.reference)
            except NotYet:
                self._explain(problem)
                raise
        return self.score(compiled, result, problem)

    def _explain(self, problem):
        for wrong, cause in self.mistakes(problem) if self.mistakes else ():
            if wrong.shape == problem.out.shape and torch.allclose(
                wrong, problem.out, rtol=1e-3, atol=1e-4
            ):
                raise NotYet(cause)


def puzzle(key, title, problems, score, unit, **rest):
    """Return a `Puzzle` whose check says score and par, and gives a line to share."""

    def check(answer):
        mine = made.scored(answer)
        par = made.par()
        return verdict(title, mine, par, unit)

    made = Puzzle(key, title, check, problems=problems, score=score, unit=unit, **rest)
    return made


def verdict(title, mine, par, unit):
    """Say in words how a score compares with par, and give the line to share."""
    where = "at par" if abs(mine - par) < 0.005 * par else "UNDER PAR" if mine < par else "over par"
    words = {
        "at par": "at par with the model answer.",
        "UNDER PAR": "UNDER PAR: your kernel does better than the model answer!",
        "over par": "it works, and the score can still come down.",
    }[where]
    share = f"{title}: {mine:.3g} {unit} (par {par:.3g})"
    return f"{words}\nScore {mine:.3g}, par {par:.3g}: {unit} on an {CARD}.\nTo share: {share}"


def requested(result, problem):
    """Return the bytes of all sectors that requests touch, for each element of the result."""
    return result.moved() / problem.out.numel()
