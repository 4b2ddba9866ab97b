"""What all tests share: stored progress of the person who runs them stays untouched; practice GPUs for a test."""

import contextlib

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_stored_progress(tmp_path_factory):
    """Keep progress of exercises in a fresh folder for the whole run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_COURSE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def imitated():
    """Give practice_gpus as a context manager that skips the test where it would step aside for real GPUs."""
    from practice_gpus import practice_gpus  # PyTorch, only for tests that ask for it

    @contextlib.contextmanager
    def turned_on(*args, **options):
        with practice_gpus(*args, **options) as machine:
            if machine.real:
                pytest.skip("these GPUs are real")
            yield machine

    return turned_on
