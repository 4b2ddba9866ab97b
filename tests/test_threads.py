"""course.threads: free cores, a container's quota and a person's own setting decide how many threads there are."""

import pytest
import torch

from course import threads


@pytest.mark.parametrize(
    ("cores", "limit", "expected"),
    [(1, None, 1), (2, None, 1), (8, None, 7), (8, 2.0, 2), (8, 2.5, 2), (8, 0.5, 1), (2, 2.0, 1)],
)
def test_one_core_stays_free_and_a_container_s_share_is_kept(cores, limit, expected):
    """Beside one busy program a step would else take several times as long."""
    assert threads.fitting(cores, limit) == expected


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


def test_processes_get_short_spins_and_threads_that_fit(monkeypatch):
    monkeypatch.setattr(threads, "quota", lambda: 1.0)
    monkeypatch.setattr(threads, "cpu_cores", lambda: 8)
    assert threads.variables({}) == {**threads.SPIN, "OMP_NUM_THREADS": "1"}


def test_the_doctor_hears_of_threads_that_fight(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setattr(threads, "_step_ms", lambda count: 30.0 if count == 2 else 2.0)
    assert "15 times as long" in threads.complaint() and "GOMP_SPINCOUNT" in threads.complaint()
    monkeypatch.setattr(threads, "_step_ms", lambda count: 1.1 if count == 2 else 2.0)
    assert threads.complaint() == ""
