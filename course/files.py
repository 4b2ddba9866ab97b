"""Files written whole or not at all, one writer at a time."""

import contextlib
import errno
import glob
import itertools
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

ABANDONED = 3600  # seconds after which a half file is what a killed process left behind
PATIENCE = 5  # seconds


def too_long(path: str | Path) -> bool:
    """Whether a name, or that of its half while it is written, is longer than the file system takes."""
    try:
        os.lstat(f"{path}{'-' * 24}")
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    return False


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give the path of a new file beside `path`; after the block that file, safe on the disk, takes its place.

    Where `path` is a link, it stays one, and what it leads to is written. When the block raises, or the process is killed in it, what stood at `path` stands there still. The new file has the
    rights of any new file. OSError where `path` is something else than a file (a folder, /dev/null) or cannot be
    written.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a file that can be replaced", str(path))
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        _remove(old, ABANDONED)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        yield part
        _to_disk(part)
        os.replace(part, path)
    except OSError as error:
        if error.filename in (str(part), part):  # the half file means nothing to whoever reads this
            error.filename = str(path)
        raise
    finally:
        _remove(part)
    with contextlib.suppress(OSError):  # not on Windows; no folder can be opened there
        _to_disk(path.parent)


def write(path: str | Path, content: str | bytes) -> None:
    """Write `content`, bytes or text (UTF-8, its line ends kept), to the file `path`, whole or not at all."""
    with atomic_write(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def unused(path: Path) -> Path:
    """Return `path`, or the first of that name with 2, 3, … behind its stem, where nothing lies yet."""
    later = (path.with_stem(f"{path.stem}{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], later) if not os.path.lexists(each))


@contextlib.contextmanager
def locked(folder: str | Path, patience: float = PATIENCE) -> Iterator[bool]:
    """Let one process at a time into the block, by a lock in `folder` that ends with the process.

    Gives False when another process still holds the lock after `patience` seconds, and goes on. Gives True without a
    lock where there can be none: no such folder, or a disk without locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(Path(folder) / ".lock", timeout=patience)
    try:
        lock.acquire(poll_interval=0.01)
        taken = True
    except Timeout:
        taken = False
    except (OSError, NotImplementedError):
        taken = True
    try:
        yield taken
    finally:
        lock.release()


def _to_disk(path):
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounts have no fsync
            raise
    finally:
        os.close(handle)


def _remove(path, older=0):
    """Remove a half file that was last written `older` seconds ago or before; where that is forbidden, leave it."""
    with contextlib.suppress(OSError):
        if not older or time.time() - path.stat().st_mtime > older:
            path.unlink()


def user_folder() -> Path:
    """The folder of what the course keeps for a learner (progress, a GPU code), as a Path; it need not exist yet."""
    named = os.environ.get("GPU_COURSE_HOME")
    if named:
        return Path(named)
    from platformdirs import user_data_path

    try:
        path = user_data_path("gpus-in-pytorch", appauthor=False)
    except RuntimeError:  # a user without a home folder; older releases' path begins with "~"
        path = Path("~")
    return path if path.is_absolute() else Path(os.devnull, path)  # nothing can be kept there
