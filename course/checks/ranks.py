"""Several ranks on one machine: as threads that send each other tensors, and as processes like those of torchrun."""

import contextlib
import multiprocessing
import os
import runpy
import tempfile
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from course.checks import expect
from course.checks.core import NotYet

PATIENCE = 10  # seconds until a rank that doesn't come is missed


# --- threads ----------------------------------------------------------------------------------------
class Hang(RuntimeError):
    """Every rank that hasn't finished waits for a message that never comes."""


class Network:
    """Carries tensors between ranks, and counts in `sent` the bytes that each has sent."""

    def __init__(self, ranks):
        self.sent = [0] * ranks
        self._messages = defaultdict(list)
        self._waits = {}  # rank: whom it waits for
        self._finished = set()
        self._changed = threading.Condition()

    def send(self, rank: int, tensor: torch.Tensor, dst: int) -> None:
        """Send a copy of `tensor` from `rank` to `dst`; returns at once, as dist.isend does."""
        with self._changed:
            self.sent[rank] += tensor.numel() * tensor.element_size()
            self._messages[rank, dst].append(tensor.clone())
            self._changed.notify_all()

    def recv(self, rank: int, tensor: torch.Tensor, src: int) -> None:
        """Wait for the next tensor from `src` to `rank`, and write it into `tensor`, as dist.recv does."""
        with self._changed:
            self._waits[rank] = src
            while not self._messages[src, rank]:
                if self._stuck():
                    self._changed.notify_all()
                    raise Hang(self.told())
                self._changed.wait()
            del self._waits[rank]
            message = self._messages[src, rank].pop(0)
        if message.shape != tensor.shape:
            shapes = f"{tuple(message.shape)}, the tensor has {tuple(tensor.shape)}"
            raise ValueError(f"rank {rank}: what came from rank {src} has shape {shapes}")
        tensor.copy_(message)

    def finish(self, rank: int) -> None:
        """Note that `rank` sends no more."""
        with self._changed:
            self._finished.add(rank)
            self._waits.pop(rank, None)
            self._changed.notify_all()

    def _stuck(self):
        idle = all(not self._messages[src, rank] for rank, src in self._waits.items())
        return idle and len(self._waits) + len(self._finished) == len(self.sent)

    def told(self) -> str:
        """Who waits for whom, in a sentence."""
        waits = [f"rank {rank} waits for rank {src}" for rank, src in sorted(self._waits.items())]
        return ", ".join(waits + [f"rank {rank} has finished" for rank in sorted(self._finished)])


def run_ranks(function: Callable, tensors: Sequence[torch.Tensor]) -> tuple[list, list[int]]:
    """Run `function(tensor, rank, ranks, send, recv)` as one thread for each of `tensors`: (results, bytes sent).

    Raises what a rank raises; Hang if all that haven't finished wait for each other.
    """
    network = Network(len(tensors))
    results, errors = [None] * len(tensors), {}

    def work(rank):
        def send(tensor, dst):
            network.send(rank, tensor, dst)

        def recv(tensor, src):
            network.recv(rank, tensor, src)

        try:
            results[rank] = function(tensors[rank], rank, len(tensors), send, recv)
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors[rank] = error
        finally:
            if not isinstance(errors.get(rank), Hang):
                network.finish(rank)

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(len(tensors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors.values(), key=lambda error: isinstance(error, Hang)):
        raise error
    return results, network.sent


class Alone(NotYet):
    """A rank waits for others that don't come; what keeps them away is the fault."""


class Collectives:
    """One rank's all-gather and reduce-scatter, by threads that meet at a barrier; `brought` is shared by all ranks."""

    def __init__(self, rank, meeting, brought, size):
        self.rank, self.meeting, self.brought, self.size = rank, meeting, brought, size
        self.ranks = len(brought)
        self.gathered = []

    def all_gather(self, shard: torch.Tensor) -> torch.Tensor:
        whole = torch.cat(self._exchange("all_gather", shard, self.size))
        self.gathered.append(weakref.ref(whole))
        return whole

    def reduce_scatter(self, whole: torch.Tensor) -> Any:
        parts = self._exchange("reduce_scatter", whole, self.size * self.ranks)
        return sum(part.chunk(self.ranks)[self.rank] for part in parts)

    def _exchange(self, name, tensor, size):
        self.brought[self.rank] = expect.tensor(tensor, (size,), what=f"what {name} gets").detach()
        try:
            self.meeting.wait(PATIENCE)
            everything = list(self.brought)
            self.meeting.wait(PATIENCE)
        except threading.BrokenBarrierError:
            raise Alone(f"a rank waits in {name}, and not all others come.") from None
        if len({each.shape for each in everything}) > 1:
            raise NotYet("some ranks call all_gather while others call reduce_scatter.")
        return everything

    def holds_weights(self) -> bool:
        return any(whole() is not None for whole in self.gathered)


# --- processes --------------------------------------------------------------------------------------
# A server imports these once, and each check forks its two processes from it: they share its memory.
_NEEDED = ["torch._dynamo", "torch.utils.data.distributed", __name__]


_NO_START = "it did not start. In a program, call check below the line `if __name__ == '__main__':`"


def hosted_store() -> tuple[Any, dict[str, str]]:
    """A store in which processes find each other, and the variables that lead them to it, while it is kept.

    It has its port from the system: one that was looked for first may be another program's by the time it is used.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store, {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def train_two(source: str, name: str, seconds: float = 90) -> list:
    """Train a line in two processes by the function `name` of the module text `source`; a dict or a complaint by rank."""
    way = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(way)
    if way == "forkserver":
        context.set_forkserver_preload(_NEEDED)
    store, group = hosted_store()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "answer.py"
        file.write_text(source, encoding="utf-8")
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        children = [
            context.Process(target=_child, args=(str(file), name, rank, group, pipes[rank][1]))
            for rank in range(2)
        ]
        try:
            for child in children:
                child.start()
            return _results([pipe for pipe, _ in pipes], children, seconds)
        finally:
            for child in children:
                if child.pid:
                    child.kill()
                    child.join()


def _results(pipes, children, seconds):
    """What each child sent; one that has failed leaves the other two seconds, because that may wait for it."""
    results = [None, None]
    end = time.monotonic() + seconds
    while None in results and time.monotonic() < end:
        for rank, (pipe, child) in enumerate(zip(pipes, children, strict=True)):
            if results[rank] is None and pipe.poll(0.02):
                results[rank] = pipe.recv()
            elif results[rank] is None and not child.is_alive() and not pipe.poll():
                results[rank] = _NO_START
            if isinstance(results[rank], str):
                end = min(end, time.monotonic() + 2)
    return results


def _child(file, name, rank, group, pipe):
    """Run in a process of its own, with the variables that torchrun sets."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "CUDA_VISIBLE_DEVICES": ""}
    os.environ.update({**group, **own, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    torch.set_num_threads(1)
    with contextlib.suppress(OSError):
        try:
            pipe.send(_train(runpy.run_path(file)[name], rank))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - told to the learner
            pipe.send(f"{type(error).__name__}: {error}")
    os._exit(0)  # Python's own end takes seconds where torch is loaded, and nothing here needs it


def _train(to_ddp, rank):
    torch.manual_seed(rank)  # each begins with other weights
    x = torch.arange(8.0)[:, None] / 8
    returned = to_ddp(nn.Linear(1, 1), TensorDataset(x, 2 * x), 2)
    if not isinstance(returned, tuple) or len(returned) != 2:
        return f"it returned {type(returned).__name__}; return the wrapped model and the loader"
    model, loader = returned
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen, sizes = [], []
    for x, y in loader:
        seen += (8 * x).flatten().int().tolist()
        sizes.append(len(x))
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return {"weights": [p.item() for p in model.parameters()], "seen": seen, "sizes": sizes}
