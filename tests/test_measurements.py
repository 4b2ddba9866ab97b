"""measurements: facts of real devices, read with a clear error for a file that does not fit."""

import copy
import json
import math
import subprocess
import sys

import pytest
from damage import DELETE, damaged

from course import measurements
from course.measurements import reader
from course.tools import ROOT, record
from practice_gpus.cards import get_card

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
    "command": "python3 -m course record --out x.json",
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
    """A recording with one row or two a section, worked out by hand; of no real device."""
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


# --- recordings


def test_a_recording_gives_its_rows_and_says_which_machine_it_is_of(tmp_path):
    assert set(example()["sections"]) == set(reader.sections())
    recording = measurements.load(saved(example(), tmp_path))
    assert recording.label == "Made-up GPU, 2026-01-02"
    assert recording.label_of("cpu") == "Made-up CPU, 4 cores, 2026-01-02"
    assert [row["device_kind"] for row in recording.rows("matmul")] == ["cuda", "cpu"]
    assert [row["size"] for row in recording.rows("matmul", device="cpu")] == [100]
    for arguments in (["matmull"], ["matmul", "cuda:1"]):
        with pytest.raises(ValueError, match=f"is '{arguments[-1]}'; there are"):
            recording.rows(*arguments)


@pytest.mark.parametrize("load, busy", [(None, False), (1.9, False), (2.1, True)])
def test_a_cpu_measured_while_others_used_it_says_so(load, busy, tmp_path):
    data = example()
    data["provenance"]["load_average"] = load
    recording = measurements.load(saved(data, tmp_path))
    assert ("(busy)" in recording.label_of("cpu")) is busy
    assert "busy" not in recording.label


BROKEN = [  # where, new value, words of the error
    ("schema", 4, "schema: 3 was expected"),
    ("devices", {}, "devices: .*should be non-empty"),
    ("sections matmull", [], "'matmull' was unexpected"),
    ("provenance cores", -4, r"provenance\.cores: -4 is less than the minimum"),
    ("sections matmul 1 time_ms", -2.0, r"matmul\[1\]\.time_ms: -2\.0 is less than"),
    ("sections matmul 0 time_ms", math.nan, "NaN is no number of JSON"),
    ("sections matmul 0 time_s", 2e-3, r"matmul\[0\]: .*'time_s' was unexpected"),
    ("sections matmul 0 size", DELETE, r"matmul\[0\]: 'size' is a required property"),
    ("sections matmul 0 device", "cuda:1", r"device is 'cuda:1'; devices has cuda:0, cpu"),
]


@pytest.mark.parametrize("where, value, words", BROKEN, ids=str)
def test_a_broken_recording_is_refused_by_file_and_field(where, value, words, tmp_path):
    keys = [int(key) if key.isdigit() else key for key in where.split()]
    with pytest.raises(ValueError, match=r"^made_up\.json: .*" + words):
        measurements.load(saved(damaged(example(), keys, value), tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 10**5])
def test_what_is_no_recording_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"^x\.json: "):
        measurements.load(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match="no such file"):
        measurements.load(tmp_path / "y.json")


def test_checking_a_recording_reads_no_grammar_of_addresses():
    """A lesson's first figure would wait 1.5 s for a check that no schema here asks for."""
    code = "import sys; from course import measurements as m; m.recordings(); "
    code += "assert not {'lark', 'rfc3987_syntax'} & set(sys.modules)"  # nor is it barred later
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_recordings_come_gpus_first(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "RECORDINGS", tmp_path)
    assert measurements.recordings() == []
    data = example()
    saved(data, tmp_path, "z.json")
    del data["devices"]["cuda:0"]
    saved(data | {"sections": {}}, tmp_path, "a.json")
    assert [each.path.name for each in measurements.recordings()] == ["z.json", "a.json"]


FOLLOWS = {  # a rate follows from the time beside it
    "matmul": lambda row: (row["tflop_per_s"], 2 * row["size"] ** 3 / row["time_ms"] / 1e9),
    "copies": lambda row: (row["gb_per_s"], row["bytes"] / row["time_ms"] / 1e6),
    "bandwidth": lambda row: (row["gb_per_s"], row["bytes"] / row["time_ms"] / 1e6),
    "training": lambda row: (row["images_per_s"], 1e3 * row["batch"] / row["time_ms"]),
}


@pytest.mark.parametrize("path", sorted(reader.RECORDINGS.glob("*.json")), ids=lambda p: p.name)
def test_committed_recordings_are_whole_and_unedited(path):
    """A learner compares with them: a number in another unit, or one that nobody measured, would mislead."""
    recording = measurements.load(path)
    assert recording.provenance["complete"] and not recording.provenance["quick"]
    assert not recording.provenance["code"].endswith("-dirty")
    text = path.read_text(encoding="utf-8")
    assert record.as_text(json.loads(text)) == text, "only the record command writes recordings"
    for section, rows in recording.sections.items():
        for row in rows:
            rate, expected = FOLLOWS[section](row)
            assert rate == pytest.approx(expected, rel=0.01), row


# --- published numbers


@pytest.mark.parametrize("name", measurements.published_names())
def test_a_published_file_fits_its_schema_and_names_its_source(name):
    """A figure prints the source: without it, the learner would have to believe us."""
    text = (reader.PUBLISHED / f"{name}.json").read_text(encoding="utf-8")
    measurements.check(json.loads(text), name, "published")
    source = measurements.published(name)
    repository, date = source.source.split(", ", 1)
    assert repository.count("/") == 1
    assert source.provenance["commit"] in source.url or source.provenance["commit"] == "issues"
    assert any(year in date for year in map(str, range(2018, 2027)))
    assert source.rows()


def sheet(device):
    """The data sheet of a published device, None where there is none."""
    try:
        return get_card(device.get("card", ""))
    except ValueError:
        return None


@pytest.mark.parametrize("name", measurements.published_names())
def test_a_rate_above_the_data_sheet_comes_with_an_explanation(name):
    """A learner who compares a figure with the data sheet must not find an impossible number."""
    source = measurements.published(name)
    for row in source.rows():
        card = sheet(source.devices[row["device"]])
        if card is None or row.get("note") or row.get("gpus", 1) > 1:
            continue
        best = dict(float32=card.fp32, tf32=card.tf32, float16=card.fp16, bfloat16=card.bf16)
        most = best.get(row.get("dtype"))
        if "tflop_per_s" in row and most is not None:
            assert row["tflop_per_s"] <= most, row
        if row.get("where") == "memory":
            assert row["gb_per_s"] <= card.bandwidth, row


def test_rows_are_found_by_section_and_by_value():
    data = measurements.published("sort_v100")
    (row,) = data.rows("operations", operation="Sort", synchronized=True)
    assert row["time_ms"] == 2.48
    assert row["device_kind"] == "cuda"
    row["time_ms"] = 0  # a learner may change what came back
    assert data.rows(operation="Sort", synchronized=True)[0]["time_ms"] == 2.48


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: measurements.published("sort_v10"), "did you mean 'sort_v100'"),
        (lambda: measurements.published(7), "name is 7; there are "),
        (lambda: measurements.published("sort_v100").rows("sort"), "section is 'sort'; sort_v100"),
        (lambda: measurements.published("sort_v100").rows(size=1), "field 'size' is not in"),
    ],
)
def test_a_wrong_name_is_answered_with_those_there_are(call, words):
    with pytest.raises(ValueError, match=words):
        call()
