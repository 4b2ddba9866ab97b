"""The rules by which a trace is judged: what each thing must cost at least to be named, why so much, and the change."""

from __future__ import annotations

from typing import NamedTuple

NOTHING, UNCLEAR = "nothing", "unclear"
LOST = 0.1  # of the launches without a kernel: whole recordings lose none, those of graph captures 39 to 99 %
FEWEST = 3  # GPU events: of two, one can't tell a habit
TINY = 200.0  # µs: a collective that is shorter moves so little that its latency decides


class Rule(NamedTuple):
    """`cost` must take the share `least` of the time. `saves` is how much of it the change saves at best."""

    cost: str
    kind: str  # of the verdict
    least: float
    saves: float
    says: str
    change: str
    why: str  # least and saves


RULES = (
    Rule("late", "communication", 0.1, 1, "the ranks wait for rank {last}, whose collectives are the shortest",
         "find out what makes rank {last} late", "a late rank stretches everyone's step, so it is looked for first"),
    Rule("start", "waits", 0.1, 1, "the GPU waits for what happens only once, in {call}: CUDA starts, or code is loaded or compiled",
         "leave the first steps out, by profile(schedule=schedule(wait=1, warmup=2, active=3)), and record again",
         "what happens once says nothing of a step; on an idle GPU, a launch of 1 ms loads code first"),
    Rule("loader", "loader", 0.1, 1, "the GPU waits for the DataLoader",
         "give the DataLoader workers: num_workers=4, or more if it has some", "a tenth is worth a change of one line"),
    Rule("allocator", "waits", 0.1, 1, "the GPU waits while the CPU is in {call}",
         "let the caching allocator keep its memory: no empty_cache() in the loop, no *_NO_*_MEMORY_CACHING, and room",
         "a caching allocator asks the driver in the first steps only"),
    Rule("sync", "waits", 0.1, 1, "the GPU runs dry, because the CPU waits for {call}",
         "read values of the GPU later or less often: .item(), .cpu(), print", "a tenth, as for the loader"),
    Rule("missing", UNCLEAR, 0.1, 1, "the GPU looks idle while the CPU waits for it in {call}",
         "record again, fewer steps: some work of the GPU isn't in this trace, or its two clocks disagree",
         "who waits for an idle GPU comes back at once, so 1 ms is too long"),
    Rule("host", "waits", 0.1, 1, "the GPU waits while the CPU is in {call}",
         "prepare that ahead of time in another process, or do it on the GPU", "a tenth, as for the loader"),
    Rule("unrecorded", UNCLEAR, 0.1, 1, "the GPU is idle, and the CPU, which knows why, isn't recorded",
         "record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]", "a tenth, as for the loader"),
    Rule("launches", "launches", 0.1, 1, "the GPU waits for the CPU to launch the next kernel",
         "make fewer and larger kernels: a larger batch, torch.compile, or a CUDA graph",
         "profiling makes launches slower, so less than a tenth may not be there without it"),
    Rule("communication", "communication", 0.1, 1, "the GPU only communicates, or waits for the next collective",
         "{overlap}", "overlap can hide all of what is exposed, if there is work to hide it behind"),
    Rule("copies", "copies", 0.1, 1, "the GPU copies, or waits for launches after copies that block the CPU",
         "{copies}", "a tenth, as for the loader"),
    Rule("softmax", "kernels", 0.1, 0.75, "softmax runs as a kernel of its own, so attention is written by hand",
         "F.scaled_dot_product_attention, which keeps the scores on the chip",
         "fused, attention takes about a quarter; the softmax of a loss is left out"),
    Rule("unfused", "kernels", 1 / 3, 0.5, "elementwise kernels run one after another",
         "torch.compile, which fuses them", "fused, two kernels read and write once; a CNN in training spends a fifth on them"),
    Rule("normalization", "kernels", 1 / 3, 0.5, "kernels of normalization run",
         "torch.compile or a fused norm, and channels_last for convolutions", "as for elementwise kernels"),
)  # fmt: skip
