"""Exercises and quiz of lesson 06, Use several GPUs, and of page 06b."""

import contextlib
import os
import random
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from course.checks import expect, my_tools
from course.checks.core import LearnerError, NotAttempted, NotYet, call, chosen, same_code
from course.checks.ranks import Hang, run_ranks, train_two
from course.checks.words import exercise, quiz

# The lesson calls them, too.
__all__ = ["Hang", "chosen", "run_ranks"]


# --- convert a script to DDP --------------------------------------------------------------------------
def ordinary(model, dataset, batch_size):
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = model.cuda()
    else:  # fewer GPUs than processes
        dist.init_process_group("gloo")
    loader = DataLoader(dataset, batch_size, shuffle=True)
    return model, loader


def to_ddp(model, dataset, batch_size):
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        model = model.cuda()
    else:  # fewer GPUs than processes
        dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
    return DistributedDataParallel(model), DataLoader(dataset, batch_size, sampler=sampler)


def _check_to_ddp(answer):
    if not callable(answer):
        raise NotYet("expected your function. Pass its name without parentheses.")
    if same_code(answer, ordinary):
        raise NotAttempted("Change the function above, then run this cell again.")
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
    if set(first["seen"]) & set(second["seen"]):
        seen = f"rank 0 trained on samples {first['seen']}, rank 1 on {second['seen']}"
        raise NotYet(f"{seen}. Which object deals them out, and does the loader use it?")
    if first["weights"] != second["weights"]:
        raise NotYet("after training, the ranks have different weights. Who averages gradients?")
    trained = len({*first["seen"], *second["seen"]})
    if trained < 8:
        raise NotYet(f"the ranks trained on {trained} of the 8 samples. Deal them all out.")
    if first["sizes"] != [2, 2]:
        raise NotYet(f"with batch_size 2, a rank got batches of {first['sizes']}, expected [2, 2].")


ddp = exercise("06.ddp", _check_to_ddp, to_ddp, seconds=150, tool="to_ddp")


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
        tensors = [torch.randint(1, 1_000_000, (size,)).double() for _ in range(ranks)]
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
            why = ring.word(result, wrong=wrong)
            raise NotYet(f"{where}, {len(wrong)} of rank {rank}'s numbers aren't the sum. {why}")


def _judge_bytes(sent, ranks, size, where):
    most = 2 * (ranks - 1) * 8 * -(-size // (8 * ranks))
    if max(sent) > most:
        rank = sent.index(max(sent))
        raise NotYet(
            f"{where} (of 8 bytes), the sums are right, but rank {rank} sent {max(sent)} bytes, where a ring sends "
            f"{most} at most. Does each step send a single chunk?"
        )


ring = exercise("06.ring", _check_ring, ring_all_reduce, tool="ring_all_reduce", letter="b")


def noise(sentence):
    """Return a list for each of eight ranks, as tensors: seven of noise, and one that makes their sum the `sentence`."""
    secret = torch.tensor([*sentence.encode()])
    lists = [torch.randint(-9999, 9999, secret.shape) for _ in range(7)]
    return [*lists, secret - sum(lists)]


def read(numbers):
    """Return the sentence whose letters are `numbers`."""
    return bytes(numbers.tolist()).decode()


def all_reduce(held, missing=None):
    """Return what each rank gets of `held`, a list of 1-D tensors by rank: their sum. Raises Hang if one is `missing`."""

    def part(x, rank, *others):
        return x if rank == missing else ring_all_reduce(x, rank, *others)

    return run_ranks(part, held)[0]


def stuck(held):
    """Return what `reveal` takes: which ranks get stuck in an all-reduce of `held` without rank 2, and why."""
    lines = []
    try:
        all_reduce(held, missing=2)
    except Hang as hang:
        lines = [line.partition(" for ")[0] for line in str(hang).split(", ")]
    because = (
        "The sum needs all eight. On GPUs, nothing tells you so: nvidia-smi shows the seven as busy, until "
        "a timeout ends the program, by default after ten minutes. So all ranks must make the same calls, in the same order.\n\n"
        "A rank that skips a batch and then continues is worse: its next all-reduce joins the one that the "
        "others are in, and the sum silently mixes two steps."
    )
    return {"actual": "all but rank 2", "because": because, "lines": lines}


# --- gradients that stay at home ------------------------------------------------------------------------
@contextlib.contextmanager
def ddp_of_one(model: torch.nn.Module) -> Iterator[tuple[DistributedDataParallel, list[float]]]:
    """Give (`model` in DDP, [MB of each all-reduce so far]) in a group of one process, where nothing is sent."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ddp = DistributedDataParallel(model)
        sent: list[float] = []
        ddp.register_comm_hook(sent, _note)
        yield ddp, sent
    finally:
        dist.destroy_process_group()


def _note(sent, bucket):
    sent.append(bucket.buffer().nbytes / 1e6)
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


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
            raise NotYet(f"for {name}, {offer}, you get {gain:.4g}. {worth.word(gain, *offer)}")
    return "five offers: fast and slow links, two GPUs and more, one bucket and many."


worth = exercise("06.worth", _check_speedup, speedup, tool="speedup", letter="b")


QUIZ = quiz("06")
