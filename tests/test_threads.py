"""helpers.threads: a busy neighbor, a container's quota and a person's own setting decide how many threads there are."""

import os
import subprocess
import sys

import pytest
import torch

from helpers import threads


@pytest.mark.parametrize(
    ("cores", "quota", "idle", "expected"),
    [
        (2, None, None, 2),
        (2, None, 2.0, 2),
        (2, None, 1.7, 2),  # a browser that draws now and then
        (2, None, 1.0, 1),
        (2, None, 0.0, 1),
        (8, None, 5.2, 5),
        (8, 2.0, None, 2),
        (8, 2.5, None, 2),
        (8, 0.5, None, 1),  # less than a core
        (8, 2.0, 7.9, 2),
        (1, None, 0.0, 1),
    ],
)
def test_no_more_threads_than_cores_that_are_free(cores, quota, idle, expected):
    choice = threads.choose(cores, quota, idle)
    assert choice.threads == expected
    assert choice.why.endswith(".")


@pytest.fixture
def cgroup(tmp_path):
    """Return a function that writes control groups ({path: text}) and the process's own, and returns what is found."""

    def found(own, files):
        for name, text in files.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "own").write_text(own)
        return threads.quota(tmp_path / "cgroup", tmp_path / "own")

    return found


V1 = {"cpu,cpuacct/x/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n", "a/cpu.max": "max 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/of/the/host\n", {"cpu.max": "100000 100000\n"}, 1.0),
        ("4:cpu,cpuacct:/x\n3:memory:/x\n", V1, 2.0),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "nonsense 100000"}, None),
    ],
)
def test_the_quota_of_a_container(cgroup, own, files, cores):
    assert cgroup(own, files) == cores


def test_a_persons_own_setting_wins():
    mine = {"GOMP_SPINCOUNT": "7", "OMP_NUM_THREADS": "3"}
    assert threads.variables(mine) == {"KMP_BLOCKTIME": "1"}


def test_a_containers_quota_reaches_new_processes(monkeypatch):
    monkeypatch.setattr(threads, "quota", lambda: 1.0)
    monkeypatch.setattr(threads, "cpu_cores", lambda: 8)
    assert threads.variables({})["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("idle", "storing", "words"),
    [(2.0, False, ""), (1.1, False, ""), (0.1, False, "slow here"), (0.1, True, "")],
)
def test_calm_leaves_busy_cores_and_says_when_the_lesson_is_slow(
    idle, storing, words, monkeypatch, capsys
):
    """Nothing is said while outputs are stored or compared: another run would not say it."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv(threads.STORING, raising=False)
    if storing:
        monkeypatch.setenv(threads.STORING, "1")
    monkeypatch.setattr(threads, "cpu_cores", lambda: 2)
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setattr(threads, "idle_cores", lambda: idle)
    try:
        assert threads.calm().threads == torch.get_num_threads() == max(1, int(idle))
    finally:
        torch.set_num_threads(before)
    said = capsys.readouterr().out
    assert words in said and bool(said) == bool(words)


@pytest.mark.parametrize("value", ["3", "0", "many"])
def test_calm_leaves_the_number_of_threads_to_who_set_it(value):
    code = (
        "import torch; before = torch.get_num_threads(); from helpers.threads import calm;"
        "print(calm().why, torch.get_num_threads() == before)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "OMP_NUM_THREADS is set. True", done.stderr


def test_the_doctor_hears_of_threads_that_fight(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setattr(threads, "_step_ms", lambda count: 30.0 if count == 2 else 2.0)
    assert "15 times as long" in threads.complaint() and "GOMP_SPINCOUNT" in threads.complaint()
    monkeypatch.setattr(threads, "_step_ms", lambda count: 1.1 if count == 2 else 2.0)
    assert threads.complaint() == ""


def test_the_doctor_hears_of_more_threads_than_the_container_may_use(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(threads, "quota", lambda: 1.5)
    assert "may use 1.5 cores: set OMP_NUM_THREADS=1" in threads.complaint()
