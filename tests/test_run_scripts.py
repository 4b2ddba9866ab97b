"""course.scripts: scripts run in child processes, which end when they should."""

import os
import re
import sys
import textwrap
import threading
import time

import psutil
import pytest

from course import scripts


@pytest.fixture
def script(tmp_path):
    def write(code, name="own.py"):
        file = tmp_path / name
        file.write_text(textwrap.dedent(code))
        return file

    return write


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Two folders as the course has them: a checkout's scripts and those of the installed package."""
    folders = tmp_path / "notebooks" / "scripts", tmp_path / "course" / "lesson_scripts"
    for folder, text in zip(folders, ("checkout", "package"), strict=True):
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(f"print('{text}')\n")
        (folder / "__init__.py").write_text("")
    (folders[1] / "ddp.py").write_text("print('ddp')\n")
    monkeypatch.setattr(scripts, "_CHECKOUT", folders[0])
    monkeypatch.setattr(scripts, "_PACKAGED", folders[1])
    return folders


def gone(pid):
    """True as soon as the process has ended, also where nobody waited for it; False after ten seconds."""
    try:
        process = psutil.Process(pid)
        end = time.monotonic() + 10
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.05)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_output_and_status_come_back(script, capsys):
    code = "import sys; print('out', sys.argv[1:]); print('err', file=sys.stderr); sys.exit(3)"
    file = script(code)
    done = scripts.run(file, "--name", "a b", 2)
    assert done.returncode == 3
    assert sorted(done.text.splitlines()) == ["err", "out ['--name', 'a b', '2']"]
    shown = capsys.readouterr().out
    assert shown == f"$ python {file.as_posix()} --name 'a b' 2\n" + done.text


def test_output_is_shown_as_it_comes(script, monkeypatch, tmp_path):
    """The script goes on only when its first line has been shown."""
    seen = tmp_path / "seen"
    file = script(f"""
        import pathlib, time
        print("first")
        while not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.01)
        print("second")
        """)
    monkeypatch.setattr("builtins.print", lambda *a, **k: "first" in a[0] and seen.touch())
    assert scripts.run(file, timeout=120).text == "first\nsecond\n"


def test_timeout_kills_all_that_was_started(script, monkeypatch):
    monkeypatch.setattr(scripts, "_GRACE", 1.0)
    monkeypatch.setenv("PATH", "")  # a slim container has no ps
    file = script("""
        import subprocess, sys, time
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        own_session = {} if sys.platform == "win32" else {"start_new_session": True}
        print(subprocess.Popen([sys.executable, "-c", stubborn], **own_session).pid)
        time.sleep(600)
        """)
    with pytest.raises(TimeoutError, match=r"longer than timeout=3 seconds.*\n\d+") as error:
        scripts.run(file, timeout=3, quiet=True)
    assert gone(int(str(error.value).split()[-1]))


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_interrupt_kills_the_script(script):
    file = script("import os, time; print(os.getpid()); time.sleep(600)")
    pids = []

    def show(text, **_):
        if str(text).strip().isdigit():
            pids.append(int(text))
            threading.Timer(0.1, lambda: os.kill(os.getpid(), 2)).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", show)
        with pytest.raises(KeyboardInterrupt):
            scripts.run(file, timeout=30)
    assert pids and not psutil.pid_exists(pids[0])


@pytest.mark.skipif(sys.platform == "win32", reason="uses POSIX sessions")
def test_a_leftover_process_does_not_hold_the_result(script, monkeypatch):
    monkeypatch.setattr(scripts, "_GRACE", 1.0)
    file = script("""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("done")
        """)
    done = scripts.run(file, timeout=60, quiet=True)
    assert done.text == "done\n" and done.returncode == 0


def test_each_line_is_told_while_the_script_runs(script, tmp_path):
    """Lesson 10's bar says which part its four processes are at."""
    file = script("""
        import pathlib, time
        print("begun", flush=True)
        while not pathlib.Path("heard").exists():
            time.sleep(0.05)
        print("done")
        """)
    lines = []

    def each_line(line):
        lines.append(line)
        (tmp_path / "heard").touch()  # the script waits for this

    scripts.run(file, timeout=60, quiet=True, cwd=tmp_path, each_line=each_line)
    assert lines == ["begun\n", "done\n"]


def test_torchrun_starts_processes_with_one_thread_each(script, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    file = script("""
        import os, sys
        sys.stdout.reconfigure(line_buffering=True, write_through=False)  # torchrun uses -u: lines would mix
        print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "threads", os.environ["OMP_NUM_THREADS"])
        """)
    done = scripts.run(file, processes=2, forked=False, timeout=120, quiet=True)
    assert done.returncode == 0
    ranks = sorted(line for line in done.text.splitlines() if line.startswith("rank"))
    assert ranks == ["rank 0 of 2 threads 1", "rank 1 of 2 threads 1"]


def test_the_line_shown_is_the_line_that_runs(course):
    train = course[0] / "train.py"
    line = scripts.shown([sys.executable, str(train), "--device", "cpu"])
    assert line == "$ python scripts/train.py --device cpu"
    line = scripts.shown([*scripts._launcher(2), str(train), "3"])
    options = "--standalone --nproc-per-node=2"
    assert line == f"$ torchrun {options} scripts/train.py 3"
    packaged = str(course[1] / "ddp.py")
    assert scripts.shown([sys.executable, packaged]) == f"$ python {packaged}"


def test_a_notebook_of_the_learners_runs_the_script_beside_it(course, tmp_path, monkeypatch):
    own = tmp_path / "my_notebooks" / "scripts"
    own.mkdir(parents=True)
    (own / "train.py").write_text("print('mine')")
    monkeypatch.setattr(scripts, "_OWN", own)
    assert scripts.script_path("train.py").parent == course[0]
    monkeypatch.chdir(own.parent)
    assert scripts.script_path("train.py") == (own / "train.py").resolve()
    assert scripts.script_path("ddp.py").parent == course[1]
    assert scripts.shown([sys.executable, str(own / "train.py")]) == "$ python scripts/train.py"


def test_unknown_script_lists_what_there_is(course):
    words = r"'trian.py'; the course has: ddp.py, train.py \(or"
    with pytest.raises(FileNotFoundError, match=words):
        scripts.run("trian.py")
    with pytest.raises(FileNotFoundError, match="/nowhere/x.py"):
        scripts.script_path("/nowhere/x.py")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forked_processes_are_those_of_torchrun(script, capsys):
    """The line that is shown says torchrun, and a learner will type it."""
    file = script("""
        import os, sys
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        sys.stdout.write(f"{__name__} {[os.environ[n] for n in names]} {sys.argv[1:]}\\n")
        """)
    done = scripts.run(file, 0, processes=2)
    assert done.returncode == 0, done.text
    lines = [f"__main__ ['{r}', '{r}', '2', '2'] ['0']" for r in range(2)]
    assert sorted(done.text.splitlines()) == lines
    shown = "$ torchrun --standalone --nproc-per-node=2 "
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forked_processes_share_what_the_script_imports(script, tmp_path, capsys):
    """Four imports of torch's sharding, one a process, would take a small machine's memory and seconds."""
    (tmp_path / "beside.py").write_text("import os\nprocess = os.getpid()\n")
    file = script("""
        import os, sys
        from beside import process
        sys.stdout.write(f"{process == os.getpid()} {os.getcwd()}\\n")
        """)
    done = scripts.run(file, processes=2, cwd=tmp_path)
    assert done.returncode == 0, done.text
    assert done.text.splitlines() == [f"False {tmp_path}"] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize(
    "fault",
    [
        "raise ValueError('mine')",
        *(pytest.param(fault, marks=pytest.mark.slow) for fault in ("import nothing_here", "1 +")),
    ],
)
def test_a_forked_process_that_fails_is_named_and_fails_the_run(script, fault, capsys):
    """Also where the script cannot be imported: its processes tell, not the launcher."""
    done = scripts.run(script(fault), processes=2, quiet=True)
    assert done.returncode == 1
    assert "Root Cause" in done.text and "local_rank" in done.text
    assert re.search("mine|nothing_here|invalid syntax", done.text)
