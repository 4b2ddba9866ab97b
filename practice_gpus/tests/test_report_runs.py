"""The report is printed however a program ends, its exit status is the program's, and it can be installed alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.optim import optimizer

from practice_gpus import practice_gpus, report
from practice_gpus.reports import recorder

FOLDER = Path(__file__).resolve().parents[1]
SOURCE = FOLDER / "src"
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
TRAIN = """
    import torch
    model = torch.nn.Linear(8, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        model(torch.ones(4, 8, device=torch.device("cuda", 0))).sum().backward()
        optimizer.step()
"""


def start(folder, *command, **options):
    """Start ``python -m practice_gpus`` with arguments."""
    line = [sys.executable, "-m", "practice_gpus", *map(str, command)]
    places = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(SOURCE)}, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
    return subprocess.Popen(line, **places, **pipes, **options)


def run(path, *options, given="", arguments=()):
    """Run a program under the report: (exit status, what it printed, what the report says)."""
    process = start(path.parent, *options, path, *arguments)
    out, err = process.communicate(given, timeout=240)
    return process.returncode, out, err


def test_arguments_input_threads_and_workers_are_as_without_the_report(write):
    """A user's program would read nothing, lose its arguments, or be reported before its threads are done."""
    text = """
        import sys, threading, time, torch
        from torch.utils.data import DataLoader, TensorDataset
        def later():
            time.sleep(0.5)
            torch.ones(1000, device="cuda:1")
        if __name__ == "__main__":
            threading.Thread(target=later).start()
            data = TensorDataset(torch.ones(8, 3))
            rows = sum(len(x.cuda()) for (x,) in DataLoader(data, batch_size=2, num_workers=1))
            print(sys.argv[1:], input(), rows)
    """
    code, out, err = run(write(text), "-n", "2", given="typed\n", arguments=["--deep", "x y"])
    assert (code, out) == (0, "['--deep', 'x y'] typed 8\n"), err
    assert "program.py on 2 practice GPUs" in err and "4 ×" in err
    assert "cuda:1    peak 4 KiB at program.py:6" in err, "the thread's tensor is missing"


def test_a_long_training_ends_after_the_steps_asked_for_and_strict_fails_it(write, tmp_path):
    """A user would wait for hours, or CI would let a finding pass."""
    path = tmp_path / "report.json"
    code, _, err = run(write(TRAIN), "--steps", "3", "--strict", "--json", path)
    assert code == 2 and "ended after the steps that were asked for, 3 training steps" in err
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["steps"] == 3 and stored["devices"][0]["peak"] > 0
    assert [each["kind"] for each in stored["findings"]] == ["hard-coded"]


@pytest.mark.slow
def test_failed_exited_and_missing_programs_have_status_1(write, tmp_path):
    """CI would take a broken program for a sound one."""
    code, _, err = run(write(TRAIN + "    raise KeyError('lost')"))
    assert code == 1 and "KeyError: 'lost'" in err and "failed, 6 training steps" in err
    assert "practice_gpus" not in err.partition("──")[0], "frames that are not the program's"
    code, _, err = run(write("import sys, torch; torch.ones(3).cuda(); sys.exit('no data')"))
    assert code == 1 and err.startswith("no data\n") and "peak 512 B" in err
    process = start(tmp_path, "nowhere.py")
    assert "there is no file nowhere.py" in process.communicate()[1] and process.returncode == 1


ENDS = {
    "raise KeyError('lost')": ("failed", 1, "KeyError: 'lost'"),
    "import sys; sys.exit('no data')": ("failed", 1, "no data"),
    "raise KeyboardInterrupt": ("interrupted", 130, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_report_stands_however_a_program_ends(write, capsys, end):
    """CI would take a broken program for a sound one; who stops a long run wants to know what it did so far."""
    outcome, status, words = ENDS[end]
    done = report(write(f"{TRAIN}    {end}\n"))
    assert (done.outcome, done.status(strict=False)) == (outcome, status)
    assert words in capsys.readouterr().err and "6 training steps" in repr(done)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")
@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_an_interrupted_program_is_reported(write, sent, status):
    """Who stops a long run wants to know what it did so far."""
    path = write(TRAIN + "    print('now', flush=True)\n    import time; time.sleep(60)")
    process = start(path.parent, path)
    assert process.stdout.readline() == "now\n"
    time.sleep(0.2)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status and "6 training steps" in err and "cuda:0" in err


@pytest.mark.slow
def test_processes_that_a_program_starts_are_in_its_report(write):
    """With torchrun or spawn all the work is in child processes: the report would be empty."""
    text = """
        import os, torch, torch.multiprocessing as mp
        import torch.distributed as dist
        def work(rank):
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29573"}
            dist.init_process_group("nccl", rank=rank, world_size=2)
            x = torch.ones(1000, device=f"cuda:{rank}")
            dist.all_reduce(x)
            print(x[0].item())
            dist.destroy_process_group()
        if __name__ == "__main__":
            os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
            mp.spawn(work, nprocs=2)
    """
    code, out, err = run(write(text), "-n", "2")
    assert (code, out.count("2.0")) == (0, 2), err  # lines of two processes may mix
    assert "cuda:0    peak 4 KiB" in err and "cuda:1    peak 4 KiB" in err
    assert "init_process_group with nccl (gloo instead) at program.py:6, 2 times" in err
    assert "on 2 practice GPUs" in err and "CUDA_VISIBLE_DEVICES is '0,1'" in err


def test_the_peak_is_that_of_the_counters_and_its_parts_add_up(write, capsys):
    """A user would buy the wrong card."""
    text = """
        import torch
        from torch import nn
        def main():
            model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 256)).cuda()
            optimizer = torch.optim.Adam(model.parameters())
            x = torch.rand(128, 1024).cuda()
            for step in range(3):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
        main()
        print(torch.cuda.max_memory_allocated())
    """
    done = report(write(text))
    [device] = done.facts["devices"]
    peak = int(capsys.readouterr().out)
    weights = 4 * (1024 * 4096 + 4096 + 4096 * 256 + 256)
    assert device["peak"] == peak == sum(device["parts"].values())
    assert device["parts"]["parameters"] == pytest.approx(weights, rel=0.01)
    assert device["parts"]["optimizer"] > 1.99 * weights, (
        "its two averages, and what it needs meanwhile"
    )
    assert device["at"][1] == 11 and "from 8 GB (RTX 4060)" in repr(done)
    assert device["tensors"] == 0, "all of it was given back"


def test_without_a_report_nothing_is_collected(monkeypatch):
    """Everybody's steps would pay for reports that nobody asked for."""
    monkeypatch.setattr(recorder, "origin", lambda: pytest.fail("a line was looked for"))
    with practice_gpus(1) as gpus:
        model = torch.nn.Linear(8, 2).cuda()
        torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(4, 8).cuda()).sum().backward()
        model.weight.grad.sum().item()
        assert gpus.machine.observers == []
        assert gpus.synchronizations == 4 and gpus.transfers["h2d"] == 3


def test_what_is_patched_for_a_report_is_put_back(write):
    """A notebook would pay, and count, for the rest of its life."""
    apply = torch.nn.Module._apply
    text = "import torch\ntorch.ones(3).cuda()\ntorch.eye(3).to_sparse().cuda()"
    assert report(write(text)).outcome == "done", "a copy that has no bytes of its own"
    assert torch.nn.Module._apply is apply
    assert not optimizer._global_optimizer_post_hooks
    assert "PRACTICE_GPUS_REPORT" not in os.environ
    with pytest.raises(FileNotFoundError, match="there is no file"):
        report("nowhere.py")


WITHOUT = pytest.param([], "3 passed, 3 skipped", marks=pytest.mark.slow)


@pytest.mark.parametrize("options, words", [WITHOUT, (["--practice-gpus", "1"], "6 passed")])
def test_plugin_gives_tests_their_gpus(write, tmp_path, options, words):
    """GPU tests would be skipped in CI, and device bugs found by users."""
    text = """
        import subprocess, sys
        import pytest, torch
        @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        def test_run():
            assert torch.cuda.device_count() == 1
        @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        def test_program():
            counts = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
            assert subprocess.check_output(counts) == b"1\\n"
        def test_early():
            from conftest import DEVICES
            if DEVICES == ["cpu"]:
                pytest.skip("no CUDA when the first conftest asked")
        @pytest.mark.practice_gpus(3, memory="8 GiB")
        def test_marked():
            assert torch.cuda.device_count() == 3
            assert torch.cuda.get_device_properties(0).total_memory == 2**33
        @pytest.fixture
        def gpus():
            return "the user's own"
        def test_fixture(practice_gpus, gpus):
            torch.ones(3).cuda()
            assert practice_gpus.synchronizations >= 1 and gpus == "the user's own"
        def test_left_behind(practice_gpus):
            with pytest.raises(RuntimeError, match="at least two devices"):
                torch.ones(3) + torch.ones(3, device="cuda")
    """
    write(text, "test_it.py")
    line = [sys.executable, *"-m pytest -q -p practice_gpus.plugin -p no:cacheprovider".split()]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # also where the package is installed
    env = os.environ | {"PYTHONPATH": str(SOURCE)} | alone
    line += options
    asks = "import torch\nDEVICES = ['cpu'] + torch.cuda.is_available() * ['cuda']"
    write(asks, "conftest.py")
    done = subprocess.run(line, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert words in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_folder_is_installed_alone(write, tmp_path):
    """Who wants it for their tests does not want the course; `verify` finds the situations in their own wheel."""
    pytest.importorskip("setuptools", minversion="77", reason="builds without a network")
    folder = shutil.copytree(FOLDER, tmp_path / "source")
    line = "-m pip install -q --no-deps --no-index --no-build-isolation --target out"
    command = [sys.executable, *line.split(), str(folder), str(folder / "situations")]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    [points] = (tmp_path / "out").glob("*.dist-info/entry_points.txt")
    assert "practice_gpus = practice_gpus.plugin" in points.read_text(encoding="utf-8")
    for part in SOURCE.rglob("*.py"):
        assert (tmp_path / "out" / part.relative_to(SOURCE)).exists(), f"{part} is not installed"
    assert (tmp_path / "out/practice_gpus/py.typed").exists()
    path = write(TRAIN)
    code = f"from practice_gpus import report, verify; print(report({str(path)!r}).facts['steps'])"
    code += "; assert len(verify.expected()) == len(verify.situations().SITUATIONS) > 600"
    env = os.environ | {"PYTHONPATH": str(tmp_path / "out")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.stdout == "6\n", done.stderr
