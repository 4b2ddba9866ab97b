"""What a maintainer builds on: the summary of a test run, the form of --json, the action and the release workflow."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from practice_gpus import report, reports

FOLDER = Path(__file__).resolve().parents[1]
ROOT = FOLDER.parent
SCHEMA = Path(reports.__file__).with_name("report.schema.json")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
TESTS = """
    import pytest, torch
    def test_good(): assert torch.ones(2, device="cuda:1").is_cuda
    def test_graph(): torch.cuda.CUDAGraph()
    def test_expected():
        with pytest.raises(NotImplementedError): torch.cuda.CUDAGraph()
    def test_wrong(): torch.ones(2, device="cuda") + torch.ones(2)
    @pytest.mark.skip
    def test_left(): pass
"""


def test_the_summary_of_a_run_is_markdown_and_tells_refusals_from_failures(write, tmp_path):
    """A maintainer would search a log for what failed, and take a refusal for a bug of theirs."""
    write(TESTS, "test_it.py")
    write("import a_module_that_is_not_here", "test_other.py")
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    line = "-m pytest -q -p practice_gpus.plugin -p no:cacheprovider --practice-gpus 2"
    env = os.environ | {"PYTHONPATH": str(FOLDER / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["--continue-on-collection-errors", "--practice-gpus-summary", path]
    command = [sys.executable, *line.split(), *options]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == 1, done.stdout + done.stderr
    text = path.read_text(encoding="utf-8")
    assert text.startswith(
        "before\n### Tests on 2 practice GPUs: 2 passed, 2 failed, 1 error, 1 skipped\n"
    )
    assert "- `test_other.py`: ModuleNotFoundError" in text
    assert "- `test_it.py::test_wrong`: RuntimeError: Expected all tensors" in text
    assert "| torch.cuda.CUDAGraph | 1, `test_it.py::test_graph` |" in text
    assert "- `test_it.py::test_graph`" not in text
    command[-1] = tmp_path / "no_folder" / "summary.md"
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == 4 and "summary.md: No such file" in done.stderr, "before the tests"


def test_reports_have_the_form_that_the_schema_says(write, tmp_path):
    """A program that reads --json would break with the next version."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema = pytest.importorskip("jsonschema")
    text = """
        import torch
        model = torch.nn.Linear(8, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            loss = model(torch.ones(4, 8).cuda()).sum()
            loss.backward()
            optimizer.step()
            print(loss.item())
        model(torch.ones(4, 8))
    """
    path = tmp_path / "report.json"
    report(write(text)).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(content, schema)
    kinds = {each["kind"] for each in content["findings"]}
    assert kinds >= {"placement", "wait", "kept-gradients", "hard-coded"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"outcome": "well"}, schema)


def test_every_kind_of_finding_is_in_the_schema():
    """A program would meet a kind that its authors were never told of."""
    from practice_gpus.reports.habits import Habit

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    known = set(schema["properties"]["findings"]["items"]["properties"]["kind"]["enum"])
    folder = SCHEMA.parent
    code = (folder / "findings.py").read_text() + (folder / "static_analysis.py").read_text()
    named = set(re.findall(r"(?:finding|self\.note)\(\s*\"([\w-]+)\"", code))
    assert named | {habit.value for habit in Habit} <= known and len(named) >= 9


@pytest.mark.parametrize("part", ["Tests", "Report"])
def test_the_action_runs_what_it_says(write, tmp_path, part):
    """A maintainer's job would fail in our action, not in their code."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    assert action["runs"]["using"] == "composite" and all("shell" in s for s in steps.values())
    used = set(re.findall(r"inputs\.(\w+)", (FOLDER / "action.yml").read_text(encoding="utf-8")))
    assert used == set(action["inputs"])
    write(
        TESTS.replace("def test_wrong", "def wrong").replace("def test_graph", "def graph"),
        "test_it.py",
    )
    program = write("import torch\ntorch.ones(3, device='cuda:1')", "program.py")
    inputs = {name: each["default"] for name, each in action["inputs"].items()} | {"gpus": "2"}
    inputs |= {"program": program.name, "strict": "true"} if part == "Report" else {}
    given = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m[1]], words)
        for name, words in steps[part]["env"].items()
    }
    folder = Path(sys.executable).parent
    if not (folder / "python").exists():
        pytest.skip("no python of that name beside this one")
    summary = tmp_path / "summary.md"
    env = (
        os.environ
        | given
        | {"GITHUB_STEP_SUMMARY": str(summary), "PYTHONPATH": str(FOLDER / "src")}
    )
    env |= {"PATH": f"{folder}:{os.environ['PATH']}", "PYTEST_PLUGINS": "practice_gpus.plugin"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # also where the package is installed
    done = subprocess.run(
        ["bash", "-e", "-c", steps[part]["run"]],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert summary.exists(), done.stdout + done.stderr
    told = summary.read_text(encoding="utf-8")
    if part == "Tests":
        assert done.returncode == 0 and "2 passed, 1 skipped" in told, done.stdout + done.stderr
    else:
        assert done.returncode == 2 and "findings  1" in told, done.stdout + done.stderr


def test_the_release_publishes_without_a_secret():
    """A release would need a password, or carry another version than its tag."""
    yaml = pytest.importorskip("yaml")
    flow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    job = flow["jobs"]["pypi"]
    assert job["permissions"] == {"id-token": "write"} and job["environment"]["name"] == "pypi"
    assert job["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    check = next(
        s for s in flow["jobs"]["build"]["steps"] if s.get("name") == "The tag is the version"
    )
    from practice_gpus import __version__

    for tag, status in ((f"v{__version__}", 0), ("v9.9.9", 1)):
        env = os.environ | {"TAG": tag}
        assert subprocess.run(["bash", "-c", check["run"]], cwd=ROOT, env=env).returncode == status


def test_the_workflow_of_the_first_screen_has_nine_lines_and_names_inputs_that_exist():
    """A maintainer copies it as it stands."""
    yaml = pytest.importorskip("yaml")
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(.*?)```", readme, re.S)
    [job] = yaml.safe_load(text)["jobs"].values()
    action = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
    assert len(text.splitlines()) == 9 and readme[: readme.index(text)].count("\n") < 30
    assert set(job["steps"][-1]["with"]) <= set(action["inputs"])
