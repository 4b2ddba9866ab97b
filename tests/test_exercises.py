"""Every exercise, three ways: the reference passes, each wrong answer fails with its own message, untouched says so."""
import importlib
import pkgutil

import pytest

import helpers.exercises
from helpers.exercises.core import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET, Exercise, NotYet, Wrong, call

MODULES = [importlib.import_module(f"helpers.exercises.{m.name}")
           for m in pkgutil.iter_modules(helpers.exercises.__path__) if m.name.startswith("lesson")]
EXERCISES = [value for module in MODULES for value in vars(module).values() if isinstance(value, Exercise)]
KEYS = [exercise.key for exercise in EXERCISES]


def test_keys_are_unique_and_name_their_place():
    assert len(set(KEYS)) == len(KEYS)
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Exercise):
                assert value.key == f"{module.__name__[-2:]}.{name}"


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_reference_passes_each_time(exercise):
    for _ in range(2):
        result = exercise.outcome(exercise.reference)
        assert result.status == CORRECT, result


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_wrong_answers_fail_with_their_own_message(exercise):
    assert len(exercise.wrong) >= 2
    messages = []
    for wrong in exercise.wrong:
        result = exercise.outcome(wrong.answer)
        assert result.status in (NOT_YET, ERROR), (wrong, result)
        assert wrong.says in result.message, (wrong, result)
        messages.append(wrong.says)
    assert len(set(messages)) == len(messages), "two wrong answers share one message"


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_untouched_says_not_attempted(exercise):
    def starter(*args):
        ...

    for untouched in (None, ..., starter):
        assert exercise.outcome(untouched).status == NOT_ATTEMPTED


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_described_and_hinted(exercise):
    assert len(exercise.hints) == 2 and len(exercise.explanation.split()) >= 10
    assert 1 <= exercise.difficulty <= 3 and 1 <= exercise.minutes <= 20 and exercise.lines >= 1
    assert exercise.solution_source()


def _square(x):
    if x == 3:
        raise NotYet("three")
    return x * x


def make(check):
    return Exercise("00.t", "t", 1, 1, 1, check, ("a", "b"), _square, "because", ())


def test_an_exception_in_the_answer_names_the_learners_line():
    def answer(x):
        return x.no_such_attribute

    result = make(lambda a: call(a, 1)).outcome(answer)
    assert result.status == ERROR
    assert "AttributeError" in result.message and "no_such_attribute" in result.message


def test_an_endless_loop_is_stopped(monkeypatch):
    monkeypatch.setattr("helpers.exercises.core.SECONDS", 0.3)

    def answer(x):
        while True:
            x += 1

    result = make(lambda a: call(a, 1)).outcome(answer)
    assert result.status == ERROR and "stopped" in result.message


def test_a_bug_in_a_check_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        make(lambda a: 1 / 0).outcome(5)


def test_not_a_function_is_said():
    result = make(lambda a: call(a, 1)).outcome(5)
    assert result.status == NOT_YET and "int" in result.message


def test_check_shows_and_remembers(capsys, monkeypatch, tmp_path):
    from helpers.exercises import progress
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path))
    exercise = make(lambda a: "good" if call(a, 2) == 4 else _square(3))
    exercise.check(lambda x: 5)
    assert "Not yet: three" in capsys.readouterr().out
    exercise.check(_square)
    assert "Correct: good" in capsys.readouterr().out
    assert progress.load()["00.t"]["status"] == CORRECT
    exercise.check(lambda x: 5)
    assert progress.load()["00.t"]["status"] == CORRECT, "a solved exercise stays solved"


def test_hints_come_one_by_one_and_solution_prints(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path))
    exercise = make(lambda a: None)
    exercise.hint()
    assert capsys.readouterr().out == "Hint 1 of 2: a\n"
    exercise.hint()
    assert capsys.readouterr().out == "Hint 1 of 2: a\nHint 2 of 2: b\n"
    exercise.solution()
    assert "def _square" in capsys.readouterr().out


def test_wrong_is_plain_data():
    assert Wrong(1, "a") == Wrong(1, "a")
