"""Lesson 14: the judge names every sin that is left with its line, and nothing of the learner's is overwritten."""

import shutil
from pathlib import Path

import pytest
import torch

from course.checks.core import exercises
from course.lesson14 import exercises as ex
from course.lesson14 import judge
from course.lesson14.runs import two_steps
from practice_gpus import practice_gpus


@pytest.fixture
def port(tmp_path):
    """Return a copy of the model solution."""
    return Path(shutil.copytree(judge.SOLUTION, tmp_path / "birdcalls"))


def change(file, old, new):
    """Put `new` in the place of `old` in a file."""
    file.write_text(file.read_text().replace(old, new))


HALVES = [pair for each in exercises("14") for pair in each.wrong_answers() if pair[0].more]
LEFT = {slip.more["left"]: half for slip, half in HALVES if "left" in slip.more}


@pytest.mark.slow
@pytest.mark.parametrize("exercise", exercises("14"), ids=lambda exercise: exercise.key)
def test_a_sin_that_is_left_is_named_with_its_line(exercise):
    """A learner finds the place at once."""
    for slip, half in exercise.wrong_answers():
        file, _, text = slip.more.get("line", "").partition(": ")
        if text:
            lines = (Path(half) / file).read_text().splitlines()
            [number] = [n for n, line in enumerate(lines, 1) if text in line]
            assert f"{file}:{number}" in exercise.outcome(half).message, slip


@pytest.mark.slow
def test_a_sin_of_one_kind_leaves_the_other_criteria_alone():
    marks = judge.marks(Path(LEFT["32 bits on a T4"]))
    assert [name for name, mark in marks.items() if not mark.met] == ["speed"]


@pytest.mark.slow
def test_the_untouched_project_meets_nothing_but_its_own_losses():
    marks = judge.marks(judge.PROJECT)
    assert [name for name, mark in marks.items() if mark.met] == ["loss"]
    assert marks["device"].text.startswith("train.py:37 `model = Net(config)`")


@pytest.mark.slow
def test_the_lesson_says_how_much_the_two_sins_of_speed_cost():
    steps = [two_steps(Path(LEFT[name])).step for name in ("32 bits on a T4", "clip by clip")]
    said = dict(
        zip(
            (157, 181, 74),
            (*(step.ms for step in steps), two_steps(judge.SOLUTION).step.ms),
            strict=True,
        )
    )
    assert {number: round(ms) for number, ms in said.items()} == {number: number for number in said}
    assert all(str(number) in ex.MOST[1] for number in said)
    assert ex.MOST[0] == "a batched spectrogram"  # the dearer of the two


@pytest.mark.slow
@pytest.mark.parametrize("left, half", LEFT.items(), ids=LEFT)
def test_nine_of_ten_are_found_where_one_is_left(left, half):
    gone = judge.sins(Path(half))
    pairs = [p for k in gone for p in zip(judge.SINS[k], gone[k], strict=True)]
    names = [name for name, known in pairs if not known]
    assert names == [left]


@pytest.mark.slow
def test_the_weekend_version_runs_and_has_eight_sins_left():
    assert not judge.nothing_ran(judge.weekend())
    gone = judge.sins(judge.weekend())
    assert gone["Placement"] == [True, True] and sum(map(sum, gone.values())) == 2


def test_the_change_made_together_moves_the_window_and_leaves_the_saved_names():
    """The page shows both: another line fails, and Ines's files still fit."""
    lines, names = [], []
    for each in (judge.PROJECT, ex.together()):
        with practice_gpus(1):
            network, config = ex.network(each)
            clips = torch.rand(2, config.samples, device="cuda")
            lines.append(ex.fails_at(each, network.to("cuda"), clips))
        names.append(list(network.state_dict()))
    assert "self.window" in lines[0] and "self.position(torch.arange" in lines[1]
    assert names[0] == names[1]
    assert judge.sins(ex.together())["Placement"] == [True, False]


def test_a_group_of_one_shows_what_no_loss_depends_on(capsys):
    ex.alone(str(judge.PROJECT), ex.to_ddp)
    assert "did not receive grad for rank 0: 13 14" in capsys.readouterr().out
    ex.alone(ex.SOLUTION, ex.to_ddp)
    assert "each parameter got its gradient" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_learner_kept_works_on_the_port(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    network, optimizer = ex.ines()
    ex.save_checkpoint("before.pt", network, optimizer, 1)
    old = torch.load("before.pt", weights_only=True)["model"]
    assert not any(ex.network(str(judge.PROJECT))[0].load_state_dict(old))
    ported = ex.network(ex.SOLUTION)[0].load_state_dict(old, strict=False)
    assert not ported.missing_keys and len(ported.unexpected_keys) == 2
    with practice_gpus(1, asynchronous=True):
        waits = ex.find_waits(ex.training(str(judge.weekend())))
    assert waits.count('print(f"step {step}: loss {loss.item():.3f}")') == 16


def test_a_copy_that_is_there_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ex.start()
    Path("birdcalls/train.py").write_text("mine")
    ex.start()
    assert Path("birdcalls/train.py").read_text() == "mine"
    assert "stays as it is" in capsys.readouterr().out


def test_an_untouched_copy_is_not_attempted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ex.device.outcome(ex.start()).status == "not attempted"


def test_a_changed_file_is_judged_anew(port):
    assert judge.device(port).met
    change(port / "model.py", ", device=x.device", "")
    assert "model.py:64" in judge.device(port).text


def test_a_port_that_does_not_run_yet_has_the_weekend_versions_sheet(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = []
    monkeypatch.setattr(ex.drawn, "show", lambda *words: shown.append(words))
    ex.report(ex.start())
    assert "a step on a T4, forecast: 223 ms; par for that step: 74 ms" in shown[0][1]
    assert "weekend version" in capsys.readouterr().out and not Path(ex.PAGE).exists()


def test_the_report_has_the_weekend_version_beside_the_port(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ex.report(ex.SOLUTION)
    page = Path(ex.PAGE).read_text(encoding="utf-8")
    assert "223 → 74" in page and "before" in page and "forecast" in page


@pytest.mark.slow
def test_a_test_in_inference_mode_is_as_good(port):
    change(port / "evaluate.py", "torch.no_grad()", "torch.inference_mode()")
    assert judge.device(port).met and judge.memory(port).met


@pytest.mark.slow
def test_a_line_that_fails_is_named_with_its_caller(port):
    change(port / "evaluate.py", "waves.to(device)", "waves")
    assert ", called at evaluate.py:" in judge.device(port).text
