"""Runs the CPU's kernels, and words their errors as CUDA does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from practice_gpus.machine import divide_by_zero, is_asserted, refusal
from practice_gpus.pytorch import halves
from practice_gpus.pytorch.dtypes import cuda_lacks

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call


def computed(machine: Machine, call: Call) -> Any:
    """The result of the CPU's kernel; its errors in the words of CUDA's where they differ."""
    try:
        if call.fact.random and call.home is not None and call.kwargs.get("generator") is None:
            return machine.draw(call)
        if call.fact.multiplies and call.home is not None:
            return halves.run(call.func._op, call.fact, call.args, call.kwargs)
        return call.func._op(*call.args, **call.kwargs)
    except (IndexError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, NotImplementedError) and call.home is not None:
            lacking = cuda_lacks(call.fact.name, text)
            if lacking is not None:
                raise lacking from None
            label = f"{call.func.name()} with these arguments"
            refusal(label, instead=f"the CPU has no code for it: {text[:200]}")()
        if text == "ZeroDivisionError" and call.home is not None:
            return divide_by_zero(call.func, call.args, call.kwargs)
        if call.home is not None and is_asserted(error, call.fact.name):
            raise machine.asserted(call.home, error) from error
        error.args = (text.replace("expected m1 and m2", "expected mat1 and mat2"),)
        raise
