"""Turns practice GPUs on in a child process, as soon as it has imported torch: see `practice_gpus.pytorch.processes`.

Python imports this module at its start where its folder is on PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


class Waiting:
    """Waits for the import of torch."""

    def find_spec(self, name: Any, path: Any = None, target: Any = None) -> Any:
        """The module's spec, as Python's import system asks for it."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None:
            loader: Any = spec.loader
            load = loader.exec_module
            loader.exec_module = lambda module: start_after(load, module)
        return spec


def start_after(load: Any, module: Any) -> None:
    """Load torch, then turn practice GPUs on."""
    load(module)
    if "practice_gpus" not in sys.modules:
        folder = os.path.dirname(HERE)
        spec: Any = importlib.util.spec_from_file_location(
            "practice_gpus",
            os.path.join(folder, "__init__.py"),
            submodule_search_locations=[folder],
        )
        sys.modules["practice_gpus"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["practice_gpus"])
    from practice_gpus.session import resume

    gpus = resume()
    if "PRACTICE_GPUS_REPORT" in os.environ and not gpus.real:
        from practice_gpus.reports import in_child  # only where a report was asked for

        in_child(gpus)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
ITSELF = sys.modules.pop("sitecustomize", None)
if importlib.util.find_spec("sitecustomize") is not None:
    import sitecustomize  # noqa: F401, PLW0406  the one that this module stood before
if ITSELF is not None:
    sys.modules.setdefault("sitecustomize", ITSELF)
if os.environ.get("PRACTICE_GPUS"):
    sys.meta_path.insert(0, Waiting())
