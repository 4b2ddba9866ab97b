"""The practice machine: its devices, and where each tensor is.

A tensor of a practice GPU is an ordinary CPU tensor. Its label is an attribute of its *storage* (`Place`), because a
storage is what lives on a device: views, ``.data``, saved activations and gradients share it without further work, and
PyTorch keeps a storage's Python object, with its attributes, as long as the storage itself. When the storage dies, so
does its `Place`, and its block goes back to the allocator.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from practice_gpus.machine import errors
from practice_gpus.machine.errors import refusal  # noqa: F401  for others
from practice_gpus.machine.memory import Allocator
from practice_gpus.machine.observers import EVERYONE, Observer
from practice_gpus.machine.origins import depth
from practice_gpus.machine.streams import Streams
from practice_gpus.settings import Settings

if TYPE_CHECKING:
    from practice_gpus.machine.blocks import Block
    from practice_gpus.machine.streams import DeviceEvent as Event
    from practice_gpus.machine.streams import Stream
    from practice_gpus.pytorch import Call

CPU = torch.device("cpu")
finalizing = sys.is_finalizing
PLAIN = {torch.Tensor, torch.nn.Parameter}
ROWS = ("crow_indices", "col_indices", "values")
COLUMNS = ("ccol_indices", "row_indices", "values")
PARTS = {  # what gives the tensors that a sparse tensor consists of, its values last
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ROWS,
    torch.sparse_bsr: ROWS,
    torch.sparse_csc: COLUMNS,
    torch.sparse_bsc: COLUMNS,
}
SYNC = "called a synchronizing CUDA operation"


OTHER_THREAD = "practice GPUs are on in the thread {!r}, and belong to it and to threads started from it: turn them on and off there"


class Place:
    """The label of one storage: its device, and the block of memory it fills there."""

    __slots__ = ("machine", "device", "allocator", "block")

    def __init__(
        self,
        machine: Machine | None,
        device: torch.device | None,
        allocator: Allocator | None = None,
        block: Block | None = None,
    ) -> None:
        self.machine = machine
        self.device = device
        self.allocator = allocator
        self.block = block

    def __del__(self):
        block = getattr(self, "block", None)  # not yet there where an interrupt cut its making
        if block is not None and not finalizing():
            self.allocator.release(block)


class Local(threading.local):
    """What each thread has of its own: the current device and streams, and where its factories put their results."""

    index = 0
    target = None
    quiet = False
    arriving = False  # what a collective brings, from a tensor of gloo's
    has_modes = (
        False  # it sees this machine: the thread that turned it on, and those started from it
    )
    tracing = False  # by torch.jit, with tensors of a practice GPU
    last_error = ""  # the words of an operator's
    inside: tuple = (None, {})  # in the backward pass: see `backward`
    latest: Any = None

    def __init__(self) -> None:
        self.streams: dict = {}  # those that are current, unless it is a device's own
        self.changes: list = []
        self.first_uses: dict = {}


class Machine:
    """Practice GPUs as `Settings` ask for them, with their allocators, streams and counters."""

    def __init__(self, settings: Settings) -> None:
        n = settings.n
        capacity = settings.capacity
        self.settings = settings
        self.thread = threading.current_thread()
        self.n = n
        self.values = settings.values  # False: tensors have shapes alone, see `shapes`
        self.stand_in = settings.stand_in
        self.capacity = capacity
        blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"  # each call waits, as with CUDA
        self.asynchronous = settings.asynchronous and not blocking
        self.timeline: deque[tuple] = deque(maxlen=100_000)
        self.local = Local()
        self.sync_debug = 0
        self.devices = [torch.device("cuda", index) for index in range(n)]
        self.observers: list[Observer] = []
        self.recorded: Any = None  # the latest `snapshot.History`
        EVERYONE[self] = self.observers
        self.allocators = [
            Allocator(index, capacity, self.timeline, self.observers) for index in range(n)
        ]
        self.synchronizations = 0
        self.transfers = {"h2d": 0, "d2h": 0, "d2d": 0}
        self.clock: Any = None  # the `clock.log.Log` of a session whose events tell forecast times
        self.floating = Place(None, None)  # made inside PyTorch, not yet on any device
        self.pinned = Place(None, None)  # on the CPU, page-locked
        self.casts: dict[
            int, tuple
        ] = {}  # autocast: id of a float32 weight → (the weight, its cast copy), until the region ends
        self.initialized = True  # CUDA has been used; False from when all is on to its first use
        self.streams = Streams(self)
        # device → text and number of the error with which each call fails: a failed assertion, if they are to be sticky
        self.broken: dict[torch.device, tuple] = {}
        self.forked = False  # in a process whose parent had used it before
        self.served: dict[str, set] = {}  # a process group → the kinds of devices of its tensors
        self.default_type: Any = None  # such as torch.cuda.FloatTensor, of ``torch.Tensor(…)``
        self.functions: Any = None  # the `functions.FunctionMode`
        MACHINES.add(self)
        self.generators: list[
            torch.Generator
        ] = []  # of random numbers, one a device: see `randomness`

    def select(self, index: int) -> None:
        """``torch.cuda.set_device``."""
        self.local.index = self.device(index).index

    def device(self, device: Any) -> torch.device:
        """``device`` (a torch.device, text, a number, or None: the current one) with its index. Raises as CUDA does."""
        device = (
            torch.device("cuda", device)
            if isinstance(device, int)
            else torch.device(device or "cuda")
        )
        if device.type != "cuda":
            return device
        if not self.initialized:
            torch.cuda._lazy_init()
        index = self.local.index if device.index is None else device.index
        if not 0 <= index < self.n:
            raise errors.invalid_device()
        return self.devices[index]

    def place(self, tensor: Any) -> torch.device | None:
        """The practice device that a tensor is on, or None (the CPU, or a real device)."""
        place = storage_of(tensor).practice
        return place.device if place is not None and place.machine is self else None

    def label(self, storage: Any) -> torch.device | None:
        """The practice device that a storage is on, or None."""
        place = storage.practice
        return place.device if place is not None and place.machine is self else None

    def address(self, storage: Any) -> int:
        """Where a storage begins in the memory of its practice device."""
        block = storage.practice.block
        if block is None:
            return 0
        storage.practice.allocator.settle()
        return block.address

    def on_cpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the CPU, and not one that PyTorch made on the way to a GPU."""
        place = storage_of(tensor).practice
        return place is not self.floating and (place is None or place.machine is not self)

    def put(self, tensor: Any, device: torch.device, label: str = "") -> None:
        """Label the storage of ``tensor``, if it has none yet, and take memory for it."""
        if tensor.layout in PARTS:
            for name in PARTS[tensor.layout]:
                self.put(getattr(tensor, name)(), device, label)
            return
        storage = storage_of(tensor)
        place = storage.practice
        if place is not None and place.machine is self:
            return
        storage.practice = self.placed(device, storage.nbytes(), label)

    def settle(self, tensor: torch.Tensor, like: torch.Tensor) -> None:
        """A tensor that PyTorch made on the way is where ``like`` is."""
        storage = storage_of(tensor)
        home = self.place(like)
        if home is not None and storage.practice is self.floating:
            storage.practice = self.placed(home, storage.nbytes())

    def placed(self, device: torch.device, size: int, label: str = "") -> Place:
        """A label with a block of ``size`` bytes, or with none for none."""
        allocator = self.allocators[device.index]
        place = Place(self, device, allocator)
        if size:
            stream = self.streams.at(device.index)
            try:
                allocator.take(size, stream.stream_id, label, place)
            except torch.OutOfMemoryError:
                if not self.asynchronous:
                    raise
                self.streams.drain(device)  # work that is done gives back what it held
                allocator.take(size, stream.stream_id, label, place)
        return place

    def asserted(self, device: torch.device, reason: Any) -> Any:
        """The error for a failed assertion on ``device``; each later call fails with it, too, if that is asked for."""
        error = errors.device_assert(reason)
        if self.settings.asserts == "sticky":
            self.broken[device] = str(error), errors.DEVICE_ASSERT
        return error

    def check_alive(self, device: torch.device) -> None:
        """Raise for a device on which an assertion has failed, as CUDA does for the rest of a process."""
        if device in self.broken:
            raise errors.accelerator_error(*self.broken[device])

    def draw(self, call: Call) -> Any:
        """The result of an operator that draws random numbers: those of its device's generator."""
        generator = self.generators[call.home.index]
        if call.fact.drawn is not None:
            return call.fact.drawn(*call.args, **call.kwargs | {"generator": generator})
        with lent(generator):
            return call.func(*call.args, **call.kwargs)

    def copied(
        self, direction: str, tensor: Any, goal: torch.device | None = None, pinned: bool = False
    ) -> None:
        """Count a copy of a tensor: "h2d" to the GPU ``goal``, "d2h" from one, "d2d" between two."""
        self.transfers[direction] += 1
        for observer in self.observers:
            observer.copied(direction, tensor, goal, pinned)

    def waits(self, place: Stream | torch.device, reason: str = "") -> None:
        """The CPU waits for a stream, or the current one of a device: count it, and warn or refuse as asked."""
        stream = self.streams.current(place) if isinstance(place, torch.device) else place
        if not self.local.quiet:
            if self.sync_debug == 2:
                raise RuntimeError(SYNC)
            if self.sync_debug == 1:
                self._warn()
            self.waited(stream, reason=reason)
        stream.drain()
        if self.broken:
            self.check_alive(stream.device)

    def _warn(self):
        """Say that the CPU waits, at the line of a person's own: on a GPU the warning comes from C++, so it names that."""
        warnings.warn(SYNC, stacklevel=depth())

    def waited(
        self,
        stream: Stream | None = None,
        device: torch.device | None = None,
        event: Event | None = None,
        reason: str = "",
    ) -> None:
        """Count a wait of the CPU: for a stream, for an event, or for all of a device."""
        self.synchronizations += 1
        for observer in self.observers:
            observer.waited(stream, device, event, reason)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Waits in here are of the CPU's kernels alone; a GPU's have none."""
        self.local.quiet = True
        try:
            yield
        finally:
            self.local.quiet = False

    def synchronize(self, index: Any = None) -> None:
        """``torch.cuda.synchronize``: the CPU waits for all streams of a device."""
        device = self.device(index)
        self.waited(device=device)
        self.streams.drain(device)
        if self.broken:
            self.check_alive(device)


def in_forked_child() -> None:
    """Python has forked: CUDA is lost to the child of a process that has used it."""
    for machine in MACHINES:
        if machine.initialized:
            machine.initialized = False
            machine.forked = True
            lost = errors.UNINITIALIZED, errors.INITIALIZATION
            machine.broken = dict.fromkeys(machine.devices, lost)


MACHINES: weakref.WeakSet[Machine] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=in_forked_child)


@contextlib.contextmanager
def lent(generator: Any) -> Iterator[None]:
    """Have operators that take no generator draw from ``generator``: its state takes the place of the CPU's."""
    common = torch.default_generator
    kind = torch._C.Generator
    before = common.get_state()
    common.set_state(kind.get_state(generator))
    try:
        yield
    finally:
        kind.set_state(generator, common.get_state())
        common.set_state(before)


def block_of(tensor: torch.Tensor) -> Block | None:
    """The block of memory that a tensor on a practice GPU fills, or None."""
    try:
        return getattr(storage_of(tensor).practice, "block", None)
    except (AttributeError, NotImplementedError, RuntimeError, ValueError):
        return None  # it has no storage, such as a parameter of a lazy module


def storage_of(tensor: Any) -> Any:
    """The storage that carries the label of ``tensor`` (of its values, for a sparse, nested or wrapped one)."""
    if type(tensor) in PLAIN:
        try:
            return tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            pass  # it has none of its own
    with torch._C.DisableTorchFunction():
        tensor = inner(tensor)
        try:
            return tensor.untyped_storage()
        except NotImplementedError:
            return unbatched(tensor)


def contents(storage: Any) -> Any:
    """The bytes of a storage as a tensor."""
    bytes = torch.empty(0, dtype=torch.uint8, device=CPU)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return bytes.set_(storage)


def unbatched(tensor: Any) -> Any:
    """The storage of a tensor in the older ``vmap``, with which ``gradcheck`` computes several gradients at once."""
    with torch._C._DisableTorchDispatch():
        for level in range(1, 9):
            without = torch._remove_batch_dim(tensor, level, 1, 0)
            with contextlib.suppress(NotImplementedError):  # it was not at this level
                return without.untyped_storage()
    return tensor.untyped_storage()


def inner(tensor: Any) -> Any:
    """The tensor within a tensor that has no storage of its own."""
    while hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        tensor = getattr(tensor, names[0])
    wrapped = torch._C._functorch
    while wrapped.is_functorch_wrapped_tensor(tensor):
        tensor = wrapped.get_unwrapped(tensor)
    if tensor.layout in PARTS:
        return getattr(tensor, PARTS[tensor.layout][-1])()
    return tensor
