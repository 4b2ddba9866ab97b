"""Kernel puzzles with par: a kernel is compiled for an A100, its code is run here, and what it did is its score.

Par is the model answer's score, computed then and there by the same compiler: a lower score is better, under par is fine.
"""

import contextlib
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from course.checks import core
from course.checks.core import Exercise, LearnerError, NotAttempted, NotYet, is_untouched
from course.checks.words import exercise

CARD = "A100"  # the newest card whose tensor cores are executed here
SCORES: dict = {}  # title of a puzzle that was passed here: (best score, par)
BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
UNTOUCHED = -77.0  # what results hold before a kernel runs


class triton:
    """Stands in for Triton in model answers; the compiling process has the real one."""

    @staticmethod
    def jit(function: Callable) -> Callable:
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


def blank(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor for results, full of a value that no answer has."""
    return torch.full(shape, UNTOUCHED, dtype=torch.float32).to(dtype)


def run(answer: Any, problem: Problem, card: str = CARD, touches: bool = False) -> tuple[Any, Any]:
    """Compile `answer` for `problem` and run it; returns (Compiled, Result). Raises what the kernel does wrong.

    With `touches`, the Result says which block touched what.
    """
    from practice_gpus import kernels

    if isinstance(answer, str):
        threads = int(torch.tensor(problem.block).prod())
        name = re.search(rf"__global__\s+{BOUNDS}void\s+{BOUNDS}(\w+)", answer)
        if not name:
            raise NotYet(
                "there is no kernel in this text: it begins with __global__ void and a name."
            )
        compiled = kernels.compile(answer, name[1], card, threads=threads, **problem.options)
        return compiled, kernels.run(
            compiled, problem.grid, problem.block, *problem.values, touches=touches
        )
    signature = dict(zip(parameters(answer), problem.values, strict=True))
    compiled = kernels.compile(answer, signature, card, **problem.options)
    arguments = [signature[name] for name in compiled.parameters]
    return compiled, kernels.run(compiled, problem.grid, None, *arguments, touches=touches)


def judged(answer: Any, problem: Problem, reference: Any) -> tuple[Any, Any]:
    """Run an answer, and raise `NotYet` where it is wrong: not a kernel, not allowed on a GPU, or another value."""
    from practice_gpus import kernels

    _look_at(answer, reference)
    try:
        compiled, result = run(answer, problem)
    except (kernels.CompileError, kernels.CompileTimeout) as error:
        raise LearnerError(error) from error
    except kernels.KernelError as error:
        raise NotYet(f"with {problem.words}: {error}") from error
    except ValueError as error:  # what a card would refuse to launch
        raise LearnerError(error) from error
    compare(problem)
    return compiled, result


def _look_at(answer, reference):
    """Raise where an answer isn't a kernel of the kind that is wanted, or is the starter."""
    if isinstance(reference, str):
        if not isinstance(answer, str):
            raise NotYet(f"expected CUDA C as text, got {type(answer).__name__}.")
        if re.search(r"\)\s*\{\s*\}\s*$", re.sub(r"//[^\n]*", "", answer)):
            raise NotAttempted
        _look_for_dots(answer)
        return
    function = getattr(answer, "fn", answer)
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise NotYet(
            "expected a kernel: the name of a function under @triton.jit, without parentheses."
        )
    if is_untouched(function):
        raise NotAttempted
    _look_for_dots(inspect.getsource(function))
    wanted = inspect.signature(reference).parameters
    if len(inspect.signature(function).parameters) != len(wanted):
        raise NotYet(f"the kernel is called with {', '.join(wanted)}: keep these parameters.")


def _look_for_dots(text):
    """Raise where a line of a starter still has its three dots."""
    if re.search(r"^\s*\.\.\.\s*$", text, flags=re.M):
        raise NotAttempted("fill in the cell above, in place of the three dots, and run it again.")


def compare(problem: Problem) -> None:
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

    problems: Any = None
    score: Any = None
    unit: str = ""
    draw: Callable | None = None  # shows below the verdict what an answer touched

    def check(self, answer: object = None) -> None:
        """Check `answer` as every exercise does; below, a picture of what it touched, where it ran."""
        from practice_gpus import kernels

        super().check(answer)
        if not self.draw:
            return
        told = NotYet, NotAttempted, kernels.KernelError, kernels.CompileError, ValueError
        with contextlib.suppress(*told):  # the panel has said so
            _look_at(answer, self.reference)
            self.draw(self, answer)

    def par(self) -> float:
        """Return the model answer's score, counted now."""
        problem = self.problems()[-1]
        return self.score(*run(self.reference, problem), problem)

    def scored(self, answer: Any) -> float:
        """Return an answer's score after its check; raises `NotYet` where it is wrong."""
        for problem in self.problems():
            try:
                compiled, result = judged(answer, problem, self.reference)
            except NotYet as found:
                self._explain(problem, type(found.__cause__).__name__)
                raise
        return self.score(compiled, result, problem)

    def yours(self) -> Any:
        """Return the learner's kernel once it has passed its check here; until then the model answer, and say so."""
        if self.key in core._correct:
            return core._correct[self.key]
        print(f"{self.tool}: the model answer stands in until yours passes its check")
        return self.reference if isinstance(self.reference, str) else as_kernel(self.reference)

    def _explain(self, problem, fault):
        """Raise `NotYet` with the words of the known mistake that gives the result of `problem`, or this `fault`."""
        near = {"rtol": max(problem.tolerance, 1e-3), "atol": problem.tolerance, "equal_nan": True}
        out = problem.out.float()

        def gives(wrong):
            return wrong.shape == out.shape and torch.allclose(wrong.float(), out, **near)

        names = dict(zip(parameters(self.reference), problem.values, strict=True))
        if cause := self.word(out, gives=gives, fault=fault, **names):
            raise NotYet(cause)


def parameters(kernel: Any) -> list[str]:
    """Return the names of a kernel's parameters."""
    if not isinstance(kernel, str):
        return list(inspect.signature(getattr(kernel, "fn", kernel)).parameters)
    head = kernel[kernel.index("(") + 1 : kernel.index(")")]
    return [part.split()[-1].lstrip("*") for part in head.split(",")]


def as_kernel(function: Callable) -> Any:
    """Return a model answer as a kernel that Triton can launch, here or on a GPU."""
    import triton
    import triton.language

    lines, first = inspect.getsourcelines(function)
    file = str(inspect.getsourcefile(function))
    names = {"triton": triton, "tl": triton.language}
    exec(compile("\n" * (first - 1) + textwrap.dedent("".join(lines)), file, "exec"), names)  # noqa: S102 - our own
    return names[function.__name__]


def puzzle(key: str, reference: Any, problems: Callable, score: Callable, **rest: Any) -> Puzzle:
    """Return a `Puzzle` whose check says score and par, and gives a line to share."""

    def check(answer):
        mine = made.scored(answer)
        par = made.par()
        return verdict(made.title, mine, par, made.unit)

    made = exercise(key, check, reference, Puzzle, problems=problems, score=score, **rest)
    return made


def verdict(title: str, mine: float, par: float, unit: str) -> str:
    """Say in words how a score compares with par, and give the line to share; the scorecard keeps the best."""
    SCORES[title] = min((mine, par), SCORES.get(title, (mine, par)))
    words = {
        "at": "at par with the model answer.",
        "under": f"⛳ UNDER PAR, by {1 - mine / par:.0%}! Your kernel does better than the model answer.",
        "over": "it works, and the score can still come down.",
    }[compared(mine, par)]
    score, wanted = digits(mine), digits(par)
    share = f"To share: ⛳ {title}, {score} {unit}, {where(mine, par)} (par {wanted}, {CARD})"
    return f"{words}\nScore {score}, par {wanted}: {unit}.\n{share}"


def digits(score: float) -> str:
    """Return a score in three digits, without an exponent."""
    return f"{score:,.0f}" if score >= 100 else f"{score:.3g}"


def compared(mine: float, par: float) -> str:
    """Return whether a score is "under", "at" or "over" par; half a percent counts as equal."""
    return "at" if abs(mine - par) < 0.005 * par else "under" if mine < par else "over"


def where(mine: float, par: float) -> str:
    """Return a score's place in words: "26% under par", "at par"."""
    place = compared(mine, par)
    return "at par" if place == "at" else f"{abs(1 - mine / par):.0%} {place} par"


def scorecard(puzzles: Sequence[Puzzle]) -> None:
    """Print the best score of each of these puzzles that was passed here, and one line to share."""
    passed = {each.title: SCORES[each.title] for each in puzzles if each.title in SCORES}
    if not passed:
        print("No kernel has passed yet. Your scores, and a line to share, will stand here.")
        return
    for title, (mine, par) in passed.items():
        print(f"{title:30} {digits(mine):>8}   {where(mine, par)}")
    places = [compared(*each) for each in passed.values()]
    told = ", ".join(f"{places.count(each)} {each} par" for each in ("under", "at", "over"))
    print(f"To share: ⛳ kernel puzzles, {len(passed)} of {len(puzzles)} passed: {told}")


def requested(result: Any, problem: Problem) -> float:
    """Return the bytes of all sectors that requests touch, for each element of the result."""
    return result.moved() / problem.out.numel()
