"""helpers.devices, and helpers.host below it."""

import os
import sys
import types

import pytest
import torch

from helpers import devices, host

pytestmark = pytest.mark.gpu

BUILD_13_2 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
BUILD_12_6 = ("sm_50", "sm_60", "sm_70", "sm_80", "sm_86", "sm_90")


def card(name, capability, **known):
    """Return what torch.cuda.get_device_properties gives for a card."""
    major, minor = map(int, capability.split("."))
    return types.SimpleNamespace(name=name, major=major, minor=minor, **known)


# bytes of memory, multiprocessors, clock of the memory in kHz, width of its bus in bits
H200 = card(
    "NVIDIA H200",
    "9.0",
    total_memory=150_000_000_000,
    multi_processor_count=132,
    L2_cache_size=62_914_560,
    memory_clock_rate=3_201_000,
    memory_bus_width=6144,
)
T4 = card(
    "Tesla T4",
    "7.5",
    total_memory=15_800_000_000,
    multi_processor_count=40,
    memory_clock_rate=5_001_000,
    memory_bus_width=256,
)
P100 = card("Tesla P100", "6.0", total_memory=17_000_000_000, multi_processor_count=56)


@pytest.fixture
def machine(monkeypatch):
    """Gives a function that makes torch report some CUDA devices, MPS or XPU."""

    def pretend(cuda=(), mps=False, xpu=0, architectures=BUILD_13_2, rocm=None):
        def known(device):
            return cuda[torch.device(device).index]

        for module, count in ((torch.cuda, len(cuda)), (torch.mps, int(mps)), (torch.xpu, xpu)):
            monkeypatch.setattr(module, "is_available", lambda n=count: n > 0, raising=False)
            monkeypatch.setattr(module, "device_count", lambda n=count: n)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(architectures))
        monkeypatch.setattr(torch.cuda, "get_device_properties", known)
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda d: (known(d).major, known(d).minor)
        )
        monkeypatch.setattr(torch.version, "hip", rocm)

    return pretend


@pytest.mark.parametrize(
    "here, expected",
    [
        ({}, "cpu"),
        ({"cuda": (H200,)}, "cuda:0"),
        ({"cuda": (T4, H200), "mps": True, "xpu": 1}, "cuda:0"),
        ({"mps": True, "xpu": 1}, "mps:0"),
        ({"xpu": 2}, "xpu:0"),
        ({"cuda": (P100,), "rocm": "7.0", "architectures": ("gfx90a",)}, "cuda:0"),
        ({"cuda": (P100,), "architectures": ()}, "cuda:0"),
    ],
)
def test_auto_takes_the_best(machine, here, expected):
    machine(**here)
    assert devices.pick_device() == torch.device(expected)


def test_auto_passes_over_a_gpu_without_code(machine):
    machine(cuda=(P100, T4))
    with pytest.warns(UserWarning, match="cuda:0 has compute capability 6.0"):
        assert devices.pick_device() == torch.device("cuda:1")
    assert devices.pick_device("cuda:0") == torch.device("cuda:0")  # asked for by name: given


@pytest.mark.parametrize("prefer, expected", [("cpu:0", "cpu"), ("cuda", "cuda:0")])
def test_preferred_device(machine, prefer, expected):
    machine(cuda=(T4, T4))
    assert devices.pick_device(prefer) == torch.device(expected)
    assert devices.pick_device(torch.device("cuda", 1)) == torch.device("cuda:1")


@pytest.mark.parametrize("prefer", ["cuda:2", "gpu", "mps", "cuda:x", "", "cpu:1"])
def test_unknown_device_lists_what_is_there(machine, prefer):
    machine(cuda=(T4, T4))
    with pytest.raises(ValueError, match="prefer is .*this machine has: cuda:0, cuda:1, cpu"):
        devices.pick_device(prefer)


def test_describe_gpu(machine):
    machine(cuda=(T4, H200))
    known = devices.describe("cuda:1")
    assert (known["name"], known["kind"], known["device"]) == ("NVIDIA H200", "cuda", "cuda:1")
    assert (known["capability"], known["generation"]) == ("9.0", "Hopper")
    assert known["memory_bytes"] == 150_000_000_000 and known["l2_bytes"] == 62_914_560
    # NVIDIA's data sheets: H200 4.8 TB/s, T4 320 GB/s
    assert known["bandwidth_bytes_per_s"] == pytest.approx(4.8e12, rel=0.03)
    assert devices.describe("cuda:0")["bandwidth_bytes_per_s"] == pytest.approx(320e9, rel=0.01)


def test_describe_says_none_for_what_is_unknown(machine):
    machine(cuda=(P100,))
    known = devices.describe("cuda")
    assert known["bandwidth_bytes_per_s"] is None and known["l2_bytes"] is None
    machine(cuda=(P100,), rocm="7.0")
    known = devices.describe("cuda")
    assert known["kind"] == "rocm" and known["capability"] is None and known["generation"] is None


def test_describe_cpu():
    known = devices.describe("cpu")
    assert known["kind"] == "cpu" and known["name"] and known["generation"] is None
    if sys.platform == "linux":
        pages = next(line for line in open("/proc/meminfo") if line.startswith("MemTotal"))
        assert 0 < known["memory_bytes"] <= int(pages.split()[1]) * 1024
        assert known["multiprocessors"] == len(os.sched_getaffinity(0))
    assert all(value is None or isinstance(value, (str, int, float)) for value in known.values())
    with pytest.raises(ValueError, match="device is 'cuda:99'"):
        devices.describe("cuda:99")


@pytest.mark.parametrize("device", ["gpu", "cuda:9", "meta"])
def test_synchronize_names_a_device_that_is_not_here(machine, monkeypatch, device):
    def fails(device=None):
        raise RuntimeError("no such device")

    machine(cuda=(T4,))
    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    monkeypatch.setattr(torch.mps, "synchronize", fails)
    with pytest.raises(ValueError, match=f"device is '{device}'; this machine has: cuda:0, cpu"):
        devices.synchronize(device)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_synchronize_asks_that_device(machine, monkeypatch, kind):
    machine(cuda=(T4, T4), xpu=2)
    asked = []
    monkeypatch.setattr(getattr(torch, kind), "synchronize", asked.append)
    devices.synchronize(f"{kind}:1")
    assert asked == [torch.device(f"{kind}:1")]


@pytest.mark.parametrize(
    "capability, build, runs",
    [
        ((6, 0), BUILD_13_2, False),
        ((8, 9), BUILD_13_2, True),
        ((8, 7), ("sm_89",), False),
        ((9, 0), ("sm_80", "sm_86"), False),
        ((12, 0), BUILD_12_6, False),
        ((12, 0), (*BUILD_12_6, "compute_90"), True),
        ((8, 6), ("compute_90",), False),
        ((9, 0), ("sm_90a",), True),
        ((10, 3), ("sm_100a",), False),
        ((10, 3), ("sm_100f",), True),
        ((12, 0), ("compute_90a",), False),
        ((12, 0), ("compute_100f",), False),
        ((9, 0), ("gfx90a",), False),
    ],
)
def test_has_kernels(capability, build, runs):
    assert host.has_kernels(capability, build) is runs


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("2000\n", 2000), ("max\n", 16_000), ("", 16_000), ("9223372036854771712\n", 16_000)],
)
def test_memory_minds_the_limit_of_a_container(monkeypatch, limit, expected):
    machine = types.SimpleNamespace(total=16_000)
    monkeypatch.setattr("psutil.virtual_memory", lambda: machine)
    monkeypatch.setattr(host, "_read", lambda path: limit)
    assert host.memory_bytes() == expected
