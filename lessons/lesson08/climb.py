"""One protocol for a change to a training loop: train, test, and run old and new in turn. Lesson 08 explains it.

climb = Climb(model, test_batches, device)
climb("baseline", make_step, batches)
climb("mixed precision", make_mixed_step, batches)
"""

import copy
import itertools
import time
from statistics import median

import torch

from helpers.devices import synchronize
from helpers.training import evaluate
from lessons.measure import digits, peak_bytes

PAIRS = 11  # short runs of old and new in turn
WINS = 9  # a change that makes no difference wins so many in 1 of 30 cases (67 of 2048)
LOSS = 0.01  # of accuracy, which a change may cost


class Climb:
    """Measures one change after another. Each call trains a copy of `model` and adds its row to `rows`.

    `test`: batches (images, labels) of the test. `passes`: over the training images for each change. `seconds`: of
    each of the short runs that decide.
    """

    def __init__(self, model, test, device, passes=2, seconds=0.06):
        self.model = model
        self.test = test
        self.device = torch.device(device)
        self.passes = passes
        self.seconds = seconds
        self.rows = []
        self._runs = {}  # name: a function that trains on some images and returns images per second

    @property
    def best(self):
        """The row of the last change that was kept; None before the first."""
        kept = [row for row in self.rows if row["kept"]]
        return kept[-1] if kept else None

    def __call__(self, name, make_step, batches, seed=0):
        """Measure a change called `name`, print a line and return its row, a dict.

        `make_step(model)` returns a function step(x, y) that trains `model` on one batch and returns the loss;
        `batches()` gives the batches of one pass, on the device. A name that is there already is measured anew, and
        what came after it is forgotten.
        """
        self._forget(name)
        torch.manual_seed(seed)
        model = copy.deepcopy(self.model)
        step = make_step(model)
        row = {"rung": len(self.rows), "name": name, **self._train(step, batches)}
        row["accuracy"] = digits(evaluate(model, self.test, self.device))
        row["peak_bytes"] = self._peak(model, step, batches)
        self._runs[name] = lambda images: self._rate(step, batches, images)
        self._compare(row)
        self.rows.append(row)
        print(self._line(row))
        return row

    def _forget(self, name):
        names = [row["name"] for row in self.rows]
        if name in names:
            self.rows = self.rows[: names.index(name)]

    def _train(self, step, batches):
        """Train for all passes: seconds of the first step, and images per second of the last pass."""
        x, y = next(iter(batches()))
        synchronize(self.device)
        start = time.perf_counter()
        step(x, y)
        synchronize(self.device)
        setup = time.perf_counter() - start
        rates = [self._rate(step, batches) for _ in range(self.passes)]
        return {"batch": len(y), "setup_s": digits(setup), "images_per_s": digits(rates[-1])}

    def _rate(self, step, batches, images=None):
        """Images per second of a pass over the batches, or over about so many `images`."""
        count = 0
        start = time.perf_counter()
        for x, y in batches():
            loss = step(x, y)
            count += len(y)
            if images is not None and count >= images:
                break
        loss.item()  # waits for the device
        return count / (time.perf_counter() - start)

    def _peak(self, model, step, batches):
        x, y = next(iter(batches()))
        for parameter in model.parameters():
            parameter.grad = None
        return peak_bytes(lambda: step(x, y), self.device)

    def _compare(self, row):
        """Add ratio (to the best before), wins and kept; the rate is then the best one's times the ratio."""
        best = self.best
        if best is None:
            row.update(ratio=1.0, wins=PAIRS, kept=True)
            return
        images = max(row["batch"], best["batch"], int(self.seconds * best["images_per_s"]))
        new = self._runs[row["name"]]
        old = self._runs[best["name"]]
        pairs = [(new(images), old(images)) for _ in range(PAIRS + 1)][1:]  # the first warms up
        ratios = [mine / its for mine, its in pairs]
        wins = sum(ratio > 1 for ratio in ratios)
        accurate = row["accuracy"] >= self.rows[0]["accuracy"] - LOSS
        rate = digits(best["images_per_s"] * median(ratios))
        row.update(ratio=digits(median(ratios)), wins=wins, images_per_s=rate)
        row["kept"] = wins >= WINS and accurate

    def _line(self, row):
        peak = "" if row["peak_bytes"] is None else f", {row['peak_bytes'] / 2**20:.1f} MiB"
        result = f"{row['images_per_s']:,.0f} images/s, {row['accuracy']:.1%} right{peak}"
        if row["rung"] == 0:
            return f"{row['name']}: {result}"
        verdict = "kept" if row["kept"] else "not kept"
        against = (
            f"{row['ratio']:.2f} × {self.best_before(row)}, faster in {row['wins']} of {PAIRS}"
        )
        return f"{row['name']}: {result}; {against}: {verdict}"

    def best_before(self, row: dict) -> str:
        """Name of the change that `row` was compared with."""
        earlier = itertools.takewhile(lambda other: other["rung"] < row["rung"], self.rows)
        return [other["name"] for other in earlier if other["kept"]][-1]
