"""What the lessons measure and `record` writes: rows that fit, files that are whole."""

import copy
import sys

import pytest
import torch
from test_measurements import ROWS, example

from course import measurements
from course.__main__ import main
from course.measurements import measure
from course.tools import record

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")


def bandwidths(n):
    return [{**ROWS["bandwidth"][0], "bytes": 3 * 10**6 + i} for i in range(n)]


class Parts(dict):
    """Two parts in place of the real ones; the second stops the first time, as Ctrl+C does."""

    def __init__(self, interrupt=True):
        self.calls = []

        def first(device, quick):
            self.calls.append("bandwidth")
            yield from bandwidths(2)

        def second(device, quick):
            self.calls.append("matmul")
            yield {"size": 100, "dtype": "x", "time_ms": 2.0, "time_iqr_ms": 0, "tflop_per_s": 1e-3}
            if interrupt and self.calls.count("matmul") == 1:
                raise KeyboardInterrupt

        super().__init__(bandwidth=first, matmul=second)


@pytest.fixture
def quiet(monkeypatch):
    """Provenance without waiting for the doctor's facts."""
    monkeypatch.setattr(record, "gather_facts", lambda: type("Facts", (), {"driver": None}))


def test_an_interrupted_recording_keeps_finished_parts_and_goes_on(tmp_path, quiet):
    path, parts = tmp_path / "x.json", Parts()
    with pytest.raises(KeyboardInterrupt):
        record.record(path, "cpu", False, parts)
    kept = measurements.load(path)
    assert len(kept.rows("bandwidth")) == 2
    assert not kept.rows("matmul")
    assert not kept.provenance["complete"]
    found = record.record(path, "cpu", False, parts)
    assert parts.calls == ["bandwidth", "matmul", "matmul"]
    assert found.provenance["complete"]
    assert len(found.rows("bandwidth")) == 2
    assert len(found.rows("matmul")) == 1
    assert found.provenance["date"] == kept.provenance["date"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_a_finished_file_and_one_of_another_machine_stay_as_they_are(tmp_path, quiet, monkeypatch):
    path = tmp_path / "x.json"
    record.record(path, "cpu", False, Parts(interrupt=False))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="a finished recording"):
        record.record(path, "cpu", False, Parts())
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        record.record(path, "cpu", False, Parts())
    before = path.read_bytes()
    monkeypatch.setattr(record, "cpu_name", lambda: "another CPU")
    with pytest.raises(ValueError, match="begun with another cpu"):
        record.record(path, "cpu", False, Parts())
    assert path.read_bytes() == before


def test_provenance_keeps_the_command_without_folders(quiet, monkeypatch):
    words = ["x", "record", "--out=/home/me/a.json", "/home/me/b.json", "C:\\me\\c.json", "--quick"]
    monkeypatch.setattr(sys, "argv", words)
    assert (
        record.provenance(True)["command"]
        == "python3 -m course record --out=a.json b.json c.json --quick"
    )


@pytest.fixture
def hasty(monkeypatch):
    """One sample a measurement, one size a series."""
    from helpers.timing import Timing

    timing = Timing(2.0, 0.0, (2.0,), 1, "cpu")
    monkeypatch.setattr(record, "limit_ms", lambda quick: 0)
    monkeypatch.setattr(measure, "time_ms", lambda fn, *_, **__: (fn(), timing)[1])


def fits(section, measured, device="cpu"):
    data = example()
    data["sections"] = {section: [{"device": device, **row} for row in measured]}
    measurements.check(data, "here")
    return data["sections"][section]


@pytest.mark.parametrize("part", record.PARTS)
def test_every_part_gives_rows_that_fit(part, hasty):
    assert fits(part, record.PARTS[part](CPU, True)) or part == "copies"


@pytest.mark.parametrize("part", record.PARTS)
def test_parts_run_through_their_cuda_branches_on_practice_gpus(part, hasty, monkeypatch):
    """What such a device gives is no measurement; that the rows fit and name both directions and formats is tested."""
    from practice_gpus import practice_gpus

    tiny = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    monkeypatch.setattr(measure, "NETWORKS", {"tiny": lambda: copy.deepcopy(tiny)})
    with practice_gpus(n=1, memory="2 GiB"):
        formats = measure.formats(torch.device("cuda:0"))
        found = fits(part, record.PARTS[part](torch.device("cuda:0"), True), "cuda:0")
    seen = {key: {row.get(key) for row in found} for key in ("direction", "pinned", "dtype")}
    wanted = {
        "copies": {"direction": {"h2d", "d2h"}, "pinned": {True, False}},
        "matmul": {"dtype": set(formats)},
    }
    assert found
    assert all(seen[key] == values for key, values in wanted.get(part, {}).items())
    if part == "training":
        assert all(row["peak_bytes"] > 0 for row in found)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--out", "missing_folder/x.json"], "missing_folder"),
        (["--out", "."], "takes a file"),
        (["--out", "x.json", "--device", "cuda:99"], "cuda:99"),
    ],
)
def test_the_command_names_what_is_wrong(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["record", *arguments])
    except SystemExit as error:  # argparse ends the program, in one line
        status = error.code
    assert status == 2
    assert words in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_the_command_measures_says_where_and_survives_being_stopped(
    tmp_path, quiet, monkeypatch, capsys
):
    monkeypatch.setattr(record, "PARTS", Parts())
    arguments = ["record", "--out", str(tmp_path / "x.json"), "--device", "cpu", "--quick"]
    assert main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "3 rows" in capsys.readouterr().out
    assert measurements.load(tmp_path / "x.json").provenance["quick"]
