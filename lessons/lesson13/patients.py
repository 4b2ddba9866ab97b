"""The twelve recorded patients in the order of the lesson. Their numbers stand in `measurements/traces`, with sources."""

from lessons.lesson13.patient import Patient

PATIENTS = (
    Patient(
        "starved",
        "1a",
        "a V100 with nothing to do",
        0.3296,
        "gaps(trace)[0][1] / trace.length",
        {57340: "That's the gap in µs; divide by trace.length.", 0.4278: "That's all idle time."},
        "c",
        {
            "a": "In the gap, nothing is launched at all. After it, kernels wait 8 ms in the queue: launching is fast enough.",
            "b": "The copy (amber) takes 1.9 ms and comes after the gap, which takes 57.",
            "d": "While Optimizer.step launches its kernels (from 155 ms on), the GPU is still busy.",
        },
        "the loader. It keeps the main process busy for 69 ms, and for 57 of them the GPU has nothing to do. "
        "The cure is `num_workers`: you'll see this patient again at the end.",
    ),
    Patient(
        "waiting",
        "3",
        "an RTX 2080 Ti in fits and starts",
        0.8658,
        'sum(us for name, us in on_cpu(trace, 0, trace.length).items() if "DataLoader" in name) / trace.length',
        {
            0.7667: "That's how long the GPU is idle.",
            1215551: "That's in µs; divide by trace.length.",
        },
        "a",
        {
            "c": "The span is called _MultiProcessingDataLoaderIter.__next__: there are workers, and the main process waits for them.",
            "b": "The three copies of 77 MB take 51 ms, 4% of the window. Pinned memory would help, but not with the other 87%.",
            "d": "Inside a step, the GPU is 99% busy and done after some 140 ms. The waits between steps take up to 613.",
        },
        "the workers can't keep up. 87% of the time goes into waiting for them. Use more workers, or decode and resize the "
        "images once and for all; then pin the memory.",
    ),
    Patient(
        "tiny",
        "4a",
        "an H100 on a small job",
        0.0773,
        "busy_share(trace)",
        {0.9227: "That's the idle share."},
        "a",
        {
            "b": "All kernels together take 0.3 of 3.9 ms. If they took no time at all, the step would be 8% shorter.",
            "c": "There's no loader and no copy to the GPU in these 3.9 ms.",
            "d": "With a full queue, kernels wait long after their launch. These start 6.5 µs after it: the queue is empty.",
        },
        "overhead-bound. Its 61 kernels take 5 µs each and come one every 64 µs. A larger batch gives each launch more to do; a "
        "CUDA graph launches all of them at once.",
    ),
    Patient(
        "late",
        "5a",
        "an A100 at 23%",
        12.7,
        "launch_delay(trace)",
        {0.0127: "That's in ms. Keep to µs here."},
        "b",
        {
            "a": "exposed(trace) is 5% of the window, and the GPU is idle for 77% of it.",
            "c": "A short delay means that the kernel found an empty queue. A GPU that is well fed is always behind.",
            "d": "share_by_kind gives normalization 20% of the kernel time, but kernels run only 23% of the time.",
        },
        "the CPU can't launch fast enough. So the GPU idles between kernels. torch.compile or a CUDA graph removes launch "
        "overhead; a larger batch hides it.",
    ),
    Patient(
        "ahead",
        "5b",
        "a V100 with long delays",
        79.25,
        "launch_delay(trace) / 1000",
        {79250: "That's in µs; the question asks for ms."},
        "c",
        {
            "a": "Nothing makes the launches late: each comes 79 ms *before* its kernel, which waits in the queue meanwhile.",
            "b": "The calls block because the queue is full. A CPU that can't get rid of its launches is far enough ahead.",
            "d": "There's one GPU, and no communication in the trace.",
        },
        "healthy. The queue is full and the GPU is 99% busy, so nothing on the CPU can make this step faster. Less arithmetic "
        "or a faster format can: mixed precision, for instance.",
    ),
    Patient(
        "freed",
        "6",
        "an MI300X at 13%",
        0.984,
        'on_cpu(trace, 0, trace.length)["hipFree"] / trace.length',
        {1112408: "That's in µs; divide by trace.length.", 330: "That's how many calls there are."},
        "d",
        {
            "a": "A leak frees too little. This program frees all the time.",
            "b": "Retries come in bursts: PyTorch empties its cache once, tries again, and goes on without hipFree for a while. Here "
            "the CPU is hardly ever outside of it.",
            "c": "The kernels of the whole step take 13% of the time.",
        },
        "the caching allocator is off. Each tensor goes back to the driver, and a call takes 3.4 ms on average. (Inferred: the "
        "file has some 290 hipMalloc and 270 hipFree a step, and no_pool in its name.) Unset PYTORCH_NO_HIP_MEMORY_CACHING, or "
        "PYTORCH_NO_CUDA_MEMORY_CACHING on NVIDIA.",
    ),
    Patient(
        "straggler",
        "7",
        "eight V100s that wait",
        7,
        "min(trace.ranks, key=collective_us)",
        {1: "Rank 1 spends the *longest* in collectives: it arrives first and waits inside them."},
        "b",
        {
            "a": "The first long collective ends at the same moment on every rank, after 9.7 ms. Rank 1 just entered it first.",
            "c": "Rank 7 spends 1.7 ms in all its collectives. The exchange itself can't take longer than that.",
            "d": "Outside of collectives, rank 7's kernels take 1.08 ms; the others' take 1.05 to 1.27.",
        },
        "rank 7 is late. It begins its step 7.9 ms after the first, and the other seven wait inside NCCL. Why isn't in the trace: "
        "look at what that process did before, usually in its loader.",
    ),
    Patient(
        "pieces",
        "8",
        "two V100s after backward",
        380,
        'sum(event.kind == "communication" for event in trace.gpu)',
        {1180: "That counts all GPU events."},
        "c",
        {
            "a": "A slow link makes every exchange slow. 241 of these are over in less than 20 µs, and the GPU idles for 73 of 140 ms.",
            "b": "overlap(trace) is 0: nothing runs beside the all-reduces, so they can't slow anything down.",
            "d": "Optimizer.step begins only at the very end of the window.",
        },
        "an all-reduce for each parameter. They run one after another, when the GPU is done with backward. DDP joins gradients "
        "into buckets of 25 MB and starts each bucket while backward still runs.",
    ),
    Patient(
        "suspect",
        "9",
        "an A100 with .item() in its step",
        0.1858,
        "exposed(trace)",
        {
            0.5504: "That's how much of the communication is hidden. What share of the *step* is exposed?"
        },
        "b",
        {
            "a": "From 22 ms, where the first .item() copies its number, to the end of backward's first gap at 34, the GPU idles for "
            "less than 4 ms, most of it at the start of backward. Without .item(), the all-to-all would still be there.",
            "c": "The copy runs on a stream of its own; only for 4% of the step does the GPU do nothing but copy.",
            "d": "They're work, not waiting: 23% of the kernel time, in a few large kernels.",
        },
        "exposed communication. For 14 of 76 ms the GPU does nothing else, and nearly all of that is all-to-all: send the "
        "embeddings of the next batch while this one computes. .item() was a red herring: the CPU waits for it, but the GPU has "
        "work to do meanwhile.",
    ),
    Patient(
        "scores",
        "10",
        "an H100 that is 99% busy",
        63.74,
        "2 * 96 * 3137 * 64 * 3137 / 1897e-6 / 1e12",
        {31.87: "A multiply-add counts as two operations.", 0.664: "That's one of the 96 matmuls."},
        "b",
        {
            "a": "Busy isn't fast: this matmul reaches 6% of the card's 989 TFLOP/s, and the linear layers here reach about 70%.",
            "c": "The copy takes 3.5 of 160 ms.",
            "d": "Kernels start 63 ms after their launch: the queue is full.",
        },
        "eager attention. It writes 3137 × 3137 scores per head, 1.89 GB in all, and reads them again for every step of the "
        "formula; and 3137 isn't a multiple of 8, so the matmuls fall back to slow kernels (align1 in their name). "
        "scaled_dot_product_attention never writes the scores.",
    ),
    Patient(
        "unfused",
        "11",
        "an H100 that reads 16 texts",
        0.5441,
        'share_by_kind(trace)["elementwise"]',
        {54.41: "As a share, from 0 to 1.", 0.2776: "That's the share of the matmuls."},
        "d",
        {
            "a": "The GPU is 91% busy, and kernels start 1.2 ms after their launch: it's hardly waiting for the CPU.",
            "c": "Attention (a fused kernel) has 8.5% of the kernel time.",
            "b": "The matmuls have 28% of the kernel time. Twice as fast, they'd save a seventh.",
        },
        "memory-bound. Half of the time goes into kernels that read a tensor, do next to nothing and write it back. torch.compile "
        "fuses them, so that the tensor makes the trip once.",
    ),
    Patient(
        "undecided",
        "13",
        "one of eight MI300Xs",
        0.5737,
        "exposed(trace)",
        {
            0.266: "That's how much of the communication is hidden. What share of the *window* is exposed?"
        },
        "d",
        {
            "a": "The last rank to arrive has short collectives (think of the eight V100s). This one's take 7 to 9 ms.",
            "b": "It may be. But waiting for a late rank looks just the same from here: a long collective.",
            "c": "It may be. But a slow link looks just the same from here: a long collective.",
        },
        "nobody can tell. 57% of the time is exposed communication, and that's all that one rank can say. Record every rank: if "
        "one of them has short collectives, it's late; if all are long, it's the link.",
    ),
)
