"""Practice GPUs: CUDA devices simulated on the CPU, for machines that have none.

    from practice_gpus import practice_gpus

    with practice_gpus(n=2, memory="1 GiB"):          # a block; also @practice_gpus(n=2) above a function
        x = torch.ones(3, device="cuda:1")            # computed by the CPU, labeled cuda:1
    gpus = practice_gpus(n=2).start()                 # the rest of a notebook, until gpus.stop()

    @pytest.fixture                                   # device bugs show up in CI without a GPU
    def gpus():
        with practice_gpus(n=2) as machine:
            yield machine

Values are computed for real, by the CPU's kernels: training gives the CPU's numbers to the last bit. Where PyTorch
has ``n`` real CUDA GPUs, and code for them, practice steps aside (``gpus.real`` is True) and nothing is changed.

Placement, memory, waits and errors follow PyTorch's source and documentation; ``python -m practice_gpus verify`` compares
them with a real GPU. HOW_IT_WORKS.md tells how, IMITATES.md what is imitated and what is refused by name.

``python -m practice_gpus -n 2 script.py …`` runs a program on practice GPUs, and what it starts, too, and reports what it
copied, where it waited and how much memory it needed; ``report("script.py")`` does so in a notebook. ``pytest
--practice-gpus 2`` and ``@pytest.mark.practice_gpus(2)`` give them to tests (`plugin`).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from practice_gpus.reports import report
    from practice_gpus.session import practice_gpus

__version__ = "0.3.0"
__all__ = ["practice_gpus", "report"]


def __getattr__(name: str) -> object:
    """Import what is asked for, and PyTorch with it, when it is: pytest loads the plugin in each run."""
    modules = {"practice_gpus": ".session", "report": ".reports"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(modules[name], __name__), name)
    globals()[name] = value
    return value
