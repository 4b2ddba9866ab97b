"""What stands in for the CUDA driver: the C functions beneath ``torch.cuda``, ``torch.accelerator`` and DataParallel.

PyTorch's own Python code keeps running above them (``torch.cuda.device``, ``memory_summary``, ``nn.DataParallel`` …),
so arguments are checked and texts are worded by PyTorch itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda._utils import _get_device_index as get_index

from practice_gpus.cards import get_card
from practice_gpus.machine import CPU, FORKED, OTHER_THREAD, invalid_device, snapshot

if TYPE_CHECKING:
    from practice_gpus.machine import Machine, Stream

NAME = "Practice GPU (simulated on the CPU)"
DEFAULT = "A100 (80 GB)"  # whose properties practice GPUs have that stand for no card
KIB, MIB = 1 << 10, 1 << 20
# Compute capability → threads and KiB of shared memory for each SM: NVIDIA, CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"; AMD's from its CDNA 3 ISA guide.
SHARED = {(6, 0): (2048, 64), (6, 1): (2048, 96), (7, 0): (2048, 96), (7, 5): (1024, 64)}
SHARED |= {(8, 0): (2048, 164), (8, 6): (1536, 100), (8, 9): (1536, 100), (9, 0): (2048, 228)}
SHARED |= {(10, 0): (2048, 228), (10, 3): (2048, 228), (12, 0): (1536, 100), (9, 4): (2048, 64)}
ARCHITECTURES = "sm_50 sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"


TWINS = {  # a function of torch.accelerator → the one of torch.cuda that it equals
    "_accelerator_getDeviceIndex": "_cuda_getDevice",
    "_accelerator_setDeviceIndex": "_cuda_setDevice",
    "_accelerator_exchangeDevice": "_cuda_exchangeDevice",
    "_accelerator_maybeExchangeDevice": "_cuda_maybeExchangeDevice",
    "_accelerator_synchronizeDevice": "_cuda_synchronize",
    "_accelerator_emptyCache": "_cuda_emptyCache",
    "_accelerator_getDeviceStats": "_cuda_memoryStats",
    "_accelerator_resetPeakStats": "_cuda_resetPeakMemoryStats",
    "_accelerator_resetAccumulatedStats": "_cuda_resetAccumulatedMemoryStats",
}


def answers(machine: Machine) -> dict:
    """Name in ``torch._C`` → function."""
    streams = machine.streams
    local = machine.local

    def exchange(index):
        before = local.index
        if index >= 0:
            machine.select(index)
        return before

    def books(index):
        if not 0 <= index < machine.n:
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return machine.allocators[index]

    def reset_peak(index):
        books(index).reset(peak=True)

    def reset_accumulated(index):
        books(index).reset(peak=False)

    def set_sync_debug_mode(mode):
        if mode not in (0, 1, 2):
            raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
        machine.sync_debug = mode

    def sleep(cycles):
        stream = streams.current()
        for observer in machine.observers:
            observer.slept(stream, cycles / 1e9)
        stream.sleep(cycles / 1e9)

    def empty_cache():
        for allocator in machine.allocators:
            allocator.release_cached()

    def current(index):
        return streams.current(known(index))

    def known(index):
        index = local.index if index == -1 else index
        if not 0 <= index < machine.n:
            raise RuntimeError(f"Device index value {index} is out of index range [0, {machine.n})")
        return index

    def select(index):
        if index >= 0:
            machine.select(index)

    functions = {
        "_cuda_getDeviceCount": lambda: machine.n,
        "_cuda_getArchFlags": lambda: ARCHITECTURES,
        "_cuda_getDevice": lambda: local.index,
        "_cuda_setDevice": select,
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": lambda index: exchange(
            index
        ),  # torch._dynamo tells them apart
        "_cuda_synchronize": machine.synchronize,
        "_cuda_emptyCache": empty_cache,
        "_cuda_memoryStats": lambda index: books(index).stats(),
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
        "_cuda_setMemoryFraction": lambda fraction, index: books(index).set_fraction(fraction),
        "_cuda_getMemoryFraction": lambda index: books(index).fraction,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer,
        "_cuda_hasPrimaryContext": lambda index: True,
        "_cuda_set_sync_debug_mode": set_sync_debug_mode,
        "_cuda_get_sync_debug_mode": lambda: machine.sync_debug,
        "_cuda_sleep": sleep,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_getCurrentStream": lambda index: ids(current(index)),
        "_cuda_getDefaultStream": lambda index: ids(streams.default[known(index)]),
        "_cuda_getCurrentRawStream": lambda index: streams.current(index).cuda_stream,
        "_cuda_setStream": lambda stream_id, **place: streams.select(streams.by_id[stream_id]),
        "_cuda_record_memory_history": snapshot.recorder(machine),
        "_cuda_memorySnapshot": lambda pool=None: snapshot.snapshot(machine, pool),
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_get_accelerator": lambda check=None: torch.device("cuda"),
        "_cuda_isInBadFork": lambda: machine.forked,
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_getDefaultGenerator": lambda index: machine.generators[index],
        "_accelerator_getMemoryInfo": lambda index: memory_info(machine, index),
        "_accelerator_getStream": current,
        "_accelerator_setStream": streams.select,
    }
    for name, twin in TWINS.items():
        functions[name] = functions[twin]
    return functions | collectives(machine)


def ids(stream: Stream) -> tuple:
    """What PyTorch's C functions tell of a stream."""
    return stream.stream_id, stream.device_index, stream.device_type


def collectives(machine: Machine) -> dict:
    """The copies between devices beneath ``nn.DataParallel``, made of ordinary copies."""

    def on(index):
        return CPU if index == -1 else machine.device(index)

    def scatter(tensor, devices, sizes=None, dim=0, streams=None):
        chunks = (
            tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
        )
        return tuple(chunk.to(on(index)) for chunk, index in zip(chunks, devices, strict=False))

    return {
        "_scatter": scatter,
        "_gather": lambda tensors, dim, index=None: torch.cat(
            [t.to(on(index)) for t in tensors], dim
        ),
        "_broadcast": lambda tensor, devices: tuple(tensor.to(on(index)) for index in devices),
        "_broadcast_coalesced": lambda tensors, devices, size: [
            [t.to(on(i)) for t in tensors] for i in devices
        ],
    }


def memory_info(machine: Machine, device: int | None = None) -> tuple:
    """(free, total) bytes of a device, as ``torch.cuda.mem_get_info``."""
    if device is not None and device < -1:
        raise invalid_device()
    allocator = machine.allocators[machine.device(None if device == -1 else device).index]
    return allocator.capacity - allocator.now("reserved_bytes"), allocator.capacity


def properties(machine: Machine, index: int) -> Any:
    """What ``torch.cuda.get_device_properties`` says of a practice GPU: what the card that is named has, else an A100's."""
    card = get_card(machine.settings.card or DEFAULT)
    name, (major, minor), processors, cache, clock, memory_clock, bus = card.device
    if machine.settings.card is None:
        name = NAME
    threads, shared = SHARED[(major, minor)]
    return Properties(
        name=name,
        major=major,
        minor=minor,
        total_memory=machine.capacity,
        multi_processor_count=processors,
        L2_cache_size=int(cache * MIB),
        clock_rate=int(clock * 1000),
        memory_clock_rate=int(memory_clock * 1000),
        memory_bus_width=bus,
        max_threads_per_multi_processor=threads,
        shared_memory_per_multiprocessor=shared * KIB,
        shared_memory_per_block_optin=(shared - (shared > 99)) * KIB if major > 6 else 48 * KIB,
        shared_memory_per_block=48 * KIB,
        reserved_shared_memory_per_block=KIB if major >= 8 else 0,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        warp_size=64 if "AMD" in name else 32,
        gcnArchName=name,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid=uuid.UUID(int=index),
        pci_bus_id=index,
        pci_device_id=0,
        pci_domain_id=0,
    )


class Properties(SimpleNamespace):
    """``torch.cuda.get_device_properties(…)``, printed as PyTorch does."""

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, total_memory="
            f"{self.total_memory // MIB}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
            f"L2_cache_size={self.L2_cache_size // MIB}MB)"
        )


Properties.__name__ = "_CudaDeviceProperties"


def initialization(machine: Machine) -> Callable:
    """``torch.cuda._lazy_init``, which PyTorch calls before it asks the driver: the first time what waits for it is done."""

    def lazy_init():
        if not machine.local.has_modes:
            raise RuntimeError(OTHER_THREAD.format(machine.thread.name))
        if machine.forked:
            raise RuntimeError(FORKED)
        if not machine.initialized:
            machine.initialized = torch.cuda._initialized = True
            for waiting in (*torch.cuda._queued_calls, *torch.cuda._lazy_seed_tracker.get_calls()):
                if waiting:
                    waiting[0]()

    return lazy_init


def names(machine: Machine) -> dict:
    """Name in ``torch.cuda`` → replacement, where PyTorch's own function would go past those of `answers`."""
    streams = machine.streams
    table = answers(machine)
    found = [properties(machine, index) for index in range(machine.n)]
    return {
        "device_count": lambda: machine.n,
        "_device_count_nvml": lambda: machine.n,
        "_cached_device_count": machine.n,
        "_initialized": False,
        "_queued_calls": [],
        "_lazy_seed_tracker": type(torch.cuda._lazy_seed_tracker)(),
        "_lazy_init": initialization(machine),
        "_is_in_bad_fork": lambda: machine.forked,
        "_get_device_properties": lambda index: found[index],
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda device=None: memory_info(machine, get_index(device, optional=True)),
        "_exchange_device": table["_cuda_exchangeDevice"],
        "_maybe_exchange_device": table["_cuda_maybeExchangeDevice"],
        "default_generators": tuple(machine.generators),
        "Stream": streams.Stream,
        "Event": streams.Event,
    }
