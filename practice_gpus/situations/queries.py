"""Questions about devices; answers that depend on the GPU's model are asked for their type only."""

from __future__ import annotations

from typing import Any

import torch

from practice_gpus.situations.registry import CODE, DOCS, situation, table

CUDA = DOCS + "cuda.html"
QUERIES = CODE + "torch/cuda/__init__.py"
ACCELERATOR = DOCS + "accelerator.html"

ONE_GPU = {
    "is_available": lambda: torch.cuda.is_available(),
    "is_initialized": lambda: torch.cuda.is_initialized(),
    "init again": lambda: torch.cuda.init(),
    "device_count": lambda: (type(torch.cuda.device_count()), torch.cuda.device_count() > 0),
    "name of the device": lambda: (
        type(torch.cuda.get_device_name()),
        torch.cuda.get_device_name(0) != "",
    ),
    "capability": lambda: [type(n) for n in torch.cuda.get_device_capability()],
    "name and properties agree": lambda: (
        torch.cuda.get_device_name() == torch.cuda.get_device_properties().name
    ),
    "arch list": lambda: type(torch.cuda.get_arch_list()),
    "is_bf16_supported": lambda: type(torch.cuda.is_bf16_supported()),
    "peer access past the last": lambda: torch.cuda.can_device_access_peer(0, 99),
    "current device": lambda: torch.cuda.current_device(),
}
table(CUDA, ONE_GPU)
TWO_GPUS = {
    "device_count of two": lambda: torch.cuda.device_count() >= 2,
    "peer access": lambda: type(torch.cuda.can_device_access_peer(0, 1)),
}
table(CUDA, TWO_GPUS, gpus=2)


@situation(CUDA)
def capability_and_properties_agree() -> Any:
    properties = torch.cuda.get_device_properties("cuda:0")
    return (properties.major, properties.minor) == torch.cuda.get_device_capability(0)


@situation(CUDA)
def properties() -> Any:
    gpu = torch.cuda.get_device_properties(0)
    return type(gpu.name), type(gpu.total_memory), type(gpu.multi_processor_count)


REFUSED = {
    "name past the last": lambda: torch.cuda.get_device_name(99),
    "properties past the last": lambda: torch.cuda.get_device_properties(99),
    "properties of the CPU": lambda: torch.cuda.get_device_properties("cpu"),
    "capability past the last": lambda: torch.cuda.get_device_capability(99),
}
table(QUERIES, REFUSED)
ACCELERATORS = {
    "accelerator": lambda: torch.accelerator.current_accelerator(),
    "accelerator index": lambda: torch.accelerator.current_accelerator().index,
    "accelerator is_available": lambda: torch.accelerator.is_available(),
    "accelerator device_count": lambda: (
        torch.accelerator.device_count() == torch.cuda.device_count()
    ),
    "accelerator current device": lambda: torch.accelerator.current_device_index(),
    "ones on the accelerator": lambda: (
        torch.ones(1, device=torch.accelerator.current_accelerator()).device
    ),
    "device module": lambda: torch.get_device_module("cuda") is torch.cuda,
    "accelerator past the last": lambda: torch.accelerator.set_device_index(99),
}
table(ACCELERATOR, ACCELERATORS)
