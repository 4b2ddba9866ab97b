"""What all tests share: stored progress of the person who runs them stays untouched."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_stored_progress(tmp_path_factory):
    """Keep progress of exercises in a fresh folder for the whole run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_COURSE_HOME", str(tmp_path_factory.mktemp("home")))
        yield
