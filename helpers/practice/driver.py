"""What stands in for the CUDA driver: the C functions beneath ``torch.cuda``, ``torch.accelerator`` and DataParallel.

PyTorch's own Python code keeps running above them (``torch.cuda.device``, ``memory_summary``, ``nn.DataParallel`` …),
so arguments are checked and texts are worded by PyTorch itself.
"""
from types import SimpleNamespace

import torch

from .machine import CPU

NAME = "Practice GPU (simulated on the CPU)"


def answers(machine):
    """Name in ``torch._C`` → function."""
    def exchange(index):
        before = machine.current
        if index >= 0:
            machine.select(index)
        return before

    def books(index):
        if not 0 <= index < machine.n:
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return machine.allocators[index]

    table = {
        "_cuda_getDeviceCount": lambda: machine.n, "_cuda_sleep": machine.sleep,
        "_cuda_getDevice _accelerator_getDeviceIndex": lambda: machine.current,
        "_cuda_setDevice _accelerator_setDeviceIndex": machine.select,
        "_cuda_exchangeDevice _cuda_maybeExchangeDevice": exchange, "_cuda_getArchFlags": lambda: "sm_80",
        "_accelerator_exchangeDevice _accelerator_maybeExchangeDevice": exchange,
        "_cuda_synchronize _accelerator_synchronizeDevice": machine.synchronize,
        "_cuda_emptyCache _accelerator_emptyCache": machine.empty_cache,
        "_cuda_memoryStats _accelerator_getDeviceStats": lambda index: books(index).stats(),
        "_cuda_resetPeakMemoryStats _accelerator_resetPeakStats": lambda index: books(index).reset(True),
        "_cuda_resetAccumulatedMemoryStats _accelerator_resetAccumulatedStats": lambda index: books(index).reset(False),
        "_cuda_setMemoryFraction": lambda fraction, index: books(index).set_fraction(fraction),
        "_cuda_getMemoryFraction": lambda index: books(index).fraction, "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_canDeviceAccessPeer": lambda one, other: one != other, "_cuda_hasPrimaryContext": lambda index: True,
        "_cuda_set_sync_debug_mode": lambda mode: setattr(machine, "sync_debug", mode),
        "_cuda_get_sync_debug_mode": lambda: machine.sync_debug, "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_emptyHostCache _cuda_ipc_collect": lambda: None,
        "_accelerator_getMemoryInfo": lambda index: memory_info(machine, index),
        "_accelerator_getStream": machine.streams.current, "_accelerator_setStream": machine.streams.select,
    }
    return {name: function for both, function in table.items() for name in both.split()} | collectives(machine)


def collectives(machine):
    """The copies between devices beneath ``nn.DataParallel``, made of ordinary copies."""
    def on(index):
        return CPU if index == -1 else machine.device(index)

    def scatter(tensor, devices, sizes=None, dim=0, streams=None):
        chunks = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
        return tuple(chunk.contiguous().to(on(index)) for chunk, index in zip(chunks, devices, strict=False))

    def scatter_out(tensor, out, dim, streams=None):
        parts = tensor.split([each.size(dim) for each in out], dim)
        return tuple(each.copy_(part) for each, part in zip(out, parts, strict=True))
    return {
        "_scatter": scatter, "_scatter_out": scatter_out,
        "_gather": lambda tensors, dim, index=None: torch.cat([t.to(on(index)) for t in tensors], dim),
        "_gather_out": lambda tensors, out, dim: out.copy_(torch.cat([t.to(out.device) for t in tensors], dim)),
        "_broadcast": lambda tensor, devices: tuple(tensor.to(on(index)) for index in devices),
        "_broadcast_out": lambda tensor, out: tuple(each.copy_(tensor) for each in out),
        "_broadcast_coalesced": lambda tensors, devices, size: [
            [t.to(on(index)) for t in tensors] for index in devices],
    }


def memory_info(machine, device=None):
    """(free, total) bytes of a device, as ``torch.cuda.mem_get_info``."""
    allocator = machine.allocators[machine.device(device).index]
    return allocator.capacity - allocator.now("reserved_bytes"), allocator.capacity


def names(machine):
    """Name in ``torch.cuda`` (and where PyTorch repeats it) → replacement."""
    numbers, streams, table = torch.default_generator, machine.streams, answers(machine)
    properties = SimpleNamespace(
        name=NAME, major=8, minor=0, total_memory=machine.capacity, multi_processor_count=1, warp_size=32, uuid=NAME,
        max_threads_per_multi_processor=1024, regs_per_multiprocessor=65536, is_integrated=0, is_multi_gpu_board=0,
        gcnArchName=NAME, L2_cache_size=0)

    def seed(value=None):
        numbers.seed() if value is None else numbers.manual_seed(value)

    return {
        "is_available": lambda: True, "device_count": lambda: machine.n, "is_initialized": lambda: True,
        "init": lambda: None, "_lazy_init": lambda: None, "_is_compiled": lambda: True,
        "_is_in_bad_fork": lambda: False, "_lazy_call": lambda call, **options: call(),
        "_get_device_properties": lambda index: properties, "get_arch_list": lambda: ["sm_80"],
        "is_current_stream_capturing": lambda: False, "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: memory_info(machine, device),
        "_exchange_device": table["_cuda_exchangeDevice"], "_maybe_exchange_device": table["_cuda_exchangeDevice"],
        "manual_seed": seed, "manual_seed_all": seed, "seed": seed, "seed_all": seed,
        "initial_seed": numbers.initial_seed,
        "get_rng_state": lambda device=None: numbers.get_state(),
        "set_rng_state": lambda state, device=None: numbers.set_state(state) and None,
        "get_rng_state_all": lambda: [numbers.get_state()] * machine.n,
        "set_rng_state_all": lambda states: numbers.set_state(states[0]) and None,
        "Stream": streams.Stream, "Event": streams.Event, "set_stream": streams.select,
        "current_stream": streams.current,
        "default_stream": lambda device=None: streams.default[machine.device(device).index],
    }
