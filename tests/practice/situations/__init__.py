"""Situations of the fidelity test, in the order in which they run; memory comes first, in a fresh process."""

# isort: off
from . import (
    memory,
    memory_training,
    memory_reports,
    placement,
    contexts,
    mismatch,
    python_side,
    gradients,
)  # noqa: F401
from . import modules, training, saving, randomness, parallel, streams, mixed_precision, queries  # noqa: F401
from . import others  # noqa: F401
from .registry import SITUATIONS  # noqa: F401
