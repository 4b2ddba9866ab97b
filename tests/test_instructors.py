"""The instructors' page: its tables name every lesson, and its settings are valid."""

import ast
import re

import yaml

from helpers import course
from tools import ROOT

TEXT = (ROOT / "notebooks/INSTRUCTORS.md").read_text(encoding="utf-8")


def rows(heading):
    """Return the cells of the first table below a heading, without its head."""
    lines = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return table[2:]


def test_how_long_a_lesson_takes_is_said_of_every_lesson():
    named = [row[0] for row in rows("How long each lesson takes")]
    assert named == [each.number for each in course.LESSONS]


def test_check_points_name_every_lesson():
    assert [row[0] for row in rows("Check-points")] == [
        each.number for each in course.LESSONS if each.number != "00"
    ]


def test_settings_of_the_hub_are_python_and_yaml():
    found = re.findall(r"```(python|yaml)\n(.*?)```", TEXT, flags=re.S)
    for kind, text in found:
        ast.parse(text) if kind == "python" else yaml.safe_load(text)
    blocks = dict(reversed(found))  # the first of each kind
    assert {"singleuser", "prePuller", "cull"} <= set(yaml.safe_load(blocks["yaml"]))
    for name in ("cull_idle_timeout", "cull_interval", "cull_connected"):
        assert name in blocks["python"] and name in blocks["yaml"]
