"""Exercises and quiz of lesson 06, Use several GPUs."""

import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from helpers import my_tools
from helpers.checks import expect
from helpers.checks.core import Exercise, LearnerError, NotYet, Question, call, chosen
from lessons import ladder
from lessons.ranks import Hang, run_ranks, train_two
from lessons.reading import total
from measurements.traces import GpuEvent, Trace
from measurements.traces.intervals import merged

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
    unlocked="You've written the algorithm that NCCL uses, and it runs on torch.distributed as it is.",
    tool="ring_all_reduce",
)


# --- exposed communication ----------------------------------------------------------------------------
def exposed(trace):
    work = [event for event in trace.gpu if event.kind != "communication"]
    busy = total(merged(trace.gpu, trace.length))
    return (busy - total(merged(work, trace.length))) / trace.length


def _trace(events):
    """A trace of 40 µs; `events` are {kind: [(start, end)]}."""
    gpu = [
        GpuEvent("a kernel", kind, start, end - start, 0, 7, None, "", "", "", 0)
        for kind, spans in events.items()
        for start, end in spans
    ]
    return Trace({}, 40.0, sorted(gpu, key=lambda event: event.start))


def _check_exposed(answer):
    late = random.randint(5, 9)
    cases = {
        "nothing overlaps": {"matmul": [(0, 10)], "communication": [(12, 17)]},
        "all is hidden": {"matmul": [(0, 20)], "communication": [(5, 15)]},
        "half is hidden": {"matmul": [(0, 10)], "communication": [(late, late + 8)]},
        "two all-reduces overlap": {"matmul": [(0, 10)], "communication": [(10, 20), (15, 25)]},
        "a copy hides part": {"copy": [(5, 15)], "communication": [(0, 20)]},
    }
    for name, events in cases.items():
        trace = _trace(events)
        share = expect.number(call(answer, trace), "your share")
        if not abs(share - exposed(trace)) <= 1e-9:
            raise NotYet(
                f"when {name}, you get {share:.4g}; the GPU only communicates for {exposed(trace):.4g} of the window. "
                + _why_exposed(share, trace)
            )
    return "five traces, with communication hidden by kernels, by a copy, and not at all."


def _why_exposed(share, trace):
    spent = sum(event.length for event in trace.gpu if event.kind == "communication")
    if any(event.kind == "copy" for event in trace.gpu):
        return "A copy is work, too: what runs beside it is hidden."
    if abs(share - exposed(trace) * trace.length) < 1e-9:
        return "Is it a share of the window's length?"
    if abs(share - spent / trace.length) < 1e-9:
        return "You count all communication; which part of it runs beside other work?"
    return "It's the time that communication adds: busy with it, minus busy without it."


hidden = Exercise(
    key="06.hidden",
    title="exposed communication",
    check_answer=_check_exposed,
    hints=(
        "How long is the GPU busy with anything at all? And how long would it be without its communication?",
        'Keep the events whose `kind` isn\'t `"communication"`, and merge both lists.',
        "`(total(merged(trace.gpu, trace.length)) - total(merged(work, trace.length))) / trace.length`",
    ),
    reference=exposed,
    explanation="What is busy with communication and wouldn't be without it is time in which the GPU does nothing else. "
    "Merging counts streams that run side by side once.",
    unlocked="You can now say of any trace how much its communication costs at most.",
)


QUIZ = (
    Question(
        "06.rank",
        "Why may rank 0 alone save the model under DDP?",
        {
            "Other ranks can't write files": "They can, and then they overwrite each other's file.",
            "All ranks have equal weights": "Yes: same start, same averaged gradients, same steps.",
            "It has the best weights": "No rank is better: they are equal.",
        },
        right=1,
    ),
    Question(
        "06.bucket",
        "You make DDP's buckets so large that all gradients fit into one. What happens?",
        {
            "No overlap: it starts when backward is done": "Yes: a bucket is sent when its last gradient is ready.",
            "The all-reduce gets slower": "One large all-reduce is the most efficient one. It only starts too late.",
            "Nothing changes": "The same bytes travel, but at another time.",
        },
        right=0,
    ),
    Question(
        "06.scaling",
        "Eight GPUs over PCIe share one batch, and communication is exposed for half of the step. What helps most?",
        {
            "Eight more GPUs": "Compute shrinks further; the all-reduce doesn't.",
            "DataParallel": "It copies the model at every step, too.",
            "A larger batch for each GPU": "Yes: more compute per all-reduce, and more to hide it behind.",
        },
        right=2,
    ),
)
