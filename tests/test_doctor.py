"""The doctor: course.doctor.facts, course.doctor.probe, course.doctor.diagnosis, course.doctor and its command."""

import argparse
import dataclasses
import io
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from course.checks import codes
from course.doctor import (
    Device,
    Facts,
    Verdict,
    diagnose,
    diagnosis,
    doctor,
    gather_facts,
    probe,
    report,
)
from course.doctor import facts as facts_module
from course.tools import ROOT
from course.tools import doctor as command

pytestmark = pytest.mark.gpu

BUILD = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
START = "CUDA initialization: "
NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
TOO_OLD = START + "The NVIDIA driver on your system is too old (found version 12080). Please update"
ERROR = (
    START + "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions? Error "
)
NO_KERNEL = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
T4 = Device("cuda:0", "Tesla T4", (7, 5), 15_800_000_000)
P100 = Device("cuda:0", "Tesla P100-PCIE-16GB", (6, 0), 17_000_000_000, NO_KERNEL)
K80 = Device("cuda:0", "Tesla K80", (3, 7), 0, NO_KERNEL)
RTX = Device("cuda:0", "NVIDIA GeForce RTX 5090", (12, 0), 32_000_000_000, "some CUDA error")
ALSO_T4 = dataclasses.replace(T4, device="cuda:1")
APPLE = Device("mps:0", "Apple GPU")
CPU = {"torch": "2.13.0+cpu", "cuda_build": None}
WINDOWS = {"system": "Windows", **CPU}
MAC = {"system": "Darwin", "cuda_build": None, "mps_built": True}
ROCM = {"rocm_build": "7.0", "cuda_build": None}


def nvidia(*names, driver="580.95.05", **more):
    """Return the facts of a machine whose driver lists these GPUs."""
    known = {"driver": driver, "gpus": names or ("Tesla T4",), "cards": 1, "architectures": BUILD}
    return {**known, **more}


def case(code, fix, **facts):
    """Return the facts of a machine, the code of its verdict, and what the fix must say."""
    return Facts(**facts), code, fix


def failing(error):
    """Return the facts of a machine with a T4 that is listed and fails."""
    return nvidia(devices=(dataclasses.replace(T4, error=error),))


def torchless(error, **more):
    """Return the facts of a machine on which PyTorch does not import."""
    return {"torch": None, "torch_error": error, **more}


TWO = nvidia("P100", "Tesla T4", devices=(P100, ALSO_T4))
HALF = {"driver": "580.95.05", "cards": 1, "smi_error": MISMATCH}
MACHINES = [
    # works
    case("all_well", "Nothing to fix", **nvidia(cuda_available=True, devices=(T4,))),
    case("all_well", "Nothing to fix", **nvidia("T4", "T4", visible="1", devices=(T4,))),
    case("rocm", "Nothing to fix", **ROCM, devices=(Device("cuda:0", "AMD Instinct MI300X"),)),
    case("mps", "Nothing to fix", **MAC, devices=(APPLE,)),
    case("xpu", "Nothing", cuda_build=None, xpu_build="1", devices=(Device("xpu:0", "Intel Arc"),)),
    # a GPU that is listed but fails
    case("architecture", "/whl/cu126", **nvidia("P100", devices=(P100,))),
    case("architecture", "GPU T4 x2", **nvidia("P100", devices=(P100,), host="kaggle")),
    case("architecture", "/whl/cu130", **nvidia("RTX", devices=(RTX,), architectures=("sm_80",))),
    case("architecture", "too old for PyTorch", **nvidia("K80", devices=(K80,))),
    case("gpu_fails", "Restart the computer", **failing("CUDA error: unspecified")),
    case("gpu_fails", "macOS", **MAC, devices=(dataclasses.replace(APPLE, error="crash"),)),
    case("gpu_busy", "Shut down other notebooks", **failing("CUDA out of memory.")),
    case("gpu_busy", "Shut down", **failing("all CUDA-capable devices are busy or unavailable")),
    case("some_gpus_fail", "CUDA_VISIBLE_DEVICES=1.", **TWO),
    case("some_gpus_fail", "CUDA_VISIBLE_DEVICES=3.", **TWO, visible="2,3"),
    # PyTorch itself
    case("torch_missing", "lab.py", **torchless("No module named 'torch'")),
    case("torch_broken", "--force-reinstall torch", **torchless("ImportError: libcudart.so.13")),
    case("torch_broken", "Rename", **torchless("module 'torch' has no attribute '__version__'")),
    case("torch_broken", "Visual C++", **torchless("[WinError 126] c10.dll", system="Windows")),
    case("no_answer", "Restart", **torchless("no answer within 60 seconds", torch_hangs=True)),
    case(
        "cpu_build", "https://download.pytorch.org/whl/cu130", **nvidia(driver="581.4"), **WINDOWS
    ),
    case("cpu_build", "/whl/cu126", **nvidia(driver="560.94"), **WINDOWS),
    case("cpu_build", "/whl/cu130", **CPU, cards=2),
    case("cpu_build_no_gpu", "Nothing to repair", **WINDOWS),
    case("cpu_build_no_gpu", "Nothing to repair", **CPU, cards=8, container=True),
    case("no_gpu", "Nothing to repair", **MAC),
    case("no_gpu", "Nothing to repair", **MAC | {"mps_built": False}),
    # the driver
    case("no_driver", "Install the NVIDIA driver", cards=1, cuda_error=NO_DRIVER),
    case("no_driver", "If this machine has", system="Windows", cuda_error=NO_DRIVER),
    case("no_driver", "in Windows (not inside WSL)", wsl=True, cuda_error=NO_DRIVER),
    case("no_driver", "Install the NVIDIA driver", cards=1, smi_error=FAILED),
    case("no_driver", "Install", visible="-1", cards=1, cuda_error=NO_DRIVER),
    case("driver_too_old", "580 or later", **nvidia(driver="570.133.20"), cuda_error=TOO_OLD),
    case("driver_too_old", "525 or later", **nvidia(driver="470.256.02"), cuda_build="12.8"),
    case("driver_too_old", "Update", **nvidia(), cuda_error=ERROR + "804: forward compatibility"),
    case("driver_too_old", "in Windows", **nvidia(driver="570.1", wsl=True), cuda_error=TOO_OLD),
    case("driver_mismatch", "Restart", **nvidia(), cuda_error=ERROR + "803: unsupported driver"),
    case("driver_mismatch", "Restart", **HALF),
    case("initialization_failed", "Restart", **nvidia(), cuda_error=START + "CUDA unknown error"),
    case("initialization_failed", "Restart", **nvidia(visible="0"), cuda_error=ERROR + "999"),
    # out of sight
    case("hidden", "Unset CUDA_VISIBLE_DEVICES", **nvidia(visible="")),
    case("hidden", "Unset", **nvidia("T4", "T4"), visible="2"),
    case("hidden", "Unset", **nvidia(visible="-1"), host="colab"),
    case("colab_without_gpu", "T4 GPU", host="colab", container=True, cuda_error=NO_DRIVER),
    case("colab_without_gpu", "T4 GPU", host="colab", **CPU),
    case("kaggle_without_gpu", "Accelerator → GPU T4 x2", host="kaggle", cuda_error=NO_DRIVER),
    case("binder_without_gpu", "Colab", host="binder", **CPU, container=True),
    case("container_without_gpu", "--gpus all", container=True, cards=4, cuda_error=NO_DRIVER),
    case("container_without_gpu", "--gpus all", container=True, cards=None, driver="580.95.05"),
    # nothing there
    case("no_gpu", "Nothing to repair", cards=0, container=True, cuda_error=NO_DRIVER),
    case("no_gpu", "plugged in", driver="580.95.05", cards=0),
    case("no_gpu", "plugged in", smi_error="No devices were found"),
    case("no_gpu", "rocm.docs.amd.com", **ROCM),
]


@pytest.mark.parametrize(
    "facts, code, fix", MACHINES, ids=[f"{i}-{m[1]}" for i, m in enumerate(MACHINES)]
)
def test_diagnose(facts, code, fix):
    verdict = diagnose(facts)
    assert verdict.code == code and fix in verdict.fix, verdict
    assert verdict.summary.endswith(".") and verdict.cause
    assert "\n" not in verdict.summary + verdict.cause + verdict.fix
    assert verdict.summary in report(facts, verdict) and verdict.fix in report(facts, verdict)


@pytest.mark.parametrize(
    "facts, words",
    [
        (nvidia("T4", "T4", visible="1", devices=(T4,)), "1 of 2 GPUs are visible"),
        (nvidia(driver="570.133.20", cuda_error=TOO_OLD), "CUDA up to 12.8"),
        ({"architectures": BUILD, "devices": (P100,)}, "compute capability 6.0"),
        (nvidia("T4", "T4", visible="2"), "'2'"),
    ],
)
def test_the_cause_names_what_was_found(facts, words):
    assert words in diagnose(Facts(**facts)).cause


# --- facts of this machine --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def here():
    return gather_facts()


def test_facts_agree_with_this_process(here):
    assert here.torch == torch.__version__
    assert here.cuda_build == torch.version.cuda
    assert here.problems == ()
    assert here.cuda_available == torch.cuda.is_available()
    assert list(here.architectures) == torch.cuda.get_arch_list()
    assert sum(each.device.startswith("cuda") for each in here.devices) == torch.cuda.device_count()
    assert all(each.error == "" for each in here.devices)


@pytest.fixture
def child_says(monkeypatch):
    """Give a function that says what the child of the probe prints, and returns what is then known."""

    def facts(stdout="", status=0, stderr="", **answers):
        said = stdout or f"{probe.MARK}{json.dumps(answers)}\n"
        done = subprocess.CompletedProcess([], status, said, stderr)
        monkeypatch.setattr(facts_module, "_run", lambda command, timeout: done)
        return gather_facts()

    return facts


def test_doctor_with_odd_cuda_visible_devices_and_a_console_without_arrows():
    odd = {"CUDA_VISIBLE_DEVICES": "text", "PYTHONIOENCODING": "ascii"}
    line = [sys.executable, "-c", "from course.doctor import doctor; doctor()"]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **odd}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    codes = r"hidden|no_\w+|cpu_build\w*|mps|container_without_gpu"
    assert re.search(rf"^Verdict   .+ \[({codes})\]$", done.stdout, re.M)


SMI = "580.95.05, Tesla T4\n580.95.05, NVIDIA L4, 24 GB\n"
BOTH = ("Tesla T4", "NVIDIA L4, 24 GB")


@pytest.mark.parametrize(
    ("stdout", "status", "gpus", "error"),
    [
        (SMI, 0, BOTH, ""),
        ("Unable to determine the device handle for GPU2\n" + SMI, 0, BOTH, ""),
        ("No devices were found\n", 6, (), "No devices were found"),
        (f"{FAILED}\n", 9, (), FAILED),
        ("", 127, (), "exit status 127"),
    ],
)
def test_facts_from_nvidia_smi(monkeypatch, stdout, status, gpus, error):
    done = subprocess.CompletedProcess([], status, stdout, "")
    monkeypatch.setattr(facts_module, "_nvidia_smi", lambda: "nvidia-smi")
    monkeypatch.setattr(facts_module, "_run", lambda command, timeout: done)
    found = Facts(**facts_module.find_driver())
    assert (found.gpus, found.smi_error) == (gpus, error)
    assert found.driver == "580.95.05" or not gpus


def test_host_and_settings(monkeypatch):
    hosts = {"COLAB_RELEASE_TAG": "colab", "KAGGLE_KERNEL_RUN_TYPE": "kaggle"}
    for variable in (*hosts, "BINDER_SERVICE_HOST", "BINDER_LAUNCH_HOST", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    asked = facts_module._ask_system()
    assert asked["host"] == "" and asked["visible"] is None
    for variable, host in hosts.items():  # Kaggle's beside Colab's, as on Kaggle
        monkeypatch.setenv(variable, "x")
        assert facts_module._ask_system()["host"] == host


def test_facts_from_the_child(child_says):
    device = {"device": "cuda:0", "name": "T4", "capability": [7, 5], "memory_bytes": 1}
    found = child_says(torch="2.13.0", architectures=["sm_75"], devices=[device])
    assert found.devices == (Device("cuda:0", "T4", (7, 5), 1),)
    assert found.architectures == ("sm_75",)
    assert child_says(torch_error="ImportError: broken").torch is None
    crashed = child_says("some output\n", -11, "Segmentation fault")
    assert "exit status -11: Segmentation fault" in crashed.torch_error
    assert diagnose(crashed).code == "torch_broken"


@pytest.fixture
def other_python(monkeypatch):
    """Give a function that lets another Python answer in place of the probe's: its options, or its code."""

    def start(*options):
        run = facts_module._run
        change = [sys.executable, *options]
        monkeypatch.setattr(facts_module, "_run", lambda line, limit: run(change + line[1:], limit))

    return start


def test_a_pytorch_that_hangs_is_left_behind(monkeypatch, other_python):
    other_python("-c", "import time; time.sleep(60)")
    monkeypatch.setattr(facts_module, "TIMEOUT", 0.5)
    told = {"torch_error": "no answer within 0.5 seconds", "torch_hangs": True}
    assert facts_module._ask_torch() == told


@pytest.mark.parametrize("content, words", [("", "Rename"), ("raise SystemExit(1)", "SystemExit")])
def test_a_file_called_torch(tmp_path, monkeypatch, content, words):
    (tmp_path / "torch.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    verdict = diagnose(gather_facts())
    assert verdict.code == "torch_broken" and words in verdict.cause + verdict.fix


def test_without_torch(other_python):
    other_python("-S")
    assert diagnose(gather_facts()).code == "torch_missing"


@pytest.mark.parametrize(
    "source",
    ["_ask_system", "_ask_container", "find_driver", "_ask_cards", "_ask_torch"],
)
def test_a_failing_source_is_told_and_costs_only_its_facts(monkeypatch, child_says, capsys, source):
    child_says(torch="2.13.0", cuda_build="13.0")

    def fail(*args):
        raise RuntimeError(f"{source} is broken")

    monkeypatch.setattr(facts_module, source, fail)
    assert isinstance(doctor(), Verdict)
    assert f"Unknown   RuntimeError: {source} is broken" in capsys.readouterr().out


# --- the probe, on a torch that is made up ----------------------------------------------------------------------------


def test_probe_sees_a_wrong_result(monkeypatch):
    honest = torch.Tensor.__matmul__

    def wrong(a, b):
        return honest(a, b) + a.is_floating_point() * torch.eye(64)

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    assert probe.compute(torch, "cpu").startswith("wrong result: 64 of 4096")


def test_doctor_needs_no_torch_in_its_process():
    code = """import sys
sys.modules.update(dict.fromkeys(["torch", "numpy", "matplotlib"]))  # importing one of them fails
import course.tools.doctor
from course.doctor import Facts, diagnose, report
print(report(Facts(), diagnose(Facts())))"""
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert "Verdict" in done.stdout, done.stderr


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """Give a function that puts a machine of certain facts in the place of this one."""
    monkeypatch.setattr(command, "_imports", lambda name: True)
    return lambda **facts: monkeypatch.setattr(command, "gather_facts", lambda: Facts(**facts))


def call(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def code_of(facts, problems=()):
    fields = command.room_fields(facts, diagnose(facts), list(problems))
    return codes.encode(command.MARK, fields)


def test_command_reports(machine, capsys):
    machine(cards=0)
    assert call() == 0 and "[no_gpu]" in capsys.readouterr().out
    machine(**torchless("ImportError: x"))
    assert call() == 1 and "[torch_broken]" in capsys.readouterr().out


def test_room_code_travels(machine, capsys):
    machine(architectures=BUILD, devices=(T4,))
    assert call("--room") == 0
    summary, code_line = capsys.readouterr().out.splitlines()
    code = code_line.removeprefix("Send this code: ")
    assert " " not in code and len(code) < 130 and "Tesla T4" in summary
    told = dict(zip(command.FIELDS, command.decode(code), strict=True))
    assert (told["verdict"], told["device"], told["memory GB"]) == ("all_well", "Tesla T4", "16")
    assert told["packages"] == "ok" and int(told["free disk GB"]) >= 0 and told["torch"] == "2.13.0"


def test_a_forged_code_gives_the_terminal_no_orders(capsys):
    fields = ["no_gpu", "2.15.0", "\x1b[2J\x1b]0;owned\x07", "16", "50", "ok"]
    assert call("--collect", codes.encode(command.MARK, fields)) == 0
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err and "\x07" not in told.out + told.err


def test_collect(capsys):
    good = [code_of(Facts(devices=(T4,)))] * 2 + [code_of(Facts(cards=0), ["ipywidgets-missing"])]
    assert call("--collect", *good) == 0
    out = capsys.readouterr().out
    assert "2 × all_well, 1 × no_gpu" in out and "attend to 3: packages ipywidgets-missing" in out
    assert "attend to 1" not in out and out.splitlines()[0].split()[0] == "verdict"


def test_collect_names_bad_codes(capsys, monkeypatch):
    good = code_of(Facts(devices=(T4,)))
    assert call("--collect", good, good[:-1], "hello") == 1
    told = capsys.readouterr()
    assert "1 × all_well" in told.out
    assert [line.partition(":")[0] for line in told.err.splitlines()] == ["code 2", "code 3"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{good}\n\n{good}\n"))
    assert call("--collect") == 0 and "2 × all_well" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert call("--collect") == 1 and "no codes" in capsys.readouterr().err


def test_package_problems(monkeypatch, here):
    monkeypatch.setattr(command, "_imports", lambda name: True)
    assert command.package_problems(here) == [], "where the tests run, nothing is missing"
    monkeypatch.setattr(command, "_imports", lambda name: False)
    old = {"torch": "2.10.1+cpu", "ipywidgets": None, "matplotlib": "3.10.0"}
    monkeypatch.setattr(command, "_installed", lambda name: old.get(name, "99.0"))
    problems = ["torch-2.10.1+cpu", "ipywidgets-missing", "torchvision-broken"]
    assert command.package_problems(Facts()) == problems


def test_threads_that_fight_are_told():
    told = report(Facts(threads="2 threads take 15 times as long as one."), diagnose(Facts()))
    assert told.endswith("Threads   2 threads take 15 times as long as one.")
    assert "Threads" not in report(Facts(), diagnose(Facts()))


def test_install_command():
    assert diagnosis.install_command("Windows", "581.42").endswith("/whl/cu130")
    assert diagnosis.install_command("Windows", "560.94").endswith("/whl/cu126")
    assert diagnosis.install_command("Linux", "580.95", (6, 1)).endswith("/whl/cu126")
    assert diagnosis.install_command("Linux", None, (12, 0)).endswith("/whl/cu130")
    assert "index-url" not in diagnosis.install_command("Darwin")
    assert diagnosis.driver_needed("13.2") == 580 and diagnosis.driver_needed(None) is None
