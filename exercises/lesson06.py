"""Exercises and quiz of lesson 06, Use several GPUs."""

import multiprocessing
import os
import random
import re
import runpy
import socket
import sys
import tempfile
import time
from numbers import Integral
from pathlib import Path

import torch
from torch.utils.data.distributed import DistributedSampler

from helpers.checks.core import Exercise, NotYet, Question, Wrong, call


# --- weigh uneven shards ---------------------------------------------------------------------------------------------
def mean_of_shards(means, sizes):
    total = sum(mean * size for mean, size in zip(means, sizes))
    return total / sum(sizes)


def _check_weigh(answer):
    for sizes in (
        [4, 4],
        [3, 1],
        [5],
        [1, 2, 6],
        [7, 0, 2],
        [random.randint(1, 9) for _ in range(4)],
    ):
        samples = torch.randn(sum(sizes), 3, dtype=torch.float64)
        parts = [part for part in samples.split(sizes)]
        means = [
            part.mean(0) if len(part) else torch.zeros(3, dtype=torch.float64) for part in parts
        ]
        numbers, kept = [mean[0].item() for mean in means], [mean.clone() for mean in means]
        _compare_means(call(answer, list(means), list(sizes)), samples.mean(0), sizes, "gradients")
        if not all(torch.equal(mean, copy) for mean, copy in zip(means, kept)):
            raise NotYet(
                f"for sizes {sizes} the tensors that came in changed. Does an operator such as *= write into them?"
            )
        _compare_means(call(answer, numbers, list(sizes)), samples[:, 0].mean(), sizes, "numbers")
    return "equal to the mean over all samples, for tensors and numbers, even and uneven shards."


def _compare_means(found, expected, sizes, kind):
    if not isinstance(found, (float, torch.Tensor)):
        raise NotYet(
            f"for sizes {sizes} it returned {type(found).__name__}; expected the mean, as a float or tensor."
        )
    found = torch.as_tensor(found, dtype=torch.float64)
    if found.shape != expected.shape:
        raise NotYet(
            f"for {kind} of shape {tuple(expected.shape)} the result has shape {tuple(found.shape)}. "
            "Add the means to each other, not the elements within one."
        )
    if not torch.allclose(found, expected, rtol=1e-4, atol=1e-6):
        even = len(set(sizes)) == 1
        why = (
            "Divide by the number of samples."
            if even
            else "A shard of three samples counts three times one of one."
        )
        raise NotYet(
            f"for shards of sizes {sizes} the result is not the mean over all samples. {why}"
        )


def _writes(means, sizes):
    for mean, size in zip(means, sizes):
        if torch.is_tensor(mean):
            mean *= size
    return sum(means) / sum(sizes)


weigh = Exercise(
    key="06.weigh",
    title="weigh uneven shards",
    minutes=5,
    lines=2,
    difficulty=2,
    check_answer=_check_weigh,
    hints=(
        "A mean times its size is a sum. Sums of shards may be added.",
        "Add mean * size over the shards, then divide by the sum of the sizes.",
    ),
    reference=mean_of_shards,
    explanation="Each mean times its size gives back the shard's sum; the sums add up to the sum over all samples, which the "
    "total number of samples turns into the mean.",
    wrong=(
        Wrong(lambda means, sizes: sum(means) / len(means), "counts three times"),
        Wrong(
            lambda means, sizes: sum(m * s for m, s in zip(means, sizes)), "Divide by the number"
        ),
        Wrong(
            lambda means, sizes: torch.stack([torch.as_tensor(m).mean() for m in means]).mean(),
            "not the elements within",
        ),
        Wrong(_writes, "came in changed"),
        Wrong(lambda means, sizes: [m * s for m, s in zip(means, sizes)], "it returned list"),
    ),
)


# --- strip the prefix ------------------------------------------------------------------------------------------------
def strip_prefix(state):
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


def _check_strip(answer):
    tensor, layer = torch.randn(2), f"layer{random.randint(1, 99)}"
    cases = (
        {"module.fc.weight": tensor, "module.fc.bias": tensor[:1]},
        {f"{layer}.weight": tensor},
        {},
        {"module.block.module.weight": tensor},
        {"submodule.weight": tensor},
        {"module.module.weight": tensor},
    )
    for state in cases:
        before, found = dict(state), call(answer, state)
        if not isinstance(found, dict):
            raise NotYet(
                f"for keys {list(state)} it returned {type(found).__name__}; expected a dict. Is there a return?"
            )
        if list(state) != list(before):
            raise NotYet(
                f"the dict that came in changed: {list(before)} became {list(state)}. Build a new one."
            )
        wanted = [key[len("module.") :] if key.startswith("module.") else key for key in before]
        if list(found) != wanted:
            raise NotYet(
                f"keys {list(before)} became {list(found)}, expected {wanted}.{_why_strip(before)}"
            )
        if any(found[new] is not before[old] for new, old in zip(wanted, before)):
            raise NotYet(
                "the tensors are copies, or sit under other names. Keep each tensor as it is."
            )
    return "six state dicts, new keys, the same tensors."


def _why_strip(state):
    if "submodule.weight" in state:
        return " The name only contains the word; does it start with it?"
    if any(key.count("module.") > 1 for key in state):
        return " Only the first one is the wrapper's."
    return ""


def _in_place(state):
    for name in list(state):
        state[name.removeprefix("module.")] = state.pop(name)
    return state


strip = Exercise(
    key="06.strip",
    title="strip the prefix",
    minutes=4,
    lines=1,
    difficulty=1,
    check_answer=_check_strip,
    hints=(
        "A dict comprehension over state.items() builds the new dict.",
        'Strings have removeprefix("module.").',
    ),
    reference=strip_prefix,
    explanation="removeprefix takes away one leading module. and leaves every other name alone; replace would also hit names "
    "inside. The values are passed on, so no tensor is copied.",
    wrong=(
        Wrong(
            lambda state: {k.replace("module.", ""): v for k, v in state.items()},
            "Only the first one",
        ),
        Wrong(lambda state: {k[7:]: v for k, v in state.items()}, ".weight'] became ["),
        Wrong(_in_place, "dict that came in changed"),
        Wrong(
            lambda state: {k.removeprefix("module."): v.clone() for k, v in state.items()},
            "are copies",
        ),
    ),
)


# --- deal out the images ---------------------------------------------------------------------------------------------
def shard(n, world, rank):
    each = -(-n // world)
    indices = list(range(n))
    while len(indices) < each * world:
        indices += range(min(n, each * world - len(indices)))
    return indices[rank::world]


def _check_deal(answer):
    sizes = [
        (10, 2),
        (7, 2),
        (1, 4),
        (12, 5),
        (3, 3),
        (random.randint(20, 40), random.randint(2, 6)),
    ]
    for n, world in sizes:
        for rank in range(world):
            found = call(answer, n, world, rank)
            expected = list(
                DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=False)
            )
            if not isinstance(found, (list, tuple, range)):
                raise NotYet(
                    f"shard({n}, {world}, {rank}) returned {type(found).__name__}; expected a list of indices."
                )
            if list(found) != expected:
                raise NotYet(
                    f"shard({n}, {world}, {rank}) is {list(found)[:8]}, expected {expected[:8]}."
                    f"{_why_deal(list(found), expected, n, world, rank)}"
                )
    return "the same indices as DistributedSampler, for even and uneven sizes."


def _why_deal(found, expected, n, world, rank):
    if found == list(range(rank, n, world)):
        return " Each rank takes the same number of steps: begin again from 0 where images are missing."
    if found == list(range(n))[rank * (n // world) : (rank + 1) * (n // world)]:
        return " Deal like cards, not in blocks."
    return " How many indices does each rank get, and where do they start?"


deal = Exercise(
    key="06.deal",
    title="deal out the images",
    minutes=6,
    lines=4,
    difficulty=2,
    check_answer=_check_deal,
    hints=(
        "First make the list long enough: its length must be a multiple of world.",
        "Repeat the indices from 0 until the length fits, then take every world-th one, from rank: indices[rank::world].",
    ),
    reference=shard,
    explanation="Padding comes first, so that all ranks take the same number of steps; one image for four ranks is repeated "
    "three times. The slice with a step deals like cards.",
    wrong=(
        Wrong(lambda n, world, rank: list(range(rank, n, world)), "same number of steps"),
        Wrong(
            lambda n, world, rank: list(range(n))[rank * (n // world) : (rank + 1) * (n // world)],
            "not in blocks",
        ),
        Wrong(
            lambda n, world, rank: list(range(rank, n - n % world, world)), "where do they start"
        ),
        Wrong(lambda n, world, rank: n // world, "expected a list"),
    ),
)


# --- finish a DDP script ---------------------------------------------------------------------------------------------
DDP_SCRIPT = """import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rank = int(os.environ["RANK"])
# TODO 1: join the group of processes, through gloo
torch.manual_seed(rank)  # so each process begins with other weights
x = torch.arange(8.0).unsqueeze(1) / 8
dataset = TensorDataset(x, 2 * x)
model = nn.Linear(1, 1)
# TODO 2: wrap the model
sampler = None
# TODO 3: give each process its own samples
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
for x, y in DataLoader(dataset, batch_size=2, sampler=sampler):
    seen += (8 * x).flatten().tolist()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print("RESULT", rank, [p.item() for p in model.parameters()], sorted(seen), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
_JOIN = 'dist.init_process_group("gloo")'
_ANSWERS = {
    "# TODO 1: join the group of processes, through gloo": _JOIN,
    "# TODO 2: wrap the model": "model = DistributedDataParallel(model)",
    "# TODO 3: give each process its own samples": "sampler = DistributedSampler(dataset)",
}


def finished_script():
    from exercises.lesson06 import DDP_SCRIPT

    text = DDP_SCRIPT.replace(
        "# TODO 1: join the group of processes, through gloo", 'dist.init_process_group("gloo")'
    )
    text = text.replace("# TODO 2: wrap the model", "model = DistributedDataParallel(model)")
    return text.replace(
        "# TODO 3: give each process its own samples", "sampler = DistributedSampler(dataset)"
    )


def _with(*numbers):
    text = DDP_SCRIPT
    for number, (todo, line) in enumerate(_ANSWERS.items(), 1):
        text = text.replace(todo, line if number in numbers else "")
    return text


def _check_script(answer):
    text = call(answer) if callable(answer) else answer
    if not isinstance(text, str):
        raise NotYet(f"expected the script as text, got {type(text).__name__}. Return the string.")
    left = [todo for todo in _ANSWERS if todo in text]
    if text.split() == DDP_SCRIPT.split():
        raise NotYet(
            f"the line {left[0]!r} is still there. Does replace name it exactly, and do you keep its result?"
        )
    try:
        _judge_script(*_run_two(text))
    except NotYet as found:
        raise NotYet(
            str(found) + (f" The line {left[0]!r} is still there." if left else "")
        ) from None
    return "two processes, different samples, equal weights."


def _judge_script(results, complaint):
    if len(results) != 2:
        raise NotYet(f"the two processes did not reach the end: {complaint}")
    (first, seen_first), (second, seen_second) = results
    if set(seen_first) & set(seen_second):
        raise NotYet(
            f"both processes learned from sample {min(set(seen_first) & set(seen_second)):.0f}. "
            "Which object deals the samples out, and does the loader use it?"
        )
    if first != second:
        raise NotYet(
            f"after training the weights differ: {first} on rank 0, {second} on rank 1. Who averages the gradients?"
        )
    learned = set(seen_first) | set(seen_second)
    if len(learned) < 8:
        raise NotYet(
            f"both processes together learned from {len(learned)} of the 8 samples. Deal out all of them."
        )


# A server process imports these once; each check forks its two processes from it, so that only the first one takes long.
_NEEDED = [
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "torch._dynamo",
]


def _run_two(text):
    """Run `text` as two processes, as torchrun would; returns [(weights, samples) by rank] and the last complaint."""
    way = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(way)
    if way == "forkserver":
        context.set_forkserver_preload(_NEEDED)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        socket.socket() as probe,
    ):
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        file = Path(folder) / "answer.py"
        file.write_text(text, encoding="utf-8")
        children = [
            context.Process(target=_one_of_two, args=(str(file), port, str(rank)))
            for rank in (0, 1)
        ]
        try:
            for child in children:
                child.start()
            late = _wait(children)
        finally:
            for child in children:
                if child.pid:
                    child.kill()
                    child.join()
        return _read(file, late)


def _one_of_two(file, port, rank):
    """Run in a process of its own: the script, with the variables that torchrun sets, its output in files."""
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{file}.{rank}.{kind}", os.O_CREAT | os.O_WRONLY), number)
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        WORLD_SIZE="2",
        RANK=rank,
        LOCAL_RANK=rank,
        CUDA_VISIBLE_DEVICES="",
    )
    torch.set_num_threads(1)
    runpy.run_path(file, run_name="__main__")
    sys.stdout.flush()
    os._exit(0)  # Python's own end takes seconds where torch is loaded, and nothing here needs it


def _wait(children, seconds=100, grace=2):
    """Wait for both; where one has failed, the other, which may wait for it, gets `grace` seconds. True: too long."""
    end = time.monotonic() + seconds
    while any(child.is_alive() for child in children) and time.monotonic() < end:
        if any(child.exitcode for child in children):
            end, grace = (
                min(end, time.monotonic() + grace),
                seconds,
            )  # the grace counts from the first time
        time.sleep(0.02)
    return any(child.is_alive() for child in children)


def _read(file, late):
    results, errors = [], []
    if not Path(f"{file}.0.out").exists():
        return (
            [],
            "they did not start. In a program, call check below the line: if __name__ == '__main__':",
        )
    for rank in ("0", "1"):
        out, err = (_text(Path(f"{file}.{rank}.{kind}")) for kind in ("out", "err"))
        results += re.findall(r"^RESULT \d \[(.*)\] \[([\d., ]*)\]$", out, flags=re.M)
        errors += [f"rank {rank}: {line}" for line in err.splitlines() if "Error" in line]
    results = [
        (weights, [float(s) for s in re.findall(r"\d+\.?\d*", samples)])
        for weights, samples in results
    ]
    waits = (
        "no end within 100 seconds: does one process wait for the other?" if late else "no message"
    )
    return results, errors[-1] if errors else waits


def _text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _only_first_joins():
    return _with(1, 2, 3).replace(_JOIN, f"if rank == 0: {_JOIN}")


script = Exercise(
    key="06.script",
    title="finish a DDP script",
    minutes=10,
    lines=3,
    difficulty=3,
    check_answer=_check_script,
    seconds=210,
    hints=(
        "One line each: dist.init_process_group, DistributedDataParallel, DistributedSampler.",
        'init_process_group takes the name "gloo"; the wrapper takes the model and replaces it; the sampler takes the dataset.',
    ),
    reference=finished_script,
    explanation="The group lets the processes talk; DDP copies the weights of rank 0 at the start and averages gradients during "
    "backward, so the weights stay equal; the sampler gives each rank other samples.",
    wrong=(
        Wrong(lambda: _with(1, 3), "the weights differ"),
        Wrong(lambda: _with(1, 2), "both processes learned"),
        Wrong(lambda: _with(2, 3), "did not reach the end"),
        Wrong(_only_first_joins, "rank 1: "),
        Wrong(lambda: DDP_SCRIPT, "is still there"),
    ),
)


# --- choose the number of GPUs ---------------------------------------------------------------------------------------
def most_gpus(compute_ms, megabytes, gb_per_s, efficiency, limit):
    def step_ms(n):
        return compute_ms / n + (2 * (n - 1) / n * megabytes / gb_per_s if n > 1 else 0)

    return max(n for n in range(1, limit + 1) if step_ms(1) / (n * step_ms(n)) >= efficiency)


def _efficiency(n, compute_ms, megabytes, gb_per_s):
    return compute_ms / (compute_ms + 2 * (n - 1) * megabytes / gb_per_s)


def _check_choose(answer):
    cases = [
        (100, 400, 10, 0.5, 64),
        (12, 2, 1, 0.5, 64),
        (100, 1, 450, 0.9, 16),
        (10, 4000, 1.25, 0.9, 8),
        (50, 100, 32, 0.5, 1),
    ]
    cases += [
        (1, 10, 10, 0.5, 64)
    ]  # a short step, in which a millisecond too much for one GPU shows
    cases += [
        (random.uniform(20, 500), random.uniform(1, 800), random.uniform(1, 400), 0.7, 128)
        for _ in range(3)
    ]
    for compute, megabytes, link, efficiency, limit in cases:
        found = call(answer, compute, megabytes, link, efficiency, limit)
        expected = max(
            n
            for n in range(1, limit + 1)
            if n == 1 or _efficiency(n, compute, megabytes, link) >= efficiency
        )
        whole = isinstance(found, Integral) and not isinstance(found, bool)
        if not whole or found != expected:
            near = (
                _efficiency(found, compute, megabytes, link)
                if whole and 0 < found < 10**9
                else None
            )
            reached = (
                f"{found} GPUs reach {near:.3f}"
                if near is not None
                else f"{found!r} is no number of GPUs"
            )
            over = " and the limit is passed" if whole and found > limit else ""
            raise NotYet(
                f"most_gpus({compute:.4g}, {megabytes:.4g}, {link:.4g}, {efficiency}, {limit}): {reached}{over}; "
                f"{_why_choose(found, expected, near, efficiency)}"
            )
    return "nine set-ups, each with the most GPUs that still pay."


def _why_choose(found, expected, near, efficiency):
    if near is None:
        return "return a whole number from 1 to limit."
    if near < efficiency:
        return f"that is below {efficiency}. Is the time on n GPUs multiplied by n?"
    return "more GPUs would still reach it. Does the search go up to limit, limit included, and is exactly that efficiency enough?"


def _by_time(compute_ms, megabytes, gb_per_s, efficiency, limit):
    def step(n):
        return compute_ms / n + 2 * (n - 1) / n * megabytes / gb_per_s

    return max(n for n in range(1, limit + 1) if step(1) / step(n) >= efficiency)


def _short_of_limit(*args):
    return most_gpus(*args[:4], max(1, args[4] - 1))


def _strictly_more(compute_ms, megabytes, gb_per_s, efficiency, limit):
    passing = [
        n
        for n in range(1, limit + 1)
        if _efficiency(n, compute_ms, megabytes, gb_per_s) > efficiency
    ]
    return max(passing, default=1)


choose = Exercise(
    key="06.choose",
    title="choose the number of GPUs",
    minutes=6,
    lines=3,
    difficulty=2,
    check_answer=_check_choose,
    hints=(
        "Compute the efficiency for every n from 1 to limit.",
        "max(n for n in range(1, limit + 1) if … >= efficiency)",
    ),
    reference=most_gpus,
    explanation="With n GPUs the work costs n times the time of a step in GPU-milliseconds; the efficiency is the cost on one "
    "GPU divided by that. It falls with n, so the largest n that passes is the answer.",
    wrong=(
        Wrong(_by_time, "multiplied by n"),
        Wrong(_short_of_limit, "limit included"),
        Wrong(lambda *args: 0.5, "no number of GPUs"),
        Wrong(_strictly_more, "exactly that efficiency"),
    ),
)


QUIZ = (
    Question(
        "06.module",
        "A state dict has keys like module.conv1.weight. What made it?",
        ("A model on a GPU", "A wrapper: DataParallel or DDP", "torch.compile"),
        (
            "A device leaves no trace in the names.",
            "Yes: save model.module.state_dict() and the prefix never appears.",
            "That adds _orig_mod. instead.",
        ),
        1,
    ),
    Question(
        "06.rank",
        "Why may rank 0 alone save the model under DDP?",
        (
            "It has the best weights",
            "All ranks have equal weights",
            "Other ranks cannot write files",
        ),
        (
            "No rank is better: they are equal.",
            "Yes: same start, same averaged gradients.",
            "They can, and then they destroy each other's file.",
        ),
        1,
    ),
    Question(
        "06.epoch",
        "You forget sampler.set_epoch(epoch). What happens?",
        (
            "An error in the second epoch",
            "Every epoch has the same order",
            "Ranks see the same images",
        ),
        (
            "Nothing fails, which is the trap.",
            "Yes: the shuffle is seeded by the epoch number.",
            "Shards still differ between ranks.",
        ),
        1,
    ),
    Question(
        "06.scaling",
        "Eight GPUs, same total batch: the all-reduce takes as long as the compute on one GPU. What helps?",
        ("More GPUs", "A larger batch per GPU", "DataParallel"),
        (
            "Compute shrinks further; communication stays.",
            "Yes: more compute per all-reduce.",
            "It copies the model at every step, too.",
        ),
        1,
    ),
)
