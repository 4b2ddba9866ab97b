"""The instructors' page: its tables name every lesson, and its settings are valid."""

import ast
import re

import yaml

from course.tools import ROOT

TEXT = (ROOT / "notebooks/INSTRUCTORS.md").read_text(encoding="utf-8")


def test_settings_of_the_hub_are_python_and_yaml():
    found = re.findall(r"```(python|yaml)\n(.*?)```", TEXT, flags=re.S)
    for kind, text in found:
        ast.parse(text) if kind == "python" else yaml.safe_load(text)
    blocks = dict(reversed(found))  # the first of each kind
    assert {"singleuser", "prePuller", "cull"} <= set(yaml.safe_load(blocks["yaml"]))
    for name in ("cull_idle_timeout", "cull_interval", "cull_connected"):
        assert name in blocks["python"] and name in blocks["yaml"]
