"""The practice machine: its devices, and where each tensor is.

A tensor of a practice GPU is an ordinary CPU tensor. Its label is an attribute of its *storage* (`Place`), because a
storage is what lives on a device: views, ``.data``, saved activations and gradients share it without further work, and
PyTorch keeps a storage's Python object, with its attributes, as long as the storage itself. When the storage dies, so
does its `Place`, and its block goes back to the allocator.
"""
import os
import threading
import time
import warnings
from collections import deque

import torch

from .memory import Allocator

SYNC = "called a synchronizing CUDA operation"
CPU = torch.device("cpu")
ORDINAL = (
    "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"
    "{search}CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
    "be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
FORK = ("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method")


class Place:
    """The label of one storage: its device, and the block of memory it fills there."""
    __slots__ = ("machine", "device", "allocator", "block")

    def __init__(self, machine, device, allocator=None, block=None):
        self.machine, self.device, self.allocator, self.block = machine, device, allocator, block

    def __del__(self):
        if self.block is not None:
            self.allocator.release(self.block)


class Machine:
    """``n`` practice GPUs of ``capacity`` bytes each, with their allocators, streams and counters."""

    def __init__(self, n, capacity, asynchronous):
        self.n, self.capacity, self.asynchronous, self.pid = n, capacity, asynchronous, os.getpid()
        self.timeline = deque(maxlen=100_000)
        self.devices = [torch.device("cuda", index) for index in range(n)]
        self.allocators = [Allocator(index, capacity, self.timeline) for index in range(n)]
        self.synchronizations, self.transfers = 0, {"h2d": 0, "d2h": 0, "d2d": 0}
        self.sync_debug = 0
        self.local = threading.local()
        self.floating = Place(self, None)  # made inside PyTorch, not yet on any device
        self.pinned = Place(None, None)    # on the CPU, page-locked

    # --- the current device, one for each thread as in CUDA ---

    @property
    def current(self):
        return getattr(self.local, "index", 0)

    def set_current(self, index):
        self.check(index)
        self.local.index = index

    def check(self, index):
        """Refuse a device that is not there, in CUDA's words."""
        if os.getpid() != self.pid:
            raise RuntimeError(FORK)
        if not 0 <= index < self.n:
            search = ("Search for `cudaErrorInvalidDevice' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
                      "group__CUDART__TYPES.html for more information.\n")
            raise torch.AcceleratorError(ORDINAL.format(search=search))

    def device(self, device):
        """``device`` as ``torch.device`` with an index: accepts what PyTorch accepts."""
        if isinstance(device, int):
            device = torch.device("cuda", device)
        elif isinstance(device, str):
            device = torch.device(device)
        if device.type != "cuda":
            return device
        index = self.current if device.index is None else device.index
        self.check(index)
        return self.devices[index]

    # --- labels ---

    def place(self, tensor):
        """The practice device that ``tensor`` is on, or None (the CPU, or a real device)."""
        place = storage(tensor).practice
        return place.device if place is not None and place.machine is self else None

    def put(self, tensor, device, label=""):
        """Label the storage of ``tensor``, if it has none yet, and account for its bytes."""
        held = storage(tensor)
        place = held.practice
        if place is None or place.machine is not self or place.device is None:
            allocator, size = self.allocators[device.index], held.nbytes()
            block = allocator.malloc(size, self.stream_id(device), label) if size else None
            held.practice = Place(self, device, allocator, block)

    def floats(self, tensor):
        """Whether PyTorch made ``tensor`` for itself, on no device yet."""
        return storage(tensor).practice is self.floating

    def stream_id(self, device):
        return self.streams.current(device).stream_id

    # --- waiting ---

    def synchronized(self, stream, flagged=True):
        """The CPU waits for ``stream``: count it, and warn or refuse as ``set_sync_debug_mode`` says."""
        if flagged and self.sync_debug == 2:
            raise RuntimeError(SYNC)
        if flagged and self.sync_debug == 1:
            warnings.warn(SYNC, stacklevel=4)
        self.synchronizations += 1
        stream.drain()

    def synchronize(self, index=None):
        """``torch.cuda.synchronize``: the CPU waits for all streams of a device."""
        self.synchronizations += 1
        self.streams.drain(self.devices[self.current if index is None else index])

    def sleep(self, cycles):
        """``torch.cuda._sleep``: keep the current stream busy, one nanosecond a cycle."""
        self.streams.current(self.devices[self.current]).put(lambda: time.sleep(cycles / 1e9))


def storage(tensor):
    """The storage that carries the label of ``tensor`` (of its values, for a sparse one)."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        return (tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()).untyped_storage()
