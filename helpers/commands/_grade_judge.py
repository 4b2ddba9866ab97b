"""The process of one answer: what the answer needs is run, the check is called, the outcome is sent.

The watcher (`_grade_watch`) reads the notebook, finds what each answer needs (`_grade_cells`) and forks a process for
each exercise from the untouched state in which torch and the checks were loaded, before any learner's code ran. The
checks that judge are taken out of `sys.modules` there: what a notebook imports, and may change, is another copy.

What this defends. A notebook's code cannot reach another notebook's or exercise's outcome: no process or module is
shared, and no file between notebooks. A crash, `os._exit`, a hang, a flood of output or processes and a memory hog
cost that exercise. A line on the standard output or in a file counts for nothing; what is written into the result's
channel without the secret that frames it is reported as tampering. An answer that is plain data is carried as text into
a process that never ran the notebook's code, and judged there. Functions are judged by the checks beside them, in their
own process. There, changes of what checks rely on (built-ins, PyTorch's functions, practice GPUs) are found by
comparing what was before with what is after, and a check that passes one of its own wrong answers afterwards counts as
tampered.

What this does not defend. A function that is called by a check may look at the check's frames, for the expected value
or for the secret, and may undo its changes: inside one Python process nothing can prevent that. Names such code needs
are listed under `review`. Nor can it tell a copied model answer from the learner's own.
"""

import ast
import importlib
import linecache
import multiprocessing
import os
import sys
import types

from helpers.checks import core
from helpers.commands import _grade_box, _grade_cells
from practice_gpus import session

STOPPED, TAMPERED, AGAIN, DATA = "stopped", "tampered", "again", "data"
LONGEST = 2000
WATCHED = """builtins contextlib copy ctypes dis inspect json math random statistics threading time torch torch.nn
    torch.nn.functional torch.testing torch.utils.data traceback unittest.mock""".split()


def exercises_of(lesson):
    """Return {name: Exercise} of the lesson with this number, such as "02"."""
    members = vars(importlib.import_module(f"exercises.lesson{lesson}"))
    return {name: value for name, value in members.items() if isinstance(value, core.Exercise)}


def judge(channel, secret, job, key, sources, kept, expression, way):
    """Run, check and send (status, text) through the socket `channel`, framed by `secret`; then end the process.

    `way` is "needed" or "everything" (see `run`), or "data": then `expression` is plain data and no code is run.
    """
    send, leave, exercise = channel.sendall, os._exit, exercises_of(key[:2])[key[3:]]
    _grade_box.confine(job, channel.fileno())
    hide()
    before, outcome = fingerprint(), core.Exercise.outcome
    try:
        status, text = (
            on_data(exercise, expression)
            if way == "data"
            else on_code(exercise, before, outcome, sources, kept, expression, way == "everything")
        )
    except BaseException as error:
        status, text = STOPPED, f"{type(error).__name__} ended it"
    send(secret + f"{status}\n{text[:LONGEST]}".encode("utf-8", "replace") + secret)
    leave(0)


def hide():
    """Take this module, the checks and the arguments of this process out of the reach of an import."""
    vars(multiprocessing.current_process()).update(_target=None, _args=())
    for name in [
        name for name in sys.modules if name.startswith(("helpers.commands", "exercises"))
    ]:
        del sys.modules[name]
    for name in ("commands", "exercises"):
        vars(sys.modules["helpers"]).pop(name, None)


def on_data(exercise, text):
    """Check plain data, given as its Python text, where no learner's code has run; return (status, text)."""
    try:
        result = exercise.outcome(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return core.NOT_YET, f"expected plain values, got {text}"
    return result.status, result.message


def on_code(exercise, before, outcome, sources, kept, expression, everything):
    """Run the kept statements, evaluate the answer and check it; return (status, text)."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(display=print)
    try:
        run(sources, kept, vars(main), everything)
        answer = eval(compile(expression, "<check>", "eval"), vars(main))
    except (Exception, SystemExit) as error:
        return core.ERROR if everything else AGAIN, core.describe_error(error)
    for started in reversed(session.active):
        started.stop()
    if not callable(exercise.reference):
        return DATA, repr(answer)
    if str(getattr(answer, "__module__", "")).startswith("helpers."):
        return TAMPERED, "the course's own function was handed in"
    result = outcome(exercise, answer)
    if not everything and result.status == core.ERROR and result.message.startswith("NameError"):
        return AGAIN, result.message
    after = fingerprint()
    changed = [name for name, value in before.items() if after.get(name) != value]
    if changed:
        return TAMPERED, f"changed while it was graded: {', '.join(changed[:5])}"
    if (
        result.status == core.CORRECT
        and outcome(exercise, exercise.wrong[0].answer).status == core.CORRECT
    ):
        return TAMPERED, "afterwards the check passed a wrong answer"
    return result.status, result.message


def run(sources, kept, names, everything):
    """Run the kept statements in `names`. With `everything`, a cell that raises ends there, as in a notebook."""
    failed = 0
    for index, each in enumerate(_grade_cells.statements(sources)[0]):
        if index in kept and each.cell != failed:
            file, text = f"<cell {each.cell}>", sources[each.cell - 1]
            linecache.cache[file] = len(text), None, text.splitlines(True), file
            try:
                exec(each.code, names)
            except (Exception, SystemExit):
                if not everything:
                    raise
                failed = each.cell


def fingerprint():
    """Return {name: identity} of what the checks rely on: functions and their code, classes, constants."""
    found = {}
    for module in [
        name for name in sys.modules if name in WATCHED or name.split(".")[0] == "helpers"
    ]:
        found[module] = id(sys.modules[module])
        own = module.startswith("helpers")
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if callable(value) or own and name.strip("_").isupper():
                found[f"{module}.{name}"] = identity(value)
    return found


def identity(value):
    """Return what tells a function, class or constant from another one, or from itself when changed."""
    if isinstance(value, types.FunctionType):
        return id(value), id(value.__code__), id(value.__defaults__), id(value.__kwdefaults__)
    if isinstance(value, type):
        parts = {
            name: part for base in reversed(value.__mro__) for name, part in vars(base).items()
        }
        return id(value), {
            name: (id(part), id(getattr(part, "__code__", None)))
            for name, part in parts.items()
            if callable(part) or isinstance(part, property)
        }
    return id(value) if callable(value) else repr(value)
