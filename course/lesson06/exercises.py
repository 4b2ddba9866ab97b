"""Exercises and quiz of lesson 06, Use several GPUs."""

import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from course.checks import expect, my_tools
from course.checks.core import Exercise, LearnerError, NotYet, Question, call, chosen
from course.checks.ranks import Hang, run_ranks, train_two
from course.gpt import ladder

# The lesson calls them, too.
__all__ = ["Hang", "chosen", "ladder", "run_ranks"]


# --- convert a script to DDP --------------------------------------------------------------------------
def to_ddp(model, dataset, batch_size):
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = model.cuda()
    else:
        dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
    return DistributedDataParallel(model), DataLoader(dataset, batch_size, sampler=sampler)


def _check_to_ddp(answer):
    if not callable(answer):
        raise NotYet("expected your function. Pass its name without parentheses.")
    try:
        source = my_tools.source(answer)
    except my_tools.NotKept as reason:
        raise NotYet(f"two new processes can't run your function: {reason}") from None
    results = train_two(source, answer.__name__)
    for rank, result in enumerate(results):
        if isinstance(result, str):
            raise NotYet(f"rank {rank}: {result}.")
    if None in results:
        raise NotYet(f"rank {results.index(None)} never came to its end. Whom does it wait for?")
    _judge_training(*results)
    return "two processes, different samples, equal weights."


def _judge_training(first, second):
    twice = set(first["seen"]) & set(second["seen"])
    if twice:
        which = "Which object deals the samples out, and does the loader use it?"
        raise NotYet(f"both processes trained on sample {min(twice)}. {which}")
    if first["weights"] != second["weights"]:
        raise NotYet("after training, the ranks have different weights. Who averages gradients?")
    trained = len({*first["seen"], *second["seen"]})
    if trained < 8:
        raise NotYet(f"the ranks trained on {trained} of the 8 samples. Deal them all out.")
    if first["sizes"] != [2, 2]:
        raise NotYet(f"with batch_size 2, a rank got batches of {first['sizes']}, expected [2, 2].")


ddp = Exercise(
    key="06.ddp",
    title="convert a script to DDP",
    check_answer=_check_to_ddp,
    seconds=150,
    hints=(
        "The section above lists four lines that make a script distributed. Which of them need a GPU?",
        'Without a GPU, only the first two change: `dist.init_process_group("gloo")`, and no `cuda()`.',
        "At the end: `return DistributedDataParallel(model), DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset))`",
    ),
    reference=to_ddp,
    explanation="The group lets the processes talk. DDP copies the weights of rank 0 to all ranks and averages gradients during "
    "backward, so the weights stay equal. The sampler gives each rank different samples.",
    unlocked="You can now train any model on all GPUs of a machine.",
    tool="to_ddp",
)


# --- the ring -----------------------------------------------------------------------------------------
def ring_all_reduce(x, rank, ranks, send, recv):
    chunks = list(x.tensor_split(ranks))
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    for step in range(2 * (ranks - 1)):
        send(chunks[(rank - step) % ranks], right)
        place = (rank - step - 1) % ranks
        came = torch.empty_like(chunks[place])
        recv(came, left)
        chunks[place] = chunks[place] + came if step < ranks - 1 else came
    return torch.cat(chunks)


def _check_ring(answer):
    for ranks, size in ((2, 6), (4, 8), (3, 10), (5, random.randint(20, 40))):
        tensors = [torch.randint(-9, 9, (size,)).double() for _ in range(ranks)]
        before = [tensor.clone() for tensor in tensors]
        where = f"with {ranks} ranks and {size} numbers"
        try:
            results, sent = call(run_ranks, answer, tensors)
        except LearnerError as error:
            if not isinstance(error.cause, Hang):
                raise
            why = f"it hangs: {error.cause}. Does each rank send before it waits?"
            raise NotYet(f"{where}, {why}") from None
        _judge_sums(results, sum(before), where)
        _judge_bytes(sent, ranks, 8 * size, where)
    return "every rank ends with the sum, and none sent more than a ring has to."


def _judge_sums(results, expected, where):
    for rank, result in enumerate(results):
        result = expect.tensor(result, what=f"{where}, the result of rank {rank}")
        if result.shape != expected.shape:
            raise NotYet(
                f"{where}, rank {rank} returned shape {tuple(result.shape)}, expected {tuple(expected.shape)}. "
                "Put the chunks back together."
            )
        wrong = (result != expected).nonzero().flatten().tolist()
        if wrong:
            reason = "Which half of the steps adds, and which one only passes on?"
            if len(wrong) == len(expected):
                reason = "Does it add what comes to its own chunk?"
            raise NotYet(f"{where}, {len(wrong)} of rank {rank}'s numbers aren't the sum. {reason}")


def _judge_bytes(sent, ranks, size, where):
    most = 2 * (ranks - 1) * 8 * -(-size // (8 * ranks))
    if max(sent) > most:
        rank = sent.index(max(sent))
        raise NotYet(
            f"{where} (of 8 bytes), the sums are right, but rank {rank} sent {max(sent)} bytes, where a ring sends "
            f"{most} at most. Does each step send a single chunk?"
        )


ring = Exercise(
    key="06.ring",
    title="write a ring all-reduce",
    check_answer=_check_ring,
    hints=(
        "`first_step` is the picture's step 1. Follow GPU 0's arrow in steps 2 and 3: which chunk leaves it, and which one comes?",
        "In step s, counted from 0, a rank sends chunk `(rank - s) % ranks` and receives chunk `(rank - s - 1) % ranks`. "
        "From step `ranks - 1` on, what comes is finished: keep it as it is.",
        "In the loop: `send(chunks[(rank - step) % ranks], right)`, `came = torch.empty_like(chunks[place])`, `recv(came, left)`; "
        "while `step < ranks - 1`, add `came` to `chunks[place]`, afterwards put it in its place.",
    ),
    reference=ring_all_reduce,
    explanation="After ranks - 1 steps each rank holds one finished chunk (reduce-scatter); ranks - 1 steps more bring every "
    "finished chunk to all (all-gather). Every link is busy in every step.",
    unlocked="You've written one of NCCL's algorithms. With `dist.isend`, it runs on torch.distributed as it is.",
    tool="ring_all_reduce",
)


# --- when another GPU helps ----------------------------------------------------------------------------
def speedup(gpus, megabytes, gb_per_s, step_ms, backward_ms, bucket_mb=26.2):
    all_reduce = 2 * (gpus - 1) / gpus * megabytes / gb_per_s
    last = all_reduce * min(1, bucket_mb / megabytes)
    exposed = max(last, all_reduce - backward_ms)
    return gpus * step_ms / (step_ms + exposed)


OFFERS = {  # what `speedup` takes
    "two GPUs over a slow link": (2, 1000, 5, 300, 100),
    "eight GPUs over a slow link": (8, 1000, 5, 300, 100),
    "two GPUs over a fast link": (2, 400, 50, 100, 60),
    "two GPUs, all gradients in one bucket": (2, 400, 50, 100, 60, 1000),
}


def _check_speedup(answer):
    random_offer = (random.randint(3, 9), random.randint(300, 900), 20, 90, random.randint(20, 60))
    for name, offer in {**OFFERS, "an offer by chance": random_offer}.items():
        gain = expect.number(call(answer, *offer), "your speedup")
        if not abs(gain - speedup(*offer)) <= 1e-6 * gain:
            raise NotYet(f"for {name}, {offer}, you get {gain:.4g}. {_why_speedup(gain, *offer)}")
    return "five offers: fast and slow links, two GPUs and more, one bucket and many."


def _why_speedup(gain, gpus, megabytes, gb_per_s, step_ms, backward_ms, bucket_mb=26.2):
    """Name what a wrong speedup forgot."""
    once, many = megabytes / gb_per_s, 2 * (gpus - 1) / gpus
    whole, share = many * once, bucket_mb / megabytes
    last, rest = whole * min(1, share), whole - backward_ms
    slips = {  # what was forgotten: what is exposed then
        "How many times its gradients does each rank send?": max(last / many, once - backward_ms),
        "Something is exposed even when backward is long enough: which bucket?": max(0, rest),
        "What travels while backward runs is hidden.": whole,
        "A bucket can't hold more than all gradients.": max(whole * share, rest),
        "Only backward hides communication; how long is it?": max(last, whole - step_ms),
        "What is left after backward contains the last bucket: count it once.": last + max(0, rest),
    }
    for why, exposed in slips.items():
        longer = (step_ms + exposed) / step_ms
        if abs(gain * longer - gpus) < 1e-6:
            return why
        if exposed == max(last, rest) and abs(gain * longer - 1) < 1e-6:
            return "How many GPUs work at the same time?"
    return "How long is the all-reduce, how much of it is exposed, and how long is a step then?"


worth = Exercise(
    key="06.worth",
    title="what another GPU adds",
    check_answer=_check_speedup,
    hints=(
        "Three times, in this order: the whole all-reduce, the part of it that is exposed, the longer step.",
        "All-reduce: `2 * (gpus - 1) / gpus * megabytes / gb_per_s`. The last bucket takes its share of that, "
        "`min(1, bucket_mb / megabytes)`. Exposed is the larger one of two times.",
        "`exposed = max(last, all_reduce - backward_ms)`, and "
        "`gpus` GPUs do `gpus * step_ms / (step_ms + exposed)` times what one does.",
    ),
    reference=speedup,
    explanation="Backward hides what it has time for, and the last bucket is always exposed. What sticks out makes each step "
    "longer, on all GPUs.",
    unlocked="You can now judge an offer of several GPUs before you rent it.",
    tool="speedup",
)


QUIZ = (
    Question(
        "06.rank",
        "Which of these may rank 0 do alone?",
        {
            "Evaluate the wrapped ResNet after an epoch": "DDP's forward broadcasts batch norm's buffers, so rank 0 would wait "
            "for the others. Evaluate model.module.",
            "Save the checkpoint": "Yes: all ranks have equal weights, so one file is enough.",
            "Skip a batch whose loss is nan": "The others would wait in that step's all-reduce, or pair it with the next one.",
        },
        right=1,
    ),
    Question(
        "06.bucket",
        "You make DDP's buckets so large that all gradients fit into one. What happens to the step?",
        {
            "It's longer: the all-reduce begins when backward is done": "Yes: a bucket is sent when its last gradient is ready.",
            "It's shorter: one large all-reduce uses the link best": "It does, and nothing hides it any more.",
            "It's the same: the same bytes travel": "They travel later, after backward.",
        },
        right=0,
    ),
    Question(
        "06.scaling",
        "A step takes 700 ms, 450 of them backward. With 2 GB of gradients and a link of 5 GB/s, does a second GPU help?",
        {
            "Not much: 400 ms of all-reduce make it 1,100": "Only if nothing overlaps, as with a single bucket.",
            "Yes, nearly twice: backward hides nearly all of the 400 ms": "Yes: only the last bucket's 5 ms are exposed.",
            "Only with smaller batches: then there's less to send": "Gradients are as large as the parameters, whatever the batch. A "
            "smaller one leaves less time to hide them.",
        },
        right=1,
    ),
)
