"""measurements.published: numbers of others, each with its source."""

import json

import pytest
from damage import DELETE, damaged

import measurements
from helpers import gpus
from measurements import sources

NAMES = measurements.published_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_published_file_says_where_its_numbers_are_from(name):
    """A figure prints this line: without it, the learner would have to believe us."""
    found = measurements.published(name)
    repository, date = found.source.split(", ", 1)
    assert repository.count("/") == 1
    assert found.provenance["read"].startswith("2026-")
    assert found.provenance["commit"] in found.url or found.provenance["commit"] == "issues"
    assert any(year in date for year in map(str, range(2018, 2027)))
    assert found.rows()


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_above_the_data_sheet_comes_with_an_explanation(name):
    """A learner who compares a figure with the data sheet must not find an impossible number."""
    found = measurements.published(name)
    sheets = {card.name: card for card in gpus.CARDS}
    for row in found.rows():
        card = sheets.get(found.devices[row["device"]]["card"])
        if card is None or row.get("note") or row.get("gpus", 1) > 1:
            continue
        best = dict(float32=card.fp32, tf32=card.tf32, float16=card.fp16, bfloat16=card.bf16)
        most = best.get(row.get("dtype"))
        if "tflop_per_s" in row and most is not None:
            assert row["tflop_per_s"] <= most, row
        if row.get("where") == "memory":
            assert row["gb_per_s"] <= card.bandwidth_gb_s, row


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


@pytest.mark.parametrize(
    "place, value, words",
    [
        (["provenance", "commit"], DELETE, "provenance.commit is missing"),
        (["provenance", "measured"], "", "provenance.measured is empty"),
        (["provenance", "url"], "github.com/x", "it takes https"),
        (["provenance", "trust"], "high", "it takes A, B or C"),
        (["provenance", "notes"], "x", "provenance.notes is no field"),
        (["devices", "T4"], {"kind": "gpu", "card": None}, "devices.T4 is"),
        (["schema"], 2, "schema is 2; this course reads 1"),
        (["sections"], DELETE, "it takes schema, provenance, devices and sections"),
        (["sections", "sort", 0, "device"], "T5", r"sort\[0\].device is 'T5'"),
        (["sections", "sort", 0, "time_ms"], -1.0, r"sort\[0\].time_ms is -1.0"),
        (["sections", "sort", 0, "time_ms"], float("nan"), "time_ms is nan"),
        (["sections", "sort", 0, "time_ms"], None, "null without a note"),
        (["sections", "sort", 0, "time"], 2.0, "time has no unit in its name"),
        (["sections", "sort", 0, "accuracy"], 96.0, "accuracy is 96.0"),
    ],
)
def test_a_published_file_that_does_not_fit_is_refused_by_name(place, value, words, tmp_path):
    provenance = dict.fromkeys(sources.PROVENANCE, "x")
    provenance |= {"url": "https://example.org", "trust": "A", "paths": ["x"]}
    data = {
        "schema": 1,
        "provenance": provenance,
        "devices": {"T4": {"kind": "cuda", "card": "T4"}},
        "sections": {"sort": [{"device": "T4", "time_ms": 2.0}]},
    }
    file = tmp_path / "made_up.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    assert sources.read(file).rows("sort")
    file.write_text(json.dumps(damaged(data, place, value)), encoding="utf-8")
    with pytest.raises(ValueError, match=words) as caught:
        sources.read(file)
    assert str(caught.value).startswith("made_up.json: ")
