"""`lab` in trouble: an index that answers with nonsense, a network that ends, a full disk, two at once: nothing is lost."""

import errno
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from copies import settle
from test_pack import wheel

from helpers import files
from tools import _copies, _environment, lab
from tools._environment import SetupError

WHEEL = "pictures-2.1-py3-none-any.whl"


class Index(BaseHTTPRequestHandler):
    """An index of one package that does what `server.mode` says: "fine", "nonsense" or "ends" in mid-file."""

    def do_GET(self):
        body = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        if self.server.mode == "nonsense":
            body = b"Sign in to the hotel's network"
        elif self.path.endswith(".whl"):
            body = (self.server.folder / WHEEL).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        ends = self.server.mode == "ends" and self.path.endswith(".whl")
        self.wfile.write(body[: len(body) // 2] if ends else body)

    def log_message(self, *words):
        """Say nothing."""


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Give a server of an index, the only one that pip may ask, beside a course that needs its one package."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    server.folder, server.mode, house = tmp_path, "fine", tmp_path / "course"
    wheel(tmp_path, "pictures", "2.1")
    house.mkdir()
    (house / "requirements.txt").write_text("pictures>=2\n")
    (house / "pyproject.toml").write_text("")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"INDEX_URL": address, "CONFIG_FILE": os.devnull, "RETRIES": "0"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    settle(monkeypatch, house)
    monkeypatch.setattr(_environment, "WHEELS", address)
    monkeypatch.setattr(_environment, "verify", lambda: None)
    yield server
    server.shutdown()
    server.server_close()


def imported(house):
    """Tell whether the course's environment has its package."""
    line = [_environment.python_of(house / ".venv"), "-c", "import pictures"]
    return subprocess.run(line, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nonsense", "ends"])
def test_an_installation_goes_on_when_the_network_is_back(index, mode):
    index.mode = mode
    with pytest.raises(SetupError, match=r"(?s)^pip stopped: .*pip\.log.*goes on where it stopped"):
        _environment.ensure("default")
    house = _environment.ROOT
    assert _environment.stamp() is None and not imported(house)
    index.mode = "fine"
    _environment.ensure("default")
    assert imported(house) and _environment.stamp()["wheels"] == "default"


@pytest.mark.slow
def test_an_index_of_pytorch_that_answers_with_nonsense_is_not_taken(index, monkeypatch, capsys):
    monkeypatch.setattr(_environment, "suitable", lambda: ("cpu", "; no NVIDIA driver"))
    _environment.ensure()
    assert "cpu does not answer: pip's default build" in capsys.readouterr().out
    assert imported(_environment.ROOT) and _environment.stamp()["wheels"] == "default"


def full(monkeypatch, after=0):
    """Let the disk be full after so many files."""
    write, written = files.write, []

    def written_or_not(path, content):
        if len(written) >= after:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        write(path, content)

    monkeypatch.setattr(files, "write", written_or_not)


def test_on_a_full_disk_the_learners_copies_are_opened(lessons, monkeypatch, capsys):
    """What somebody worked on yesterday must not seem gone."""
    mine = lab.copies() / lab.START
    mine.write_text("my work")
    with monkeypatch.context() as patch:
        full(patch)
        assert lab.copies() == mine.parent and "No space" not in capsys.readouterr().out
        (lessons / "03_cnn.ipynb").write_text("second text")
        assert lab.copies() == mine.parent
        assert "Your copies stay as they are" in capsys.readouterr().out
    assert mine.read_text() == "my work"
    lab.copies()
    assert (mine.parent / "03_cnn.ipynb").read_text() == "second text"


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_disk_that_fills_while_copying_is_said_and_gone_on_with(
    lessons, monkeypatch, capsys, after
):
    with monkeypatch.context() as patch:
        full(patch, after)
        folder = lab.copies()
    assert "No space left on device" in capsys.readouterr().out
    assert (folder / lab.START).read_text() == "first text"
    mine = lab.copies()
    assert {path.read_text() for path in mine.glob("[0-9]*.ipynb")} == {"first text"}
    assert len(list(mine.glob("[0-9]*.ipynb"))) == 2 and (mine / _copies.RECORD).is_file()


def test_many_at_once_make_whole_copies(lessons):
    with ThreadPoolExecutor(8) as pool:
        lines = list(pool.map(lambda _: _copies.prepare(), range(40)))
    mine = _copies.FOLDER
    assert {path.read_text() for path in mine.glob("[0-9]*.ipynb")} == {"first text"}
    assert sorted(path.name for path in mine.iterdir()) == [
        _copies.RECORD,
        lab.START,
        "03_cnn.ipynb",
        "scripts",
    ]
    assert len(lines) == 40
