"""The processes that watch: one that starts a watcher for each notebook, and the watchers. None runs learners' code."""

import json
import multiprocessing
import os
import secrets
import socket
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import wait

import nbformat  # noqa: F401 - loaded once, before the processes are forked
import torch
import torch._dynamo  # noqa: F401 - practice GPUs need it
from tqdm import tqdm

from exercises import all_keys
from helpers.checks import core
from helpers.commands import _grade_box, _grade_cells, _grade_judge

CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
GRACE, LATE = 6, 30  # seconds beyond an answer's time, and beyond a notebook's


def grade_all(paths, args):
    """Return {path: answer} as `supervise` makes it, and whether the notebooks were sealed off."""
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # no thread beside the forks
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        os.chmod(work, 0o711)
        sealed, other = _grade_box.possible(work)
        fixed = {
            "sealed": sealed,
            "few": other or sealed and os.geteuid() != 0,
            "lesson": args.lesson,
            "work": work,
            "known": list(all_keys()),
            "seconds": args.seconds,
            "memory": int(args.memory * 1e9),
            "hidden": os.path.realpath(args.folder),
        }
        for number in fixed["known"]:
            _grade_judge.exercises_of(number)
        jobs = [
            dict(
                fixed,
                path=str(path.absolute()),
                user=_grade_box.FIRST_USER + index if other else None,
            )
            for index, path in enumerate(paths)
        ]
        with tqdm(total=len(jobs), unit="notebook") as bar:
            return dict(zip(paths, in_parallel(jobs, args.jobs, bar), strict=True)), sealed


def in_parallel(jobs, count, bar):
    """Run each job in a process of its own, `count` at once; return their answers in order. Leaves no process."""
    waiting, running, answers = list(enumerate(jobs))[::-1], {}, {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                index, job = waiting.pop()
                reader, writer = CONTEXT.Pipe(False)
                process = CONTEXT.Process(target=enter, args=(job, writer))
                process.start()
                writer.close()
                running[reader] = index, process, time.monotonic() + job["seconds"] + LATE
            for reader in wait(list(running), 0.2) or [
                r for r in running if time.monotonic() > running[r][2]
            ]:
                index, process, _ = running.pop(reader)
                end(process)
                answers[index] = received(reader)
                bar.update()
    finally:
        for _, process, _ in running.values():
            end(process)
    return [answers[index] for index in range(len(jobs))]


def end(process):
    """Kill a process and all below it."""
    _grade_box.end_below(process.pid)
    process.kill()
    process.join()


def received(reader):
    """Return the answer that came through the pipe, or one that says why there is none."""
    with reader, suppress(EOFError, OSError, ValueError):
        return json.loads(reader.recv_bytes())
    return {
        "lesson": "",
        "note": "stopped: it could not be read in time, or at all",
        "review": "",
        "outcomes": {},
    }


def enter(job, pipe):
    """The process of one notebook: leave what is shared, then watch, or let a first process in the new place watch."""
    _grade_box.guard()
    if job["sealed"]:
        _grade_box.leave()
        first = CONTEXT.Process(target=supervise, args=(job, pipe))
        first.start()
        pipe.close()
        first.join()
    else:
        supervise(job, pipe)


def supervise(job, pipe):
    """Grade a notebook and send {"lesson", "note", "review", "outcomes": {key: [status, text]}} as JSON."""
    _grade_box.guard()
    answer = {"lesson": job["lesson"] or "", "note": "", "review": "", "outcomes": {}}
    try:
        grade(job, answer)
    except _grade_cells.Unreadable as error:
        answer["note"] = str(error)
    pipe.send_bytes(json.dumps(answer).encode())


def grade(job, answer):
    """Fill `answer`; Unreadable where the notebook holds no exercises of a lesson, or of the lesson asked for."""
    deadline = time.monotonic() + job["seconds"]
    sources = _grade_cells.read(job["path"])
    found, broken = _grade_cells.statements(sources)
    number, aliases = _grade_cells.lesson_of(job["path"], found, job["known"])
    if job["lesson"] not in (None, number):
        raise _grade_cells.Unreadable(f"a notebook of lesson {number}")
    if job["sealed"]:
        _grade_box.seal(job["work"], job["hidden"])
    calls, doubts = _grade_cells.checks(found, aliases), []
    for name, exercise in _grade_judge.exercises_of(number).items():
        outcome = core.NOT_ATTEMPTED, f"no call of ex.{name}.check in the notebook"
        if name in calls:
            index, expression = calls[name]
            kept = _grade_cells.needed(found[: index + 1], expression)
            outcome = outcome_of(job, deadline, exercise, sources, kept, index, expression)
            names = (
                set().union(*(_grade_cells.all_names(found[index].code) for index in kept))
                & _grade_cells.DOUBTFUL
            )
            doubts += [f"{name}: {', '.join(sorted(names))}"] if names else []
        answer["outcomes"][exercise.key] = outcome
    answer.update(lesson=number, review="; ".join(doubts)[:1000])
    answer["note"] = (
        f"left out, not Python: cell {', '.join(map(str, broken[:20]))}" if broken else ""
    )


def outcome_of(job, deadline, exercise, sources, kept, index, expression):
    """Return (status, text): by what the answer needs; where that does not do, by all that stands before the check."""
    status, text = in_child(job, deadline, exercise, sources, kept, expression, "needed")
    if status == _grade_judge.AGAIN:
        missing = text
        status, text = in_child(
            job, deadline, exercise, sources, list(range(index)), expression, "everything"
        )
        text = missing if status == core.ERROR else text
    if status == _grade_judge.DATA:
        status, text = in_child(
            job, deadline, exercise, (), (), text.replace("Ellipsis", "..."), "data"
        )
    return status, text


def in_child(job, deadline, exercise, *task):
    """Run `_grade_judge.judge` with `task` in a process of its own; return what it says, or why it says nothing."""
    ours, theirs = socket.socketpair()
    secret = secrets.token_bytes(16)
    child = CONTEXT.Process(
        target=_grade_judge.judge, args=(theirs, secret, job, exercise.key, *task)
    )
    child.start()
    theirs.close()
    seconds = (deadline - time.monotonic()) / 2
    if task[-1] != "everything":
        seconds = min(2 * (exercise.seconds or core.SECONDS) + GRACE, seconds)
    try:
        return heard(ours, secret, child, job["memory"], time.monotonic() + seconds)
    finally:
        _grade_box.end_below()
        ours.close()
        child.join()


def heard(channel, secret, child, memory, until):
    """Return the (status, text) that comes through `channel` between two secrets; `until` is the latest time."""
    channel.settimeout(0.2)
    data, running = b"", True
    while len(data) <= 32 or not data.endswith(secret):
        excess = "out of time" if time.monotonic() > until else _grade_box.excess(memory)
        if excess or not running:
            return (
                _grade_judge.STOPPED,
                excess or "its process ended without a result (exit, crash, out of memory)",
            )
        running = child.is_alive()
        with suppress(TimeoutError):
            data += channel.recv(65536)
        if data[:16] != secret[: len(data)] or len(data) > 8 * _grade_judge.LONGEST:
            return _grade_judge.TAMPERED, "something else was written where the result belongs"
    status, _, text = data[16:-16].decode("utf-8", "replace").partition("\n")
    return status, text
