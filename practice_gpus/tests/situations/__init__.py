"""Situations of the fidelity test, in the order in which they run; memory comes first, in a fresh process."""

from . import memory, memory_training, memory_reports  # isort: skip
from . import placement, contexts, mismatch, python_side, gradients  # isort: skip
from . import modules, training, saving, randomness, parallel, streams  # isort: skip
from . import mixed_precision, queries, others  # isort: skip
from .registry import SITUATIONS
