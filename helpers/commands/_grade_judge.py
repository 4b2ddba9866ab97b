"""From one notebook to outcomes: a watching process that runs none of its code, and a fresh one for each exercise.

The watcher reads the notebook and finds what each answer needs (`_grade_cells`). For every exercise it forks a process
from the untouched state in which torch and the course's checks were loaded, before any learner's code ran; there the
definitions run, then the check. A second try runs all cells before the check, where the definitions alone do not do.
The checks that judge are taken out of `sys.modules` first: what a notebook imports, and may change, is another copy.

What this defends. A notebook's code cannot reach another notebook's or exercise's outcome: no process, module or file
is shared. A crash, `os._exit`, a hang, a flood of output or processes and a memory hog cost that exercise. A line
on the standard output or in any file counts for nothing; what is written into the result's channel without the secret
that frames it is reported as tampering. An answer that is plain data is carried as text into a process that never ran
the notebook's code, and judged there. Functions are judged by the checks beside them, in their own process. There,
changes of what checks rely on (built-ins, PyTorch's functions, practice GPUs) are found by comparing what was before
with what is after, and a check that passes one of its own wrong answers afterwards counts as tampered.

What this does not defend. A function that is called by a check may look at the check's frames, for the expected value
or for the secret, and may undo its changes: inside one Python process nothing can prevent that. Names such code needs
are listed under `review`. Nor can it tell a copied model answer from the learner's own.
"""

import ast
import json
import linecache
import multiprocessing
import os
import secrets
import socket
import sys
import time
import types
from contextlib import suppress

from helpers.commands import _grade_box, _grade_cells
from helpers.exercises import core
from helpers.practice import session

CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
STOPPED, TAMPERED, AGAIN, DATA = "stopped", "tampered", "again", "data"
GRACE, LONGEST = 6, 2000
WATCHED = """builtins contextlib copy ctypes dis inspect json math random statistics threading time torch torch.nn
    torch.nn.functional torch.testing torch.utils.data traceback unittest.mock""".split()


def exercises_of(lesson):
    """Return {name: Exercise} of the lesson with this number, such as "02"."""
    __import__(f"helpers.exercises.lesson{lesson}")
    members = vars(sys.modules[f"helpers.exercises.lesson{lesson}"])
    return {name: value for name, value in members.items() if isinstance(value, core.Exercise)}


def enter(job, pipe):
    """The process of one notebook: grade it behind walls and send the result through `pipe`, as JSON."""
    _grade_box.guard()
    if not job["sealed"]:
        return supervise(job, pipe)
    _grade_box.leave()
    first = CONTEXT.Process(target=supervise, args=(job, pipe))
    first.start()
    pipe.close()
    first.join()


def supervise(job, pipe):
    """Read the notebook, grade each exercise, send {"lesson", "note", "review", "outcomes": {key: [status, text]}}."""
    _grade_box.guard()
    answer = {"lesson": job["lesson"] or "", "note": "", "review": "", "outcomes": {}}
    try:
        grade(job, answer)
    except _grade_cells.Unreadable as error:
        answer["note"] = str(error)
    pipe.send_bytes(json.dumps(answer).encode())


def grade(job, answer):
    """Fill `answer` with the outcomes of the notebook's exercises; Unreadable where it holds none."""
    deadline = time.monotonic() + job["seconds"]
    sources = _grade_cells.read(job["path"])
    found, broken = _grade_cells.statements(sources)
    number, aliases = _grade_cells.lesson_of(job["path"], found, job["known"])
    if job["lesson"] not in (None, number):
        raise _grade_cells.Unreadable(f"a notebook of lesson {number}")
    if job["sealed"]:
        _grade_box.seal(job["folder"], job["hidden"])
    calls, doubts = _grade_cells.checks(found, aliases), {}
    for name, exercise in exercises_of(number).items():
        outcome = core.NOT_ATTEMPTED, f"no call of ex.{name}.check in the notebook"
        if name in calls:
            kept = _grade_cells.needed(found[:calls[name][0] + 1], calls[name][1])
            outcome = outcome_of(job, deadline, exercise, sources, kept, calls[name])
            names = set().union(*(_grade_cells.all_names(found[index].code) for index in kept))
            doubts[name] = sorted(names & _grade_cells.DOUBTFUL)
        answer["outcomes"][exercise.key] = outcome
    answer["lesson"] = number
    answer["note"] = f"left out, not Python: cell {', '.join(map(str, broken))}" if broken else ""
    answer["review"] = "; ".join(f"{name}: {', '.join(words)}" for name, words in doubts.items() if words)


def outcome_of(job, deadline, exercise, sources, kept, call):
    """Return (status, text) of one exercise."""
    task = exercise.key, sources, kept, call[1], False
    status, text = in_child(job, deadline, exercise, *task)
    if status == AGAIN:
        missing, task = text, (exercise.key, sources, list(range(call[0])), call[1], True)
        status, text = in_child(job, deadline, exercise, *task)
        text = missing if status == core.ERROR else text
    if status == DATA:
        status, text = in_child(job, deadline, exercise, exercise.key, (), (), text.replace("Ellipsis", "..."), None)
    return status, text


def in_child(job, deadline, exercise, *task):
    """Run `judge` with `task` in a process of its own and return what it says, or why it says nothing."""
    ours, theirs = socket.socketpair()
    secret = secrets.token_bytes(16)
    child = CONTEXT.Process(target=judge, args=(theirs, secret, job, *task))
    child.start()
    theirs.close()
    seconds = min(2 * (exercise.seconds or core.SECONDS) + GRACE, (deadline - time.monotonic()) / 2)
    try:
        return heard(ours, secret, child, job["memory"], time.monotonic() + seconds)
    finally:
        _grade_box.end_below()
        ours.close()
        child.join()


def heard(channel, secret, child, memory, until):
    """Return the (status, text) that comes through `channel` between two secrets; `until` is the latest time."""
    channel.settimeout(0.2)
    data, end, running = b"", False, True
    while len(data) <= 32 or not data.endswith(secret):
        if end or not running:
            return STOPPED, "its process ended without a result (exit, crash, or out of memory)"
        if time.monotonic() > until:
            return STOPPED, "out of time"
        if too_much := _grade_box.excess(memory):
            return STOPPED, too_much
        running = child.is_alive()
        with suppress(TimeoutError):
            piece = channel.recv(65536)
            data, end = data + piece, not piece
        if data[:16] != secret[:len(data)] or len(data) > 8 * LONGEST:
            return TAMPERED, "something else was written where the result belongs"
    status, _, text = data[16:-16].decode("utf-8", "replace").partition("\n")
    return status, text


def judge(channel, secret, job, key, sources, kept, expression, everything):
    """The process of one answer: run what it needs, check it, send the outcome. `everything` None: it is plain data."""
    send, leave, exercise = channel.sendall, os._exit, exercises_of(key[:2])[key[3:]]
    _grade_box.confine(job["folder"], job["user"], job["few"], job["memory"], job["seconds"], channel.fileno())
    hide()
    before, outcome = fingerprint(), core.Exercise.outcome
    try:
        if everything is None:
            status, text = verdict_on_data(exercise, expression)
        else:
            status, text = verdict(exercise, before, outcome, sources, kept, expression, everything)
    except BaseException as error:
        status, text = STOPPED, f"{type(error).__name__} ended it"
    send(secret + f"{status}\n{text[:LONGEST]}".encode("utf-8", "replace") + secret)
    leave(0)


def hide():
    """Take this module, the checks and the arguments of this process out of the reach of an import."""
    vars(multiprocessing.current_process()).update(_target=None, _args=())
    for name in [name for name in sys.modules if name.startswith(("helpers.commands", "helpers.exercises"))]:
        del sys.modules[name]
    for name in ("commands", "exercises"):
        vars(sys.modules["helpers"]).pop(name, None)


def verdict_on_data(exercise, text):
    """Check plain data, given as its Python text, where no learner's code has run."""
    try:
        result = exercise.outcome(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return core.NOT_YET, f"expected plain values, got {text}"
    return result.status, result.message


def verdict(exercise, before, outcome, sources, kept, expression, everything):
    """Run the statements, then the check; return (status, text)."""
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
    changed = [name for name, value in fingerprint(before).items() if before[name] != value]
    if changed:
        return TAMPERED, f"changed while it was graded: {', '.join(changed[:5])}"
    if result.status == core.CORRECT and outcome(exercise, exercise.wrong[0].answer).status == core.CORRECT:
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


def fingerprint(names=None):
    """Return {name: identity} of what the checks rely on: functions and their code, classes, constants."""
    found = {}
    for module in [name for name in sys.modules if name in WATCHED or name.split(".")[0] == "helpers"]:
        found[module] = id(sys.modules[module])
        own = module.startswith("helpers")
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if callable(value) or own and name.strip("_").isupper():
                found[f"{module}.{name}"] = identity(value)
    return found if names is None else {name: found.get(name) for name in names}


def identity(value):
    """Return what tells a function, class or constant from another one, or from itself when changed."""
    if isinstance(value, types.FunctionType):
        return id(value), id(value.__code__), id(value.__defaults__), id(value.__kwdefaults__)
    if isinstance(value, type):
        parts = [(name, part) for name, part in vars(value).items() if callable(part) or isinstance(part, property)]
        return id(value), *((name, id(part), id(getattr(part, "__code__", None))) for name, part in parts)
    return id(value) if callable(value) else repr(value)
