"""PyTorch's questions answered from the machine's labels: operators, devices, modes, streams, errors in CUDA's words."""

from practice_gpus.pytorch.dispatch import DispatchMode
from practice_gpus.pytorch.functions import FunctionMode
from practice_gpus.pytorch.operators import Call
from practice_gpus.pytorch.patches import patches
from practice_gpus.pytorch.processes import handed_on, variables
from practice_gpus.pytorch.refused import attention, refusals_of
from practice_gpus.pytorch.undo import (
    MISSING,
    exchange,
    restore_default_device,
    set_aside,
    take_out,
)

__all__ = [
    "Call",
    "DispatchMode",
    "FunctionMode",
    "MISSING",
    "attention",
    "exchange",
    "handed_on",
    "patches",
    "refusals_of",
    "restore_default_device",
    "set_aside",
    "take_out",
    "variables",
]
