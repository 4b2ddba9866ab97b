"""How fast a card does one kernel's work: a roofline with one set of constants for all cards, none of them fitted."""

from __future__ import annotations

import math

from practice_gpus.cards import COMPUTE, MEMORY, Card
from practice_gpus.clock.log import Reduce
from practice_gpus.clock.work import Work

CHANNELS_LAST = 0.8  # of the bandwidth (`MEMORY`), for images whose channels are next to each other
SHORTEST = 3e-6  # seconds of the shortest kernel
LOW_POWER = 0.6  # of its peak that a card of 75 W or less sustains: it cannot hold its boost clock
WATTS = 75
# Of tensor cores that are faster than `FULL` times the card's float32 (on GeForce cards they run at half of that), convolutions
# and fused attention reach less than products do. VGG-16's convolutions on a V100: 0.49 to 0.55 of 125 TFLOP/s
# (kexinzhao/Paddle_benchmark@1e5a0ed, "time spent on conv op", 16 and 32 images). FlashAttention-2 on an A100: 0.57 to 0.60
# (liangan1/GPU_travel@bc68a95); scaled_dot_product_attention on an H100: 0.29 to 0.31 (pytorch/benchmark#2296).
FULL = 3
CONVOLUTION = 0.5
ATTENTION = 0.45
# A product's result is computed in tiles, each by one SM, wave after wave: the last wave, or the only one, may leave SMs idle
# (NVIDIA, Matrix Multiplication Background, "Wave Quantization"; 128 × 64 is the middle of its list of tiles). float32 of 1024³
# reaches 0.58 of what that of 8192³ does on an A100's 108 SMs, 0.81 on an H20's 78, all of it on an RTX 4090's 128 (the table
# matmul_sizes); 128 tiles give 0.59, 0.82 and 1. A sum that is longer than the result is wide is split among SMs.
TILE = 128 * 64
RESULT = {"fp64": 8, "fp32": 4, "tf32": 4, "int8": 4}  # bytes of a result; 2 of the others
# A depthwise convolution loads a number for each element of its filter. Share of the float32 peak: 0.12 on an H100 (5 × 5 in
# float16, pytorch/pytorch#125362), on an A100 0.06 to 0.08 (3 × 3, #18631).
DEPTHWISE, DEPTHWISE_A100 = 0.12, 0.07
# Without tensor cores cuDNN computes a 3 × 3 convolution of float32 by Winograd's algorithm, with fewer multiplications. Share of
# the float32 peak by the direct count, in DeepBench's tables (baidu-research/DeepBench@da81ba7, results/train, which name the
# algorithm): 1.41 forward, 1.43 and 1.57 backward on a V100 and a P100, 1.5 on a 1080 Ti; others 0.44 to 0.67.
WINOGRAD, DIRECT = 1.4, 0.6
# What the L2 cache holds comes faster than the bandwidth of GDDR memory: 5.9 times on an L40 (te42kyfo/gpu-benches@1c36d50,
# gpu-small-kernels), 3.6 on an RTX 4090 (smallscientist1/cuda_microbenchmark). Beside HBM it is 1.3 (H200) to 1.9 (A100): as memory.
CACHED = 4.0
HBM = 1024  # bits of a bus that only stacks of HBM have
# Products on AMD's cards: 668 of 1,307 TFLOP/s on an MI300X (mamf-finder of stas00/ml-engineering@744d01e).
AMD = 0.51


def sustained(card: Card) -> float:
    """The share of its peak rates that a card's power lets it hold."""
    return LOW_POWER if card.watts <= WATTS else 1.0


# Seconds until an exchange is under way: in a machine (8 H200, 1 MiB: 46 µs; 8 A100: 102) and between machines (32 B200, 1 MiB:
# 380 µs; there 1 GiB goes at 362 GB/s, near the 400 of eight cards for the network): all_reduce_nodes, stas00/ml-engineering.
NEAR, FAR = 60e-6, 350e-6
# Up to 64 KiB in a machine, as tensor parallelism sends for one token: 10 to 34 µs by NCCL on 2 to 8 A100 (NVIDIA/nccl-tests#123),
# 9 to 12 by the kernel of vLLM on 2 to 8 H100 (sgl-project/sglang#2904).
LITTLE, SMALL = 15e-6, 1 << 16
# Several GPUs wait for the slowest: on eight V100 steps of four networks took 7 to 10 % more than on one without DDP, of which
# sending explains 1 (pytorch/pytorch, benchmarks/distributed/ddp).
TOGETHER = 1.06


def reached(work: Work, card: Card) -> float:
    """The share of the peak of its type that a kernel reaches."""
    share = AMD if card.name.startswith("MI") else COMPUTE
    if full(work, card):
        kinds = {"convolution": CONVOLUTION, "attention": ATTENTION}
        share = min([share, *(most for kind, most in kinds.items() if kind in work.name)])
    if "depthwise" in work.name:
        share = DEPTHWISE_A100 if card.name.startswith("A100") else DEPTHWISE
    elif "convolution" in work.name and card.peak(work.unit) == card.peak("fp32"):
        share = (WINOGRAD if work.winograd else DIRECT) * filled(work, card)
    elif "attention" not in work.name:
        share *= filled(work, card)
    return share * work.useful * sustained(card)


def full(work: Work, card: Card) -> bool:
    """Whether a kernel runs on tensor cores that aren't held at half their rate."""
    return card.peak(work.unit) > FULL * card.peak("fp32")


def filled(work: Work, card: Card) -> float:
    """The share of the card's SMs that the tiles of a product's result keep busy."""
    result = sum(size for _, size in work.writes[:1]) / RESULT.get(work.unit, 2)
    if not result:
        return 1.0
    inner = work.flops / 2 / result
    tiles = math.ceil(result / TILE) * max(1, int(inner / math.sqrt(result)))
    multiprocessors = card.device[2]
    return tiles / (math.ceil(tiles / multiprocessors) * multiprocessors)


def limits(work: Work, card: Card, shortest: float = SHORTEST, cached: int = 0) -> dict[str, float]:
    """Seconds that each limit alone would allow, where ``cached`` of the bytes are in the L2: {"compute", "memory", "launch"}."""
    share = CHANNELS_LAST if work.channels_last else MEMORY
    compute = 0.0
    if work.flops:
        compute = work.flops / (reached(work, card) * card.peak(work.unit))
    moved = work.bytes - (0 if card.device[-1] > HBM else cached * (1 - 1 / CACHED))
    memory = moved / (share * card.bandwidth * 1e9)
    if work.turned and full(work, card):  # not seen where products leave tensor cores at half rate
        turning = 2 * work.turned / (MEMORY * card.bandwidth * 1e9)
        compute, memory = compute + turning, memory + turning
    return {"compute": compute, "memory": memory, "launch": shortest * work.launches}


def copy_seconds(size: int, card: Card, pinned: bool) -> float:
    """Seconds of a copy of ``size`` bytes between CPU and GPU."""
    rate = MEMORY * card.pcie if pinned else min(card.pageable, MEMORY * card.pcie)
    return SHORTEST + size / (rate * 1e9)


def link_seconds(size: int, card: Card) -> float:
    """Seconds of a copy between two GPUs: by NVLink, else by the bus."""
    return SHORTEST + size / (MEMORY * (card.nvlink or card.pcie) * 1e9)


def exchange_seconds(sent: Reduce, card: Card) -> float:
    """Seconds of an all-reduce, a gather or a scatter: its share of the bytes at the rate of the slowest link, after a start."""
    rate = card.bus or MEMORY * (card.nvlink or card.pcie)
    start = LITTLE if sent.bytes <= SMALL else NEAR
    if sent.gpus > sent.per_node:
        rate, start = min(rate, sent.nic * sent.per_node), FAR
    return start + sent.times * (sent.gpus - 1) / sent.gpus * sent.bytes / (rate * 1e9)
