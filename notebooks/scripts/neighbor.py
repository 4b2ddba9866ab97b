"""Training steps per second with all threads and with one, alone and beside a busy program. Lesson 08 runs this file."""

import json
import os
import subprocess
import sys
import time

# OpenMP's own settings, as in any program; the course's kernels ask for a shorter spin
for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)

import torch  # noqa: E402 - OpenMP reads its settings when it is loaded

from helpers.training import SmallCNN  # noqa: E402

SECONDS, ROUNDS = 0.12, 2  # of each measurement; the best of these rounds counts
COUNTS = {"all threads": torch.get_num_threads(), "one thread": 1}
model = SmallCNN()
x, y = torch.rand(16, 3, 32, 32), torch.randint(10, (16,))


def step():
    torch.nn.functional.cross_entropy(model(x), y).backward()


def rate(threads):
    """Return steps per second with so many threads, after two to warm up."""
    torch.set_num_threads(threads)
    step()
    step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        step()
        count += 1
    return count / (time.perf_counter() - start)


def rates(rounds):
    """Return {"all threads": the best rate of its round so far, "one thread": …}, with one more round in `rounds`."""
    rounds.append({name: rate(threads) for name, threads in COUNTS.items()})
    return {name: max(each[name] for each in rounds) for name in COUNTS}


def main():
    """Print the rates as JSON: {"alone": {"all threads": …, "one thread": …}, "beside a busy program": {…}}."""
    alone, beside, found = [], [], {}
    for _ in range(ROUNDS):  # in turn, so that other programs disturb both
        found["alone"] = rates(alone)
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            time.sleep(0.1)
            found["beside a busy program"] = rates(beside)
        finally:
            busy.kill()
            busy.wait()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
