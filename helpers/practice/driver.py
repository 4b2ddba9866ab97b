"""What stands in for the CUDA driver: the C functions beneath ``torch.cuda``, ``torch.accelerator`` and DataParallel.

PyTorch's own Python code keeps running above them (``torch.cuda.device``, ``memory_summary``, ``nn.DataParallel`` …), so
arguments are checked and texts are worded by PyTorch itself.
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

    def empty():
        for allocator in machine.allocators:
            allocator.release_cached()

    both = {  # the end of the name after _cuda_, the one after _accelerator_, what they do
        ("getDevice", "getDeviceIndex"): lambda: machine.current, ("setDevice", "setDeviceIndex"): machine.select,
        ("exchangeDevice", "exchangeDevice"): exchange, ("maybeExchangeDevice", "maybeExchangeDevice"): exchange,
        ("synchronize", "synchronizeDevice"): machine.synchronize, ("emptyCache", "emptyCache"): empty,
        ("memoryStats", "getDeviceStats"): lambda index: books(index).stats(),
        ("resetPeakMemoryStats", "resetPeakStats"): lambda index: books(index).reset(True),
        ("resetAccumulatedMemoryStats", "resetAccumulatedStats"): lambda index: books(index).reset(False),
    }
    cuda = {
        "getDeviceCount": lambda: machine.n, "getArchFlags": lambda: "sm_80", "getAllocatorBackend": lambda: "native",
        "setMemoryFraction": lambda fraction, index: books(index).set_fraction(fraction),
        "getMemoryFraction": lambda index: books(index).fraction, "hasPrimaryContext": lambda index: True,
        "canDeviceAccessPeer": lambda first, second: first != second, "ipc_collect": lambda: None,
        "sleep": machine.sleep, "set_sync_debug_mode": lambda mode: setattr(machine, "sync_debug", mode),
        "get_sync_debug_mode": lambda: machine.sync_debug,
    }
    accelerator = {
        "getAccelerator": lambda: torch.device("cuda"), "isAllocatorInitialized": lambda: True,
        "emptyHostCache": lambda: None, "getMemoryInfo": lambda index: memory_info(machine, index),
        "getStream": machine.streams.current, "setStream": machine.streams.select,
    }
    pairs = [(("_cuda_" + first, f), ("_accelerator_" + second, f)) for (first, second), f in both.items()]
    return dict(sum(pairs, ())) | {f"_cuda_{name}": f for name, f in cuda.items()} | {
        f"_accelerator_{name}": f for name, f in accelerator.items()} | collectives(machine)


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
        "_broadcast_coalesced": lambda tensors, devices, size: [[t.to(on(index)) for t in tensors] for index in devices],
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
        "manual_seed": seed, "manual_seed_all": seed, "seed": seed, "seed_all": seed, "initial_seed": numbers.initial_seed,
        "get_rng_state": lambda device=None: numbers.get_state(),
        "set_rng_state": lambda state, device=None: numbers.set_state(state) and None,
        "get_rng_state_all": lambda: [numbers.get_state()] * machine.n,
        "set_rng_state_all": lambda states: numbers.set_state(states[0]) and None,
        "Stream": streams.Stream, "Event": streams.Event, "set_stream": streams.select,
        "current_stream": streams.current,
        "default_stream": lambda device=None: streams.default[machine.device(device).index],
    }
