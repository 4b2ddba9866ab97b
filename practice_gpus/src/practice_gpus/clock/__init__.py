"""A clock for practice GPUs: how long a step would take on a card, and why.

    with practice_gpus(1, card="RTX 4090", values=False) as gpus:
        model = Net().cuda()
        x = torch.empty(256, 3, 224, 224, device="cuda")
        f = gpus.forecast(lambda: model(x))
    print(f)                       # forecast: 41 ms on RTX 4090 (24 GB) (27 to 62), memory
    f.on("T4").ms                  # the same step on another card

A kernel's time is max(bytes / (0.75 · bandwidth), FLOPs / (0.8 · peak of its type), 3 µs); the CPU issues an operator in 30 µs;
the queues of the streams are simulated. `work` counts bytes and FLOPs, `log` notes what the CPU does, `cache` what the L2 holds;
`kernel_times` and `cpu` give times, `queue` plays the log on a card, `change` fuses and scales, `forecast` holds the result,
`trace` draws it for Perfetto.
"""

from practice_gpus.clock import steps
from practice_gpus.clock.adapters import lora, recomputed
from practice_gpus.clock.cpu import ISSUE, Cpu, cpu_file
from practice_gpus.clock.forecast import PROMISE, Forecast, forecast
from practice_gpus.clock.kernel_times import limits
from practice_gpus.clock.log import Copy, Host, Launch, Log
from practice_gpus.clock.questions import largest_batch
from practice_gpus.clock.queue import Queue
from practice_gpus.clock.work import Work

__all__ = [
    "Copy",
    "Cpu",
    "Forecast",
    "Host",
    "ISSUE",
    "Launch",
    "Log",
    "PROMISE",
    "Queue",
    "Work",
    "cpu_file",
    "forecast",
    "largest_batch",
    "limits",
    "lora",
    "recomputed",
    "steps",
]
