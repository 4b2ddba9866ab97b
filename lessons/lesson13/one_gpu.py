"""Recorded patients with one GPU. Every number stands in their traces (`measurements/traces`), with its source."""

from lessons import reading
from lessons.lesson13 import evidence
from lessons.lesson13.patient import Patient

ONE_GPU = (
    Patient(
        "starved",
        "1a",
        "a V100 with nothing to do",
        0.3296,
        evidence.longest_gap,
        "gaps(trace)[0][1] / trace.length",
        (
            (
                lambda t: reading.gaps(t)[0][1],
                "That's the gap in µs. What share of the step is it?",
            ),
            (evidence.idle, "That's all idle time together. Take the longest gap alone."),
        ),
        "c",
        {
            "a": "In the gap, nothing is launched at all; after it, kernels wait 8 ms in the queue, so launching is fast enough.",
            "b": "The copy (amber) takes 1.9 ms and comes after the gap, which takes 57.",
            "d": "While Optimizer.step launches its kernels (from 155 ms on), the GPU is still busy.",
        },
        (
            "`gaps(trace)` returns pairs of start and length, the longest first.",
            "Divide the length of the first gap by `trace.length`.",
            "Measure the gap with the strip below the timeline and read what the CPU did. b and d don't happen in it.",
        ),
        "the loader takes 57 of the 174 ms. With num_workers=4, the same job was recorded at 127 ms a step and 80% busy.",
    ),
    Patient(
        "waiting",
        "3",
        "an RTX 2080 Ti in fits and starts",
        0.8658,
        evidence.in_loader,
        'sum(t for name, t in on_cpu(trace, 0, trace.length).items() if "DataLoader" in name) / trace.length',
        (
            (
                evidence.idle,
                "That's how long the GPU is idle. How long does the CPU wait for the DataLoader?",
            ),
            (lambda t: evidence.in_loader(t) * t.length, "That's in µs. Divide by trace.length."),
        ),
        "a",
        {
            "c": "The span is called _MultiProcessingDataLoaderIter.__next__: there are workers, and the main process waits for them.",
            "b": "The three copies of 77 MB take 51 ms, 4% of the window. Pinned memory would help, but not with the other 87%.",
            "d": "Inside a step, the GPU is 99% busy and done after some 140 ms. The waits between steps take up to 613.",
        },
        (
            "`on_cpu(trace, 0, trace.length)` returns a dict: what the CPU did, and for how many µs.",
            'Add up the times of the names that contain "DataLoader", and divide by `trace.length`.',
            "Read that name to its end: it tells whether there are workers. Then compare copies and waits.",
        ),
        "the workers can't keep up: 87% of the time goes by waiting for them. More workers, or images that are decoded and "
        "resized once and for all; after that, pinned memory.",
    ),
    Patient(
        "tiny",
        "4a",
        "an H100 on a small job",
        0.0773,
        evidence.busy,
        "busy_share(trace)",
        ((evidence.idle, "That's the idle share."),),
        "a",
        {
            "b": "All kernels together take 0.3 of 3.9 ms. If they took no time at all, the step would be 8% shorter.",
            "c": "There's no loader and no copy to the GPU in these 3.9 ms.",
            "d": "With a full queue, kernels wait long after their launch. These start 6.5 µs after it: the queue is empty.",
        },
        (
            "One of the functions above answers it in one call.",
            "`busy_share(trace)`",
            "`launch_delay(trace)` rules out d; so do the almost vertical lines from launches to kernels.",
        ),
        "overhead-bound: 61 kernels of 5 µs each, one every 64 µs. A larger batch gives each launch more to do; a CUDA graph "
        "makes one launch of all: case 4b runs 425 kernels of an MI300X that way, busy for more than 99% of the time.",
    ),
    Patient(
        "freed",
        "6",
        "an MI300X at 13%",
        0.984,
        evidence.in_free,
        'on_cpu(trace, 0, trace.length)["hipFree"] / trace.length',
        (
            (lambda t: evidence.in_free(t) * t.length, "That's in µs. Divide by trace.length."),
            (
                lambda t: sum(s.name == "hipFree" for s in t.cpu),
                "That counts the calls; how long do they take?",
            ),
        ),
        "d",
        {
            "a": "A leak frees too little. This program frees all the time.",
            "b": "Retries come in bursts: PyTorch empties its cache once, tries again, and goes on without hipFree for a while. Here "
            "the CPU is hardly ever outside of it.",
            "c": "The kernels of the whole step take 13% of the time.",
        },
        (
            "`on_cpu(trace, 0, trace.length)` lists what the CPU did.",
            'Take the entry "`hipFree`" and divide it by `trace.length`.',
            "The caching allocator keeps freed memory, so that in steady state neither `hipMalloc` nor `hipFree` is called.",
        ),
        "the caching allocator is off, so each tensor goes back to the driver, and a call takes 3.4 ms on average. (Inferred: the file "
        "has some 290 hipMalloc and 270 hipFree a step, and no_pool in its name.) Unset PYTORCH_NO_HIP_MEMORY_CACHING, or "
        "PYTORCH_NO_CUDA_MEMORY_CACHING on NVIDIA.",
    ),
    Patient(
        "scores",
        "10",
        "an H100 that is 99% busy",
        63.74,
        evidence.scores_tflops,
        "per_second(product_flops(3137, 64, 3137, batch=96), 1897) / 1e12",
        (
            (
                lambda t: evidence.scores_tflops(t) / 2,
                "A product takes two operations for each pair: multiply and add.",
            ),
            (lambda t: evidence.scores_tflops(t) * 1e12, "Those are FLOP/s; in TFLOP/s, please."),
            (lambda t: evidence.scores_tflops(t) / 96, "That's for one of the 96 products."),
        ),
        "b",
        {
            "a": "Busy isn't fast: this product reaches 6% of the card's 989 TFLOP/s, and the linear layers here reach about 70%.",
            "c": "The copy takes 3.5 of 160 ms.",
            "d": "Kernels start 63 ms after their launch: the queue is full.",
        },
        (
            "The batch is 96 products of [3137, 64] and [64, 3137]. One takes 1,897 µs for all 96.",
            "`product_flops(3137, 64, 3137, batch=96)` counts the operations; `per_second` divides by the time.",
            "What do softmax, the two products and the scaling have in common? The shape [8, 12, 3137, 3137].",
        ),
        "eager attention: it writes 3137 × 3137 scores per head, 1.89 GB in all, and reads them again for every step of the "
        "formula; and 3137 isn't a multiple of 8, so the products fall back to slow kernels (align1 in their name). "
        "scaled_dot_product_attention never writes the scores.",
    ),
    Patient(
        "unfused",
        "11",
        "an H100 that reads 16 texts",
        0.5441,
        evidence.elementwise,
        'share_by_kind(trace)["elementwise"]',
        (
            (lambda t: evidence.elementwise(t) * 100, "As a share, from 0 to 1."),
            (lambda t: reading.share_by_kind(t)["matmul"], "That's the share of the products."),
        ),
        "d",
        {
            "a": "The GPU is 91% busy, and kernels start 1.2 ms after their launch: it's hardly waiting for the CPU.",
            "c": "Attention (a fused kernel) has 8.5% of the kernel time.",
            "b": "The products have 28% of the kernel time. Twice as fast, they'd save a seventh.",
        },
        (
            "`share_by_kind(trace)` returns a dict of kinds.",
            'Its entry "elementwise".',
            "Which kind takes most of the time? And what limits a kernel that does one operation for each number it reads?",
        ),
        "memory-bound: half the time goes into kernels that read a tensor, do next to nothing and write it back. torch.compile "
        "fuses them, so that the tensor makes the trip once.",
    ),
)
