"""Every exercise, three ways: the reference passes, each wrong answer fails with its own message, untouched says so."""

import ast
import importlib
import itertools
import os
import pkgutil
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import course
from course.checks import core, expect, panel
from course.checks.core import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET, Exercise, NotYet, call
from course.tools import ROOT

pytestmark = pytest.mark.gpu

MODULES = [
    importlib.import_module(f"course.{m.name}.exercises")
    for m in pkgutil.iter_modules(course.__path__)
    if m.name.startswith("lesson")
]
EXERCISES = [
    value for module in MODULES for value in vars(module).values() if isinstance(value, Exercise)
]
KEYS = [exercise.key for exercise in EXERCISES]
# that one starts two processes
IN_PROCESS = [exercise for exercise in EXERCISES if exercise.key != "06.ddp"]
# They compile kernels, judge a whole program or let a device work for most of a second: in the default lane the model
# answer once and one wrong answer.
LONG = ("05.leak", "11.", "12.", "13.agree", "13.recompiles", "14.", "93.")
PROGRAMS = ("13.agree", "14.two", "14.speed")  # several processes, or a large step, each time


def takes_long(exercise):
    return exercise.key.startswith(LONG)


def in_both_lanes(exercises):
    """The parameters of a test: (exercise, whether all of it is asked), all of what takes long in the slow lane only."""
    for exercise in exercises:
        if takes_long(exercise):
            marks = [pytest.mark.slow] * exercise.key.startswith(PROGRAMS)
            yield pytest.param(exercise, False, id=exercise.key, marks=marks)
        marks = [pytest.mark.slow] * takes_long(exercise)
        yield pytest.param(
            exercise, True, id=f"{exercise.key}{'-all' * takes_long(exercise)}", marks=marks
        )


def test_keys_are_unique_and_name_their_place():
    assert len(set(KEYS)) == len(KEYS)
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Exercise):
                assert value.key == f"{module.__name__.split('.')[1][-2:]}.{name}"


@pytest.mark.parametrize("exercise, whole", in_both_lanes(EXERCISES))
def test_reference_passes_each_time_and_leaves_the_learners_random_numbers_alone(exercise, whole):
    """A check that seeds gives each learner the same inputs, and the cells after it the same numbers."""
    drawn = set()
    for seed in (1, 2) if whole else (1,):
        torch.manual_seed(seed)
        random.seed(seed)
        result = exercise.outcome(exercise.reference)
        assert result.status == CORRECT, result
        assert not any(slip.is_in(result.message) for slip in exercise.slips)
        drawn |= {torch.rand(1).item(), random.random()}
    assert len(drawn) == (4 if whole else 2)


@pytest.mark.parametrize("exercise, whole", in_both_lanes(EXERCISES))
def test_each_known_mistake_is_told_its_own_words(exercise, whole):
    """A learner who makes a common mistake reads what it is: not another mistake's words, nor that all is well."""
    assert len(exercise.slips) >= 2
    for slip, answer in itertools.islice(exercise.wrong_answers(), None if whole else 1):
        result = exercise.outcome(answer)
        assert result.status in (NOT_YET, ERROR), (slip, result)
        told = [each for each in exercise.slips if each.is_in(result.message)]
        assert told == [slip], result


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_untouched_says_not_attempted(exercise):
    def starter(*args): ...

    for untouched in (None, ..., starter):
        assert exercise.outcome(untouched).status == NOT_ATTEMPTED


class Odd:
    """Something that can be neither compared nor tested."""

    __hash__ = None

    def __eq__(self, other):
        raise ValueError("odd")

    def __bool__(self):
        raise ValueError("odd")


ODD = (
    *(None, True, -1, 10**400, 1.5, float("nan"), 1j, "text", b"x"),
    *([], (1, 2), {"a": 1}, {1: None}, set(), range(3), object(), int, Odd(), [Odd(), Odd()]),
    *(torch.tensor(1.0), torch.zeros(0), torch.float16, torch.device("cuda:1")),
    *(torch.ones(2, 3, dtype=torch.complex64), torch.empty(2, device="meta")),
    *((torch.tensor(1.0), torch.ones(2)), [torch.ones(2)], (torch.float16, "yes")),
    *(torch.nn.Linear(2, 2), torch.ones(2, 2).numpy()),
)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("exercise", IN_PROCESS, ids=lambda exercise: exercise.key)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_odd_answers_never_break_a_check(exercise, every):
    for odd in ODD[::9] if exercise.key == "05.leak" else ODD[::every]:
        answers = [odd, lambda *args, odd=odd: odd]
        if isinstance(exercise.reference, dict):
            answers = [odd, dict.fromkeys(exercise.reference, odd)]
        for answer in answers:
            assert exercise.outcome(answer).status in (NOT_YET, ERROR, NOT_ATTEMPTED)


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_hints_an_explanation_and_a_solution_are_there(exercise):
    assert len(exercise.hints) >= 2 and exercise.explanation
    assert ast.parse(exercise.solution_source()).body, "it doesn't stand in a cell as it is"


def _square(x):
    if x == 3:
        raise NotYet("three")
    return x * x


def make(check):
    return Exercise("00.t", "t", check, ("a", "b"), _square, "because")


def test_an_exception_in_the_answer_names_the_learners_line():
    def answer(x):
        return x.no_such_attribute

    result = make(lambda a: call(a, 1)).outcome(answer)
    assert result.status == ERROR
    assert "AttributeError" in result.message and "no_such_attribute" in result.message


NEEDS_SIGNALS = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="endless code ends only where signals reach it"
)


def _swallows_everything(x):
    while True:
        try:
            x += 1
        except:  # noqa: E722 - what a learner may write
            x = 0


def _waits_forever(x):
    lock = threading.Lock()
    return lock.acquire() and lock.acquire()


def _loops(x):
    while True:
        x += 1


ENDLESS = (_loops, _swallows_everything, lambda x: time.sleep(60), _waits_forever)


@pytest.mark.parametrize("answer", ENDLESS, ids=("loop", "bare except", "sleep", "lock"))
@NEEDS_SIGNALS
def test_endless_code_is_stopped(answer, monkeypatch):
    if answer is _swallows_everything and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 handles signals inside try alone: nothing ends this but a restart")
    monkeypatch.setattr("course.checks.core.SECONDS", 0.2)
    result = make(lambda a: call(a, 1)).outcome(answer)
    assert result.status == ERROR and "stopped" in result.message
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def _import_slowly(x):
    import slow_to_import

    while slow_to_import.DONE:
        x += 1


@pytest.fixture
def slow_import(monkeypatch, tmp_path):
    """Give a module that takes 0.3 s to import."""
    (tmp_path / "slow_to_import.py").write_text(
        "import time\nfor _ in range(6):\n    time.sleep(0.05)\nDONE = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("slow_to_import", None)


@NEEDS_SIGNALS
def test_an_import_is_not_broken_off(monkeypatch, slow_import):
    monkeypatch.setattr("course.checks.core.SECONDS", 0.1)
    result = make(lambda a: call(a, 1)).outcome(_import_slowly)
    assert "stopped" in result.message and sys.modules["slow_to_import"].DONE


@NEEDS_SIGNALS
def test_an_interrupt_waits_for_the_end_of_an_import(slow_import):
    """Half of PyTorch's lazily imported modules would make right answers fail until the kernel restarts."""
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        make(lambda a: call(a, 1)).outcome(_import_slowly)
    assert sys.modules["slow_to_import"].DONE and signal.getsignal(signal.SIGINT) is before


def test_a_call_that_nothing_stops_is_named(monkeypatch):
    monkeypatch.setattr("course.checks.core.SECONDS", 0.1)
    monkeypatch.setattr("course.checks.limit.PATIENCE", 0.1)
    printed = threading.Event()
    monkeypatch.setattr("course.checks.limit.print", lambda text: printed.set(), raising=False)
    outcome = make(lambda a: call(a, 1)).outcome
    thread = threading.Thread(target=outcome, args=[lambda x: printed.wait(60)])
    thread.start()
    thread.join()
    assert printed.is_set()


def test_ending_the_program_is_no_answer():
    result = make(lambda a: call(a, 1)).outcome(lambda x: sys.exit("bye"))
    assert result.status == ERROR
    assert "SystemExit: bye" in result.message
    assert "Return a value" in result.message


def test_a_bug_in_a_check_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        make(lambda a: 1 / 0).outcome(5)


def test_check_shows_and_remembers(capsys, home):
    from course.checks import progress

    exercise = make(lambda a: "good" if call(a, 2) == 4 else _square(3))
    exercise.check(lambda x: 5)
    assert "✗ Not yet: three" in capsys.readouterr().out
    exercise.check(_square)
    assert "✓ Correct! good" in capsys.readouterr().out
    assert progress.load()["00.t"]["status"] == CORRECT
    exercise.check(lambda x: 5)
    assert progress.load()["00.t"]["status"] == CORRECT, "a solved exercise stays solved"


def test_hints_come_one_by_one_and_the_solution_is_shown(capsys, home):
    exercise = make(lambda a: None)
    exercise.hint()
    assert capsys.readouterr().out == "Hint 1 of 2: a\n"
    exercise.hint()
    assert capsys.readouterr().out == "Hint 1 of 2: a\nHint 2 of 2: b\n"
    exercise.solution()
    assert "def _square" in capsys.readouterr().out


def test_the_buttons_of_a_panel_show_hints_and_the_solution(home):
    exercise = make(lambda a: None)
    untouched = exercise.outcome(None)
    box = panel.widget(exercise.verdict(untouched), exercise._buttons(untouched))
    _, buttons, place = box.children
    for button, words in zip(buttons.children, ("Hint 1 of 2", "def _square"), strict=True):
        button.click()
        assert words in place.outputs[0]["data"]["text/markdown"]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (lambda: expect.number(None, "your mean"), "your mean is None, expected a number"),
        (lambda: expect.tensor(None, what="f(x)"), "f(x) is None, expected a tensor"),
    ],
)
def test_a_forgotten_return_is_named(expected, words):
    with pytest.raises(NotYet) as told:
        expected()
    assert str(told.value) == f"{words}: is there a `return`?"


@pytest.mark.slow
def test_a_program_that_cannot_start_processes_is_told_how(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from course.lesson06 import exercises as ex\nex.ddp.check(ex.ddp.reference)\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
    )
    assert "it did not start" in done.stdout and "__name__ == '__main__'" in done.stdout, done


def test_a_misspelled_name_is_answered_with_the_one_that_was_meant():
    """Python's own hint would be missing on the panel, where a beginner reads it."""
    learners = {}
    exec("def answer():\n    right = 1\n    return rihgt", learners)
    with pytest.raises(NameError) as raised:
        learners["answer"]()
    assert "Did you mean 'right'?" in core.describe_error(raised.value)
