"""Recorded patients of jobs with several GPUs, and one that only looks so. Numbers: `measurements/traces`."""

from lessons import reading
from lessons.lesson13 import evidence
from lessons.lesson13.patient import Patient

SEVERAL_GPUS = (
    Patient(
        "late",
        "5a",
        "an A100 at 23%",
        12.7,
        reading.launch_delay,
        "launch_delay(trace)",
        ((lambda t: reading.launch_delay(t) / 1000, "That's in ms. Keep to µs here."),),
        "b",
        {
            "a": "exposed(trace) is 5% of the window, and the GPU is idle for 77% of it.",
            "c": "A short delay means that the kernel found nothing in the queue before it. A GPU that is well fed is always behind.",
            "d": "share_by_kind gives normalization 20% of the kernel time, but kernels run only 23% of the time.",
        },
        (
            "`launch_delay(trace)` gives the median in µs.",
            "Is it short or long? Compare it with the length of the step.",
            "A short delay means that the GPU is waiting for launches. What keeps the CPU from launching sooner?",
        ),
        "the CPU can't launch fast enough, so the GPU idles between kernels. torch.compile or a CUDA graph removes the overhead; "
        "so does a larger batch.",
    ),
    Patient(
        "ahead",
        "5b",
        "a V100 with long delays",
        79.25,
        lambda t: reading.launch_delay(t) / 1000,
        "launch_delay(trace) / 1000",
        ((reading.launch_delay, "That's in µs; the question asks for ms."),),
        "c",
        {
            "a": "Nothing makes the launches late: each comes 79 ms *before* its kernel, which waits in the queue meanwhile.",
            "b": "The calls block because the queue is full. A CPU that can't get rid of its launches is far enough ahead.",
            "d": "There's one GPU, and no communication in the trace.",
        },
        (
            "`launch_delay(trace)` is in µs.",
            "`busy_share(trace)` and the longest gap tell whether the GPU lacks anything.",
            "A launch long before its kernel is early, not late. Who is waiting for whom?",
        ),
        "healthy. The queue is full and the GPU is 99% busy, so nothing on the CPU can make this step faster. Less arithmetic "
        "or a faster format can: mixed precision, for instance.",
    ),
    Patient(
        "straggler",
        "7",
        "eight V100s that wait",
        7,
        evidence.latest,
        "min(trace.ranks, key=collective_us)",
        (
            (
                evidence.earliest,
                "It spends the *longest* in collectives, because it arrives first and waits inside them.",
            ),
        ),
        "b",
        {
            "a": "The first long collective ends at the same moment on every rank, after 9.7 ms. Rank 1 just entered it first.",
            "c": "Rank 7 spends 1.7 ms in all its collectives. The exchange itself can't take longer than that.",
            "d": "Outside of collectives, rank 7's kernels take 1.08 ms; the others' take 1.05 to 1.27.",
        },
        (
            "`collective_us(rank)` is defined above; compute it for each of `trace.ranks`.",
            "A rank that waits for others does so inside a collective. So who has the least time in them?",
            "The smallest of the eight numbers is the rank that nobody waits *with*: everyone waits *for* it.",
        ),
        "rank 7 begins its step 7.9 ms after the first, and the other seven wait inside NCCL. Why it's late isn't in the trace: "
        "look at what that process did before, usually its loader.",
        exact=True,
    ),
    Patient(
        "pieces",
        "8",
        "two V100s after backward",
        380,
        evidence.all_reduces,
        'sum(event.kind == "communication" for event in trace.gpu)',
        (
            (
                lambda t: sum(e.kind == "communication" for e in t.gpu) / len(t.gpu),
                "That's a share. Count them.",
            ),
            (lambda t: len(t.gpu), "That counts all GPU events."),
        ),
        "c",
        {
            "a": "A slow link makes every exchange slow. 241 of these are over in less than 20 µs, and the GPU idles for 73 of 140 ms.",
            "b": "overlap(trace) is 0: nothing runs beside the all-reduces, so they can't slow anything down.",
            "d": "Optimizer.step begins only at the very end of the window.",
        },
        (
            'Each event has a kind; all-reduces have the kind "communication".',
            '`sum(event.kind == "communication" for event in trace.gpu)`',
            "How many tensors does DDP put into one all-reduce? And when does it start the first?",
        ),
        "an all-reduce for each parameter, one after another, when the GPU is done with backward. DDP joins gradients into buckets of "
        "25 MB and starts each bucket while backward still runs.",
        exact=True,
    ),
    Patient(
        "suspect",
        "9",
        "an A100 with .item() in its step",
        0.1858,
        reading.exposed,
        "exposed(trace)",
        (
            (lambda t: t.length * reading.exposed(t), "That's in µs. Divide by trace.length."),
            (
                reading.overlap,
                "That's how much of the communication is hidden; what share of the *step* is exposed?",
            ),
        ),
        "b",
        {
            "a": "From 22 ms, where the first .item() copies its number, to the end of backward's first gap at 34, the GPU idles for "
            "less than 4 ms, most of it at the start of backward. Without .item(), the all-to-all would still be there.",
            "c": "The copy runs on a stream of its own; only for 4% of the step does the GPU do nothing but copy.",
            "d": "They're work, not waiting: 23% of the kernel time, in a few large kernels.",
        },
        (
            "One of the functions above computes just that.",
            "`exposed(trace)`",
            "Look at the violet row, and at what the compute stream does above it.",
        ),
        "14 of 76 ms are nothing but communication, nearly all of it all-to-all. Overlap it: send the embeddings of the next batch while this one computes. "
        ".item() was a red herring: it makes the CPU wait, but the GPU has work to do meanwhile.",
    ),
    Patient(
        "undecided",
        "13",
        "one of eight MI300Xs",
        0.5737,
        reading.exposed,
        "exposed(trace)",
        (
            (
                reading.overlap,
                "That's how much of the communication is hidden; what share of the *window* is exposed?",
            ),
            (lambda t: t.length * reading.exposed(t), "That's in µs. Divide by trace.length."),
        ),
        "d",
        {
            "a": "The last rank to arrive has short collectives (think of the eight V100s). This one's take 7 to 9 ms.",
            "b": "It may be. But waiting for a late rank looks just the same from here: a long collective.",
            "c": "It may be. But a slow link looks just the same from here: a long collective.",
        },
        (
            "The same function as for the A100 with `.item()`.",
            "`exposed(trace)`",
            "Which other recording would tell b from c? Do you have it?",
        ),
        "57% of the time is exposed communication, and that's all that one rank can say. Record every rank: if one of them has "
        "short collectives, it's late; if all are long, it's the link.",
    ),
)
