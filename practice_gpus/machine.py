"""The practice machine: its devices, and where each tensor is.

A tensor of a practice GPU is an ordinary CPU tensor. Its label is an attribute of its *storage* (`Place`), because a
storage is what lives on a device: views, ``.data``, saved activations and gradients share it without further work, and
PyTorch keeps a storage's Python object, with its attributes, as long as the storage itself. When the storage dies, so
does its `Place`, and its block goes back to the allocator.
"""

import threading
import warnings
from collections import deque

import torch

from .memory import Allocator
from .streams import ASYNC, Streams

CPU = torch.device("cpu")
SYNC = "called a synchronizing CUDA operation"
ORDINAL = (
    "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\nSearch for "
    "`cudaErrorInvalidDevice' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for "
    "more information.\n" + ASYNC
)


def refusal(name, original=None, when=None):
    """A callable that says that practice GPUs do not imitate ``name``; given ``when``, only for such arguments."""

    def call(*args, **kwargs):
        if when is None or when(*args, **kwargs):
            raise NotImplementedError(f"practice GPUs do not imitate {name}: it needs a real GPU")
        return original(*args, **kwargs)

    return call


class Place:
    """The label of one storage: its device, and the block of memory it fills there."""

    __slots__ = ("machine", "device", "allocator", "block")

    def __init__(self, machine, device, allocator=None, block=None):
        self.machine, self.device, self.allocator, self.block = machine, device, allocator, block

    def __del__(self):
        if self.block is not None:
            self.allocator.release(self.block)


class Local(threading.local):
    """What each thread has of its own: the current device and streams, and where its factories put their results."""

    index, target = 0, None

    def __init__(self):
        self.streams = {}


class Machine:
    """``n`` practice GPUs of ``capacity`` bytes each, with their allocators, streams and counters."""

    def __init__(self, n, capacity, asynchronous):
        self.n, self.capacity, self.asynchronous = n, capacity, asynchronous
        self.timeline, self.local, self.sync_debug = deque(maxlen=100_000), Local(), 0
        self.devices = [torch.device("cuda", index) for index in range(n)]
        self.allocators = [Allocator(index, capacity, self.timeline) for index in range(n)]
        self.synchronizations, self.transfers = 0, {"h2d": 0, "d2h": 0, "d2d": 0}
        self.floating = Place(self, None)  # made inside PyTorch, not yet on any device
        self.pinned = Place(None, None)  # on the CPU, page-locked
        self.casts = {}  # autocast: id of a float32 weight → (the weight, its cast copy), until the region ends
        self.streams = Streams(self)

    def select(self, index):
        """``torch.cuda.set_device``."""
        self.local.index = self.device(index).index

    def device(self, device):
        """``device`` (a torch.device, text, a number, or None: the current one) with its index. Raises as CUDA does."""
        device = (
            torch.device("cuda", device)
            if isinstance(device, int)
            else torch.device(device or "cuda")
        )
        if device.type != "cuda":
            return device
        if torch.cuda._is_in_bad_fork():
            torch.cuda._lazy_init()  # refuses in PyTorch's words
        index = self.local.index if device.index is None else device.index
        if not 0 <= index < self.n:
            raise torch.AcceleratorError(ORDINAL)
        return self.devices[index]

    def label(self, held):
        """The practice device that a storage is on, or None (the CPU, or a real device)."""
        place = held.practice
        return place.device if place is not None and place.machine is self else None

    def place(self, tensor):
        """The practice device that a tensor is on, or None."""
        return self.label(storage(tensor))

    def put(self, tensor, device, label=""):
        """Label the storage of ``tensor``, if it has none yet, and take memory for it."""
        held = storage(tensor)
        if self.label(held) is None:
            allocator, size = self.allocators[device.index], held.nbytes()
            block = (
                allocator.malloc(size, self.streams.current(device).stream_id, label)
                if size
                else None
            )
            held.practice = Place(self, device, allocator, block)

    def waits(self, where):
        """The CPU waits for a stream, or the current one of a device: count it, and warn or refuse as asked."""
        if self.sync_debug == 2:
            raise RuntimeError(SYNC)
        if self.sync_debug == 1:
            warnings.warn(SYNC, stacklevel=4)
        self.synchronizations += 1
        (self.streams.current(where) if isinstance(where, torch.device) else where).drain()

    def synchronize(self, index=None):
        """``torch.cuda.synchronize``: the CPU waits for all streams of a device."""
        self.synchronizations += 1
        self.streams.drain(self.device(index))


def storage(tensor):
    """The storage that carries the label of ``tensor`` (of its values, for a sparse one)."""
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        return (
            tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()
        ).untyped_storage()
