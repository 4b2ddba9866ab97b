"""Situations with CUDA devices and the lines that they print, in the order in which they run.

`python -m practice_gpus verify` runs them; memory comes first, in a fresh process. `expected.txt` holds the lines to
expect.
"""

from practice_gpus.situations import memory, memory_training, memory_reports  # isort: skip
from practice_gpus.situations import placement, contexts, mismatch, python_side, gradients  # isort: skip
from practice_gpus.situations import modules, training, saving, randomness, parallel, streams  # isort: skip
from practice_gpus.situations import mixed_precision, queries, others, frameworks  # isort: skip
from practice_gpus.situations.registry import SITUATIONS
