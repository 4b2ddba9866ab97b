"""The two patients with several processes: a hang, and DDP that differs from one process."""

import contextlib
import functools
import io
import re

from course.checks import expect
from course.checks.core import NotAttempted, NotYet
from course.checks.words import exercise
from course.scripts import run, script_path

# --- the hang ------------------------------------------------------------------------------------
RANK = re.compile("^rank .*$", re.MULTILINE)
CONDITION = 23  # the line of hang.py that lets a rank skip its all-reduce


def flight_records():
    """Run three processes, of which one doesn't come to a collective; return the lines of their flight recorders."""
    return _whole("hang.py", [(), ("10",)], 3, lambda text: sorted(RANK.findall(text)), 9)


def _whole(script, attempts, processes, lines, count):
    """The `count` `lines` of what a script of several processes says, run with the arguments of the first attempt.

    On a machine under load, a rank comes late or a process never starts: then the next attempt's, with more time.
    """
    text = ""
    for number, arguments in enumerate(attempts):
        quiet = contextlib.redirect_stdout(io.StringIO()) if number else contextlib.nullcontext()
        options = {"processes": processes, "timeout": 45 + 75 * number}
        with contextlib.suppress(TimeoutError), quiet:
            text = run(script, *arguments, **options, quiet=True).text
            found = lines(text)
            if len(found) == count:
                return found
    raise RuntimeError(f"{script} didn't finish:\n{text[-1000:]}")


def _check_hang(answer):
    if not isinstance(answer, dict) or set(answer) != {"rank", "line"}:
        raise NotYet('expected a dict with "rank" and "line", as in the cell above.')
    if answer["rank"] is ... and answer["line"] is ...:
        raise NotAttempted
    if expect.number(answer["rank"], "the rank") != 2:
        raise NotYet(
            "that rank waits in an all-reduce, as it should. Which rank's third entry is something else?"
        )
    line = expect.number(answer["line"], "the line")
    if line == CONDITION + 1:
        raise NotYet("that's the call the others wait in. Which line let rank 2 go past it?")
    if line != CONDITION:
        raise NotYet(
            f"line {line:g} doesn't decide that. Open hang.py: what stands around the all_reduce?"
        )
    return hang.explanation


hang = exercise("13.hang", _check_hang, {"rank": 2, "line": CONDITION})


# --- DDP that isn't one GPU ----------------------------------------------------------------------
CURE = {"sampler": "distributed", "batch": "divided", "lr": "same", "norm": "layer", "last": "drop"}
SICK = CURE | {"batch": "each", "norm": "batch", "last": "keep"}


def losses(settings):
    """Return the table that agree.py prints with `settings`: what 1, 2 and 4 ranks do, and their losses."""
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return _trained(tuple(arguments), script_path("agree.py").read_text(encoding="utf-8"))


@functools.cache  # processes take seconds to start, and the check looks at what the cell above has run
def _trained(arguments, script):
    def table(text):
        return text[text.find("ranks  ") :].splitlines()[:4]

    return "\n".join(_whole("agree.py", [arguments] * 2, 4, table, 4))


def _check_agree(answer):
    if not isinstance(answer, dict) or set(answer) != set(CURE):
        raise NotYet(f"expected a dict with the keys {', '.join(CURE)}.")
    if not all(isinstance(value, str) for value in answer.values()):
        raise NotYet("the settings are words in quotes, as listed above.")
    if answer == SICK:
        raise NotAttempted
    for name, value in CURE.items():
        if answer[name] != value:
            raise NotYet(f"{name}={answer[name]!r}: {agree.word(name)}")
    found = [float(row.split()[-1]) for row in losses(answer).splitlines()[1:]]
    if max(found) - min(found) > 2e-6:
        raise NotYet(f"the losses still differ: {found}.")
    return f"{found[0]:.6f} on 1, 2 and 4 ranks, up to rounding. {agree.explanation}"


agree = exercise("13.agree", _check_agree, CURE, seconds=120)
