"""Files are written whole or not at all, by one writer at a time."""

import multiprocessing
import os
import time

import pytest

from course import files
from course.checks import progress

posix = pytest.mark.skipif(os.name == "nt", reason="needs fork, kill and locks on folders")


def names(folder):
    """Return the names of everything in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes_come_back_as_they_were(tmp_path):
    for content in ("one\r\ntwo\né", b"\x00\xff", ""):
        files.write(tmp_path / "a [1].txt", content)
        read = (tmp_path / "a [1].txt").read_bytes()
        assert read == (content if isinstance(content, bytes) else content.encode())
    assert names(tmp_path) == ["a [1].txt"]


def test_a_block_that_raises_leaves_what_stood(tmp_path):
    files.write(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError), files.atomic_write(tmp_path / "a") as part:
        part.write_text("half")
        1 / 0  # noqa: B018 - on purpose
    assert (tmp_path / "a").read_text() == "old" and names(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path):
    """Progress lay in a synchronized folder; the first result cut the link, and the rest went elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere" / "real")
    for content in ("new", "newer"):
        files.write(tmp_path / "a", content)
        assert (tmp_path / "a").is_symlink()
        assert (tmp_path / "elsewhere" / "real").read_text() == content
    assert names(tmp_path / "elsewhere") == ["real"]


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_what_is_no_file_is_never_replaced(tmp_path):
    for place in ("/dev/null", tmp_path):
        with pytest.raises(OSError, match="not a file that can be replaced"):
            files.write(place, "x")
    assert not os.path.isfile("/dev/null")


def test_what_a_killed_process_left_is_removed_later(tmp_path):
    for name, age in (
        (".a.0123.part", 2 * files.ABANDONED),
        (".a.4567.part", 0),
        (".b.89.part", 2 * files.ABANDONED),
    ):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    files.write(tmp_path / "a", "")
    assert names(tmp_path) == [".a.4567.part", ".b.89.part", "a"]


def add(number):
    """In a process of its own: keep 20 results."""
    for i in range(20):
        progress.record(f"{number}.{i}", n=i)


@posix
def test_notebooks_that_run_at_once_lose_no_progress(home, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 120)  # a slow disk is not the question
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(add, range(4), chunksize=1)
    assert len(progress.load()) == 80


@posix
def test_another_writer_is_waited_for_but_not_forever(tmp_path):
    with files.locked(tmp_path) as alone, files.locked(tmp_path, patience=0.1) as too:
        assert alone and not too
    with files.locked(tmp_path, patience=600) as alone, files.locked(tmp_path / "none") as nowhere:
        assert alone and nowhere


def test_without_locks_it_goes_on(tmp_path, monkeypatch):
    """On a disk without locks progress is kept all the same."""
    monkeypatch.setattr(os, "open", lambda *what, **more: (_ for _ in ()).throw(OSError(5, "none")))
    with files.locked(tmp_path) as alone:
        assert alone


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(tmp_path):
    """`grade --out /proc/x.csv` blamed a file that nobody had named, ".x.csv.4d44afc27c75.part"."""
    path = tmp_path / "nowhere" / "x.csv"
    with pytest.raises(OSError) as told:
        files.write(path, "text")
    assert told.value.filename == str(path) and ".part" not in str(told.value)
