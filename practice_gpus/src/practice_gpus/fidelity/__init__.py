"""Situations with CUDA devices and the lines that they print, in the order in which they run.

`python -m practice_gpus verify` runs them; memory comes first, in a fresh process. `expected.txt` holds the lines to
expect.
"""

from . import memory, memory_training, memory_reports  # isort: skip
from . import placement, contexts, mismatch, python_side, gradients  # isort: skip
from . import modules, training, saving, randomness, parallel, streams  # isort: skip
from . import mixed_precision, queries, others, frameworks  # isort: skip
from .registry import SITUATIONS
