"""The table of notebook 90: every name in it exists, every call of it runs where its device is."""

import sys

import pytest
import torch

from helpers import cheatsheet, course
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file for torch.load."""
    path = tmp_path_factory.mktemp("files") / "x.pt"
    torch.save(torch.ones(2), path)
    return path


def test_every_name_of_the_table_exists_in_this_pytorch():
    rows = [row for group in cheatsheet.groups().values() for row in group]
    calls = [getattr(row, kind) for row in rows for kind in cheatsheet.KINDS]
    names = set().union(*map(cheatsheet.names, calls))
    assert len(names) > 90 and [name for name in names if not cheatsheet.exists(name)] == []
    assert {row.lesson for row in rows} <= {lesson.number for lesson in course.NOTEBOOKS}


def test_the_calls_for_the_cpu_run(path):
    ran, failed = cheatsheet.execute("cpu", "cpu", path)
    assert ran >= 20 and failed == {}


@pytest.mark.parametrize("kind", ["cuda", "accelerator"])
def test_the_calls_for_cuda_run_on_two_gpus_real_or_simulated(path, kind):
    with practice_gpus(2) as gpus:
        skip = () if gpus.real else cheatsheet.NOT_ON_PRACTICE
        ran, failed = cheatsheet.execute(kind, "cuda", path, skip)
    assert ran >= 30 and failed == {}


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_the_calls_for_other_devices_run_where_they_are(path, kind):
    if not getattr(torch, kind).is_available():
        pytest.skip(f"needs {kind}")
    skip = ("torch.xpu.can_device_access_peer",) if torch.xpu.device_count() < 2 else ()
    assert cheatsheet.execute(kind, kind, path, skip)[1] == {}


def test_settings_that_calls_change_are_put_back(path):
    cuda = torch.cuda
    with practice_gpus(2) as gpus:
        cuda.set_per_process_memory_fraction(0.75)
        skip = () if gpus.real else cheatsheet.NOT_ON_PRACTICE
        cheatsheet.execute("cuda", "cuda", path, skip)
        left = cuda.get_per_process_memory_fraction(), cuda.get_sync_debug_mode()
        cuda.set_per_process_memory_fraction(1.0)
    assert left == (0.75, 0) and not torch.are_deterministic_algorithms_enabled()


def test_a_precision_set_by_the_newer_attribute_is_put_back(path):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert cheatsheet.execute("cpu", "cpu", path)[1] == {}
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
    assert torch.get_float32_matmul_precision() == "highest"


def test_tables_have_a_row_for_each_task_and_a_column_for_each_kind(capsys, monkeypatch):
    for group, rows in cheatsheet.groups().items():
        lines = cheatsheet.markdown(group).splitlines()
        assert len(lines) == len(rows) + 2 and {line.count("|") for line in lines} == {8}
    cheatsheet.show("wait")
    assert capsys.readouterr().out.strip() == cheatsheet.markdown("wait")
    monkeypatch.setitem(sys.modules, "IPython", None)
    cheatsheet.show("wait")
    assert capsys.readouterr().out.strip() == cheatsheet.markdown("wait")


def test_an_unknown_group_is_refused():
    with pytest.raises(ValueError, match="it takes one of"):
        cheatsheet.show("speed")
