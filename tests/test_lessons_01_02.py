"""Lessons 01 and 02: the machines to diagnose, and figures that follow what the learner wrote."""

import re

import pytest

from helpers import plots
from lessons.lesson01 import exercises as lesson01
from lessons.lesson01 import figures as figures01
from lessons.lesson02 import exercises as lesson02
from lessons.lesson02 import figures as figures02


def test_each_machine_shows_the_fact_that_gives_it_away(capsys):
    """Without its fact in the table a machine could only be guessed."""
    lesson01.show_machines()
    table = capsys.readouterr().out
    facts = {
        "torch.version.cuda": "A –",
        "driver": "B –",
        "CUDA's error": "C found version 11040",
        "CUDA_VISIBLE_DEVICES": "D -1",
        "what PyTorch sees": "E cuda:0, capability 6.0: no kernel image",
    }
    for row, fact in facts.items():
        line = re.search(rf"^{row}: (.*)$", table, flags=re.M)[1]
        assert fact in line, row


def test_the_lookups_name_the_faster_device_as_the_question_does(monkeypatch):
    """`reveal` compares the learner's choice with this text: another wording would make every guess wrong."""
    shown = []
    monkeypatch.setattr(plots, "show", lambda *words: shown.append(words))
    assert figures01.show_lookups() == "a Xeon Gold 6254 (CPU)"
    assert "factor of 34" in shown[0][0].get_suptitle()


def test_the_figure_draws_the_learners_formula_once_it_is_right(monkeypatch):
    """A learner who has solved it sees their own line, and a wrong one is never drawn as if it were right."""
    shown = []
    monkeypatch.setattr(plots, "show", lambda figure, words: shown.append(figure))
    for answer in (lesson02.fit_copy, None, lambda small, large: (1.0, 1.0)):
        figures02.show_small_copies(answer, {256: 0.4, 2**20: 9.0}, "cpu")
    labels = [[line.get_label() for line in figure.axes[0].get_lines()] for figure in shown]
    assert "your formula (forecast)" in labels[0]
    assert all("our formula (forecast)" in each for each in labels[1:])


def test_small_copies_take_as_many_times_as_long_as_the_lesson_says():
    """44 times by the tutorial's own milliseconds, for the same four megabytes: 16.2013 and 0.3669."""
    assert figures02.times_as_long() == pytest.approx(16.2013 / 0.3669)
