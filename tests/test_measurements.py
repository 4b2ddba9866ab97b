"""measurements: the check of files, the reader, and the command that writes them."""

import copy
import json
import math

import pytest
import torch
from damage import DELETE, damaged

import measurements
from helpers.__main__ import main
from measurements import measure, networks, recorder, rows, schema
from measurements.climb import Climb

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")


TIME = {"time_ms": 2.0, "time_iqr_ms": 0.1}
CARD = {
    "name": "Made-up CPU",
    "kind": "cpu",
    "memory_bytes": 2**33,
    "multiprocessors": 4,
    **dict.fromkeys(["capability", "l2_bytes", "bandwidth_bytes_per_s", "generation"]),
    "blas_workspace_bytes": None,
}
PROVENANCE = {
    "date": "2026-01-02T03:04:05Z",
    "code": "abc1234",
    "command": "helpers record --out x.json",
    "python": "3.12.0",
    "torch": "2.13.0",
    **dict.fromkeys(["cuda", "rocm", "cudnn", "nccl", "driver"]),
    "system": "Linux x86_64",
    "cpu": "Made-up CPU",
    "cores": 4,
    "load_average": 0.1,
    "quick": False,
    "complete": True,
    "done": [],
}
NET = {"network": "SmallCNN", "images_per_s": 32000.0, "peak_bytes": None}
ROWS = {
    "matmul": [
        {"size": 1000, "dtype": "float32", **TIME, "tflop_per_s": 1.0},
        {"device": "cpu", "size": 100, "dtype": "float32", **TIME, "tflop_per_s": 0.001},
    ],
    "copies": [{"bytes": 10**6, "direction": "h2d", "pinned": True, **TIME, "gb_per_s": 0.5}],
    "bandwidth": [{"operation": "copy", "bytes": 3 * 10**6, **TIME, "gb_per_s": 1.5}],
    "training": [{**NET, "batch": 64, **TIME, "precision": "float32"}],
}


def example():
    """Return a recording with one row or two a section, worked out by hand; of no real device."""
    gpu = {**CARD, "name": "Made-up GPU", "kind": "cuda", "capability": "9.9"}
    sections = {
        section: [{"device": "cuda:0", **row} for row in given] for section, given in ROWS.items()
    }
    devices = {"cuda:0": {**gpu, "bandwidth_bytes_per_s": 1e12}, "cpu": CARD}
    whole = {"schema": 3, "provenance": PROVENANCE, "devices": devices, "sections": sections}
    return copy.deepcopy(whole)


def saved(data, folder, name="made_up.json"):
    (folder / name).write_text(json.dumps(data), encoding="utf-8")
    return folder / name


def test_example_covers_every_section_and_loads(tmp_path):
    assert set(example()["sections"]) == set(rows.SECTIONS)
    found = measurements.load(saved(example(), tmp_path))
    assert found.label == "Made-up GPU, 2026-01-02"
    assert found.label_of("cpu") == "Made-up CPU, 4 cores, 2026-01-02"
    assert [row["device_kind"] for row in found.rows("matmul")] == ["cuda", "cpu"]
    assert [row["size"] for row in found.rows("matmul", device="cpu")] == [100]
    sizes = {
        label: [row["size"] for row in rows] for label, rows in found.by_device("matmul").items()
    }
    assert sizes == {found.label: [1000], found.label_of("cpu"): [100]}
    assert list(found.by_device("copies")) == [found.label]


@pytest.mark.parametrize("load, busy", [(None, False), (1.9, False), (2.1, True)])
def test_a_cpu_measured_while_others_used_it_says_so(load, busy, tmp_path):
    data = example()
    data["provenance"]["load_average"] = load
    found = measurements.load(saved(data, tmp_path))
    assert found.busy is busy
    assert ("(busy)" in found.label_of("cpu")) is busy
    assert "busy" not in found.label


BROKEN = [  # where, new value, words of the error
    ("schema", 4, r"schema is 4; this copy reads 3"),
    ("schema", DELETE, "schema is None"),
    ("notes", "x", "notes is no field here"),
    ("provenance", DELETE, "provenance is missing"),
    ("devices", {}, "devices is empty"),
    ("sections", [], r"sections is \[\]"),
    ("sections matmul", {}, r"sections\.matmul is {}"),
    ("sections matmull", [], r"sections\.matmull is no section"),
    ("provenance torch", None, r"provenance\.torch is None; it takes a text"),
    ("provenance complete", 1, r"provenance\.complete is 1; it takes true or false"),
    ("provenance cores", -4, r"provenance\.cores is -4"),
    ("devices cpu name", "", r"devices\.cpu\.name is ''"),
    ("devices cpu memory_bytes", 1.5, r"devices\.cpu\.memory_bytes is 1\.5; .* or null"),
    (
        "sections matmul 1 time_ms",
        -2.0,
        r"matmul\[1\]\.time_ms is -2\.0; it takes a number above 0",
    ),
    ("sections matmul 1 time_ms", "2.0", r"sections\.matmul\[1\]\.time_ms is '2\.0'"),
    ("sections matmul 0 time_ms", math.nan, r"matmul\[0\]\.time_ms is nan"),
    ("sections matmul 0 time_ms", True, r"matmul\[0\]\.time_ms is True"),
    ("sections matmul 0 time_s", 2e-3, r"matmul\[0\]\.time_s is no field here; .*time_ms"),
    ("sections matmul 0 size", DELETE, r"matmul\[0\]\.size is missing"),
    ("sections matmul 0 size", 1000.0, r"size is 1000\.0; it takes a whole number"),
    ("sections matmul 0 device", "cuda:1", r"device is 'cuda:1'; devices has cuda:0, cpu"),
    (
        "sections matmul 0 tflop_per_s",
        1000.0,
        r"tflop_per_s is 1000\.0; .* it is 1: .* another unit",
    ),
    ("sections copies 0 bytes", 10**3, r"copies\[0\]\.gb_per_s is 0\.5; .*another unit"),
    ("sections copies 0 pinned", "yes", r"pinned is 'yes'; it takes true or false"),
    ("sections training 0 time_ms", 0.002, r"training\[0\]\.images_per_s is 32000\.0"),
    ("sections training 0", [1, 2], r"training\[0\] is \[1, 2\]; it takes an object"),
]


@pytest.mark.parametrize("where, value, words", BROKEN, ids=str)
def test_a_broken_field_is_refused_by_name(where, value, words, tmp_path):
    keys = [int(key) if key.isdigit() else key for key in where.split()]
    with pytest.raises(ValueError, match=r"^made_up\.json: .*" + words):
        measurements.load(saved(damaged(example(), keys, value), tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 1', b"\xff\xfe", b"[]", b"null"])
def test_what_is_no_recording_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"^x\.json: "):
        measurements.load(tmp_path / "x.json")


def test_all_reads_the_folder_gpus_first(tmp_path, monkeypatch):
    monkeypatch.setattr(measurements, "FOLDER", tmp_path)
    assert measurements.all() == []
    data = example()
    saved(data, tmp_path, "z.json")
    del data["devices"]["cuda:0"]
    data["sections"] = {}
    saved(data, tmp_path, "a.json")
    assert [found.path.name for found in measurements.all()] == ["z.json", "a.json"]


@pytest.mark.parametrize(
    "path", sorted(measurements.FOLDER.glob("*.json")), ids=lambda path: path.name
)
def test_committed_recordings_are_whole_unedited_and_small(path):
    found = measurements.load(path)
    assert found.provenance["complete"] and not found.provenance["quick"]
    assert not found.provenance["code"].endswith("-dirty")
    assert "helpers record" in found.provenance["command"]
    text = path.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert recorder._text(json.loads(text)) == text, "only the record command writes recordings"
    assert {"matmul", "training", "bandwidth"} <= {
        name for name, each in found.sections.items() if each
    }


def bandwidths(n):
    return [{**ROWS["bandwidth"][0], "operation": f"way {i}"} for i in range(n)]


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
    monkeypatch.setattr(recorder, "gather_facts", lambda: type("Facts", (), {"driver": None}))


def test_an_interrupted_recording_keeps_finished_parts_and_goes_on(tmp_path, quiet):
    path, parts = tmp_path / "x.json", Parts()
    with pytest.raises(KeyboardInterrupt):
        recorder.record(path, "cpu", parts=parts)
    kept = measurements.load(path)
    assert len(kept.rows("bandwidth")) == 2
    assert not kept.rows("matmul")
    assert not kept.provenance["complete"]
    found = recorder.record(path, "cpu", parts=parts)
    assert parts.calls == ["bandwidth", "matmul", "matmul"]
    assert found.provenance["complete"]
    assert len(found.rows("bandwidth")) == 2
    assert len(found.rows("matmul")) == 1
    assert found.provenance["date"] == kept.provenance["date"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_a_finished_file_and_one_of_another_machine_stay_as_they_are(tmp_path, quiet, monkeypatch):
    path = tmp_path / "x.json"
    recorder.record(path, "cpu", parts=Parts(interrupt=False))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="a finished recording"):
        recorder.record(path, "cpu", parts=Parts())
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        recorder.record(path, "cpu", parts=Parts())
    before = path.read_bytes()
    monkeypatch.setattr(recorder, "cpu_name", lambda: "another CPU")
    with pytest.raises(ValueError, match="begun with another cpu"):
        recorder.record(path, "cpu", parts=Parts())
    assert path.read_bytes() == before


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    recorder.write(example(), path)
    before = path.read_bytes()
    broken = example()
    broken["sections"]["bandwidth"][0]["time_ms"] = -1
    with pytest.raises(ValueError, match=r"bandwidth\[0\]\.time_ms"):
        recorder.write(broken, path)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(recorder.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        recorder.write(example(), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_provenance_keeps_the_command_without_folders(quiet, monkeypatch):
    words = ["x", "record", "--out=/home/me/a.json", "/home/me/b.json", "C:\\me\\c.json", "--quick"]
    monkeypatch.setattr(recorder.sys, "argv", words)
    assert (
        recorder.provenance(True)["command"]
        == "python3 -m tools record --out=a.json b.json c.json --quick"
    )


def test_a_gpu_is_the_current_one_while_it_is_measured(tmp_path, quiet, imitated):
    seen = []

    def part(device, quick):
        seen.append((str(device), torch.cuda.current_device() if device.type == "cuda" else None))
        return ()

    with imitated(n=2):
        recorder.record(tmp_path / "a.json", "cuda:1", quick=True, parts={"bandwidth": part})
        assert torch.cuda.current_device() == 0
    assert seen == [("cuda:1", 1), ("cpu", None)]


@pytest.fixture
def hasty(monkeypatch):
    """One sample a measurement, one size a series."""
    from helpers.timing import Timing

    timing = Timing(2.0, 0.0, (2.0,), 1, "cpu")
    monkeypatch.setattr(measure, "limit_ms", lambda quick: 0)
    monkeypatch.setattr(measure, "time_ms", lambda fn, *_, **__: (fn(), timing)[1])


def fits(section, measured, device="cpu"):
    data = example()
    data["sections"] = {section: [{"device": device, **row} for row in measured]}
    schema.check(data, "here")
    return data["sections"][section]


@pytest.mark.parametrize("part", recorder.PARTS)
def test_every_part_gives_rows_that_fit(part, hasty):
    assert fits(part, recorder.PARTS[part](CPU, True)) or part == "copies"


@pytest.mark.parametrize("part", recorder.PARTS)
def test_parts_run_through_their_cuda_branches_on_practice_gpus(part, hasty, monkeypatch):
    """What such a device gives is no measurement; that the rows fit and name both directions and formats is tested."""
    from practice_gpus import practice_gpus

    tiny = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    monkeypatch.setattr(networks, "networks", lambda device: {"tiny": lambda: copy.deepcopy(tiny)})
    with practice_gpus(n=1, memory="2 GiB"):
        formats = measure.formats(torch.device("cuda:0"))
        found = fits(part, recorder.PARTS[part](torch.device("cuda:0"), True), "cuda:0")
    seen = {key: {row.get(key) for row in found} for key in ("direction", "pinned", "dtype")}
    wanted = {
        "copies": {"direction": {"h2d", "d2h"}, "pinned": {True, False}},
        "matmul": {"dtype": set(formats)},
    }
    assert found
    assert all(seen[key] == values for key, values in wanted.get(part, {}).items())
    if part == "training":
        assert all(row["peak_bytes"] > 0 for row in found)


@pytest.mark.parametrize("capability, there", [((7, 0), False), ((7, 5), False), ((8, 0), True)])
def test_only_cards_that_have_tf32_get_rows_of_it(capability, there, monkeypatch):
    """A V100 would show its float32 rate twice, once under a wrong name."""
    from helpers import gpus

    known = gpus.tensor_cores(capability)
    monkeypatch.setattr(measure, "describe", lambda device: {"kind": "cuda"})
    monkeypatch.setattr(measure, "features", lambda device: known)
    assert ("tf32" in measure.formats(torch.device("cuda:0"))) is there


class Clock:
    """Seconds that pass only when a step takes them."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def climb(monkeypatch):
    """A Climb on a clock of its own: make_step(seconds) is a change whose step takes so long."""
    clock = Clock()
    monkeypatch.setattr("measurements.climb.time", clock)
    monkeypatch.setattr("measurements.climb.peak_bytes", lambda step, device: 2**20)
    accuracies = {}
    made = Climb(torch.nn.Linear(2, 2), [], CPU, passes=1, seconds=0.1)
    monkeypatch.setattr(
        "measurements.climb.evaluate", lambda model, *_: accuracies.get(made.name, 0.9)
    )

    def run(name, seconds, accuracy=0.9):
        made.name = name
        accuracies[name] = accuracy

        def step(x, y):
            clock.now += next(seconds) if hasattr(seconds, "__next__") else seconds
            return torch.zeros(())

        batches = [(torch.zeros(10, 2), torch.zeros(10))] * 8
        return made(name, lambda model: step, lambda: batches)

    run.climb = made
    return run


def test_a_change_stays_when_it_is_faster_and_as_accurate(climb, capsys):
    assert climb("baseline", 0.02)["kept"]
    fast = climb("faster", 0.01)
    assert fast["ratio"] == pytest.approx(2)
    assert fast["images_per_s"] == pytest.approx(1000)
    assert fast["kept"]
    assert not climb("slower", 0.03)["kept"]
    assert not climb("wrong", 0.005, accuracy=0.88)["kept"]
    assert climb("nearly as accurate", 0.005, accuracy=0.895)["kept"]
    assert climb.climb.best["name"] == "nearly as accurate"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "baseline: 500 images/s, 90.0% right, 1.0 MiB"
    assert lines[1].endswith("2.00 × baseline, faster in 11 of 11: kept")
    assert lines[2].endswith("0.33 × faster, faster in 0 of 11: not kept")


def test_a_change_that_cannot_be_told_apart_does_not_stay(climb):
    """Timing noise must not add a rung."""
    climb("baseline", 0.02)
    uneven = iter([0.01, 0.03] * 10_000)
    assert not climb("noise", uneven)["kept"]


def test_a_cell_that_runs_again_replaces_its_row(climb):
    """A learner runs a cell twice: its change must not be compared with itself."""
    climb("baseline", 0.02)
    climb("change", 0.01)
    again = climb("change", 0.01)
    assert [row["name"] for row in climb.climb.rows] == ["baseline", "change"]
    assert again["ratio"] == pytest.approx(2)


def test_each_change_starts_from_the_same_weights():
    model = torch.nn.Linear(3072, 10)
    batch = [(torch.rand(8, 3072), torch.zeros(8, dtype=torch.int64))] * 2
    seen = []

    def make_step(model):
        seen.append(model.weight.detach().clone())
        adam = torch.optim.Adam(model.parameters(), 0.1)
        return lambda x, y: networks.train_step(model, x, y, adam)

    climb = Climb(model, batch, CPU, passes=1, seconds=0.001)
    climb("one", make_step, lambda: batch)
    climb("two", make_step, lambda: batch)
    assert torch.equal(*seen)
    assert climb.rows[0]["peak_bytes"] > 0


def test_tf32_is_put_back():
    before = torch.backends.cuda.matmul.fp32_precision
    with pytest.raises(ZeroDivisionError), measure.tf32(True):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        1 / 0  # noqa: B018
    assert torch.backends.cuda.matmul.fp32_precision == before


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
    assert main(["record", *arguments]) == 2
    assert words in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_the_command_measures_says_where_and_survives_being_stopped(
    tmp_path, quiet, monkeypatch, capsys
):
    monkeypatch.setattr(recorder.record, "__defaults__", (None, False, Parts()))
    arguments = ["record", "--out", str(tmp_path / "x.json"), "--device", "cpu", "--quick"]
    assert main(arguments) == 130
    assert "goes on from there" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "3 rows" in capsys.readouterr().out
    assert measurements.load(tmp_path / "x.json").provenance["quick"]


def test_a_series_ends_where_it_takes_long_and_where_memory_is_full():
    def measured(device, size, quick):
        if size == 64:
            raise torch.OutOfMemoryError("full")
        return {"time_ms": float(size)}

    def times(*sizes):
        return [row["time_ms"] for row in measure.growing(measured, sizes, CPU, True)]

    assert times(4, 64, 8) == [4] and times(4, 32, 8) == [4, 32]
