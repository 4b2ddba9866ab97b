"""Progress survives restarts and damage, and needs no writable disk."""
import pytest

from helpers.exercises import progress


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(progress, "_memory", {})
    return tmp_path / "home"


def test_entries_are_merged_and_read_back(home):
    assert progress.load() == {}
    assert progress.record("a", status="correct")
    assert progress.record("a", hints=2)
    assert progress.load() == {"a": {"status": "correct", "hints": 2}}
    assert [f.name for f in home.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file_costs_only_itself(home, damage):
    progress.record("a", n=1)
    (home / "progress.json").write_bytes(damage)
    assert progress.load() == {}
    assert (home / "progress.damaged.json").read_bytes() == damage
    assert progress.record("b", n=2)
    assert progress.load() == {"b": {"n": 2}}


def test_a_folder_that_cannot_be_written_keeps_progress_in_memory(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path / "file" / "below"))
    assert progress.record("a", n=1) is False
    assert progress.load() == {"a": {"n": 1}}


def test_only_json_values_are_taken():
    with pytest.raises(TypeError):
        progress.record("a", bad=object())


def test_forget():
    progress.record("a", n=1)
    progress.forget()
    assert progress.load() == {}
