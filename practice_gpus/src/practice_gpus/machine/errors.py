"""Errors in CUDA's words: what the CPU's kernels say otherwise, or do not mind.

A kernel on a GPU cannot raise: where the CPU's finds a value that does not fit, a GPU's fails an assertion, and a later
call of the CPU reports it (https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from practice_gpus.machine.observers import tell_refused

ASYNC = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
SEARCH = "Search for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
ORDINAL = (
    "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"
    + SEARCH.format("cudaErrorInvalidDevice")
    + ASYNC
)
ASSERT = (
    "CUDA error: device-side assert triggered\n"
    + SEARCH.format("cudaErrorAssert")
    + ASYNC
    + "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
INVALID_HANDLE = "CUDA error: invalid resource handle\n" + ASYNC
EXABYTE = "CUDA out of memory. Tried to allocate more than 1EB memory."
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. {}Including "
    "non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by PyTorch, and {} "
    "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management "
    " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)
UNINITIALIZED = "CUDA error: initialization error\n" + ASYNC
INITIALIZATION, INVALID_DEVICE, BAD_HANDLE, DEVICE_ASSERT = (
    3,
    101,
    400,
    710,
)  # numbers of cudaError_t
# What the CPU's kernels say of a value for which a GPU's fail an assertion (CUDA_KERNEL_ASSERT in ATen/native/cuda).
ASSERTED = re.compile(
    r"(index|Target) -?\d+ is out of bounds|index out of range|out of bounds for dim|tried to access index"
    r"|all elements of (input|target) should be between 0 and 1|invalid multinomial distribution"
    r"|Expected p_in >= 0 && p_in <= 1|invalid Poisson rate|which is not in the valid range"
    r"|elements of source < number of ones in mask|probability tensor contains either"
    r"|Found an invalid max index|Expected Tensor with single nonzero value"
)
NO_KERNEL = (
    "Could not run '{}' with arguments from the '{}' backend. This could be because the operator doesn't exist "
    "for this backend, or was omitted during the selective/custom build process (if using custom build)."
)
NO_BACKEND = "No backend type associated with device type {}"
FORKED = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
OTHER_STORAGE = (
    'Attempted to set the storage of a tensor on device "{}" to a storage on different device "{}".  This is no longer '
    "allowed; the devices must match."
)


def refusal(
    name: str,
    original: Any = None,
    condition: Callable | None = None,
    instead: str = "leave it out here, or borrow one",
) -> Callable:
    """A callable that says that practice GPUs do not imitate ``name``; given a ``condition``, only where it is true."""

    def call(*args, **kwargs):
        if condition is None or condition(*args, **kwargs):
            tell_refused(name, ended=True)
            raise NotImplementedError(
                f"practice GPUs do not imitate {name}: it needs a real GPU; {instead}"
            )
        return original(*args, **kwargs)

    vars(call).update(refuses=name, always=condition is None)
    return call


def accelerator_error(text: str, code: int) -> torch.AcceleratorError:
    """The error that PyTorch raises for an error of the CUDA runtime with the number ``code``."""
    error = torch.AcceleratorError(text)
    setattr(error, "error_code", code)  # noqa: B010  which PyTorch's stubs do not know
    return error


def invalid_device() -> torch.AcceleratorError:
    """The error for a device that is not there."""
    return accelerator_error(ORDINAL, INVALID_DEVICE)


def device_assert(reason: object) -> torch.AcceleratorError:
    """The error after a failed assertion of a kernel; ``reason``: what the CPU's kernel said."""
    return accelerator_error(f"{ASSERT}\n(practice GPU: {reason})", DEVICE_ASSERT)


def is_asserted(error: Exception, name: str = "") -> bool:
    """Whether a GPU's kernel would fail an assertion where the CPU's raised ``error``; ``name``: of the operator."""
    if "sorter" in str(error):
        return False  # a GPU looks at these first
    return name == "_assert_async" or ASSERTED.search(str(error)) is not None


def invalid_handle() -> torch.AcceleratorError:
    """The error for events of several devices."""
    return accelerator_error(INVALID_HANDLE, BAD_HANDLE)


def divide_by_zero(func: Any, args: tuple, kwargs: dict) -> torch.Tensor:
    """The result of an integer division with zeros in its divisor, which a GPU does not refuse.

    PTX leaves the values unspecified; here a quotient is -1 and a remainder the dividend.
    """
    dividend, divisor = (torch.as_tensor(value) for value in args[:2])
    zero = divisor == 0
    instead = torch.full_like(dividend, -1) if "div" in func.name() else dividend.clone()
    safe = divisor.masked_fill(zero, 1) if isinstance(args[1], torch.Tensor) else 1
    out = func._op(args[0], safe, *args[2:], **kwargs)
    return out.copy_(torch.where(zero, instead, out))
