"""Wrong answers to the exercises of lesson 07."""

import statistics
import time

import torch

from helpers.checks.core import Wrong


def _stopwatch(
    warm=3, before=True, inside=False, after=True, summary=statistics.median, scale=1000, samples=7
):
    def my_time_ms(fn, clock=time.perf_counter, synchronize=torch.cuda.synchronize):
        for _ in range(warm):
            fn()
        found = []
        for _ in range(samples):
            if before:
                synchronize()
            start = clock()
            if inside:
                synchronize()
            fn()
            if after:
                synchronize()
            found.append(scale * (clock() - start))
        return summary(found)

    return my_time_ms


def _own_clock(fn, clock=time.perf_counter, synchronize=torch.cuda.synchronize):
    return _stopwatch()(fn, time.perf_counter, synchronize)


def _halting(rows):
    total = 0.0
    for row in rows:
        if row.max() > 0.5:
            total += row[row > 0.5].sum().item()
    return total


def _masked(rows):
    return rows[rows > 0.5].sum().item()


def _unread(rows):
    return (rows * (rows > 0.5)).sum()


def _overwritten(rows):
    rows[rows <= 0.5] = 0
    return rows.sum().item()


def _all_of_them(rows):
    return rows.sum().item()


def _no_wait(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    copy.record_stream(torch.cuda.current_stream())
    return copy, work()


def _blocking(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda")
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    copy.record_stream(torch.cuda.current_stream())
    return copy, result


def _wait_first(host, work, side):
    main = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    main.wait_stream(side)
    copy.record_stream(main)
    return copy, work()


def _same_stream(host, work, side):
    copy = host.to("cuda", non_blocking=True)
    copy.record_stream(torch.cuda.current_stream())
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


def _all_aside(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
        result = work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


def _not_recorded(host, work, side):
    with torch.cuda.stream(side):
        copy = host.to("cuda", non_blocking=True)
    result = work()
    torch.cuda.current_stream().wait_stream(side)
    return copy, result


WRONG = {
    "stopwatch": (
        Wrong(_stopwatch(after=False), "before the work was done"),
        Wrong(_stopwatch(summary=statistics.mean), "decide too much"),
        Wrong(_stopwatch(scale=1), "Which unit"),
        Wrong(_stopwatch(samples=1), "read 2 times"),
        Wrong(_own_clock, "never called clock()"),
        Wrong(_stopwatch(warm=0), "before any call of fn()"),
        Wrong(_stopwatch(summary=min), "lucky"),
        Wrong(_stopwatch(before=False), "still in the queue"),
        Wrong(_stopwatch(inside=True), "only the work and the wait"),
    ),
    "sums": (
        Wrong(_masked, "a mask as an index waits"),
        Wrong(_unread, ".item() reads it"),
        Wrong(_overwritten, "came back changed"),
        Wrong(_all_of_them, "above 0.5"),
        Wrong(_halting, "it waited"),
    ),
    "streams": (
        Wrong(_no_wait, "didn't wait for the copy"),
        Wrong(_blocking, "Python itself"),
        Wrong(_same_stream, "the copy did not run"),
        Wrong(_all_aside, "Only the copy belongs"),
        Wrong(_wait_first, "the two took turns"),
        Wrong(_not_recorded, "belongs to `side`"),
    ),
}
