"""The numbers that the patients of lesson 13 are asked for, computed from their traces."""

from lessons import reading


def longest_gap(trace):
    return reading.gaps(trace)[0][1] / trace.length


def in_loader(trace):
    did = reading.on_cpu(trace, 0, trace.length)
    return sum(time for name, time in did.items() if "DataLoader" in name) / trace.length


def in_free(trace):
    return reading.on_cpu(trace, 0, trace.length)["hipFree"] / trace.length


def collective_us(trace, rank):
    return sum(e.length for e in trace.rank(rank).gpu if e.kind == "communication")


def latest(trace):
    return min(trace.ranks, key=lambda rank: collective_us(trace, rank))


def earliest(trace):
    return max(trace.ranks, key=lambda rank: collective_us(trace, rank))


def all_reduces(trace):
    return sum(event.kind == "communication" for event in trace.gpu)


SCORES = "[[96, 3137, 64], [96, 64, 3137]]"


def scores_tflops(trace):
    times = sorted(e.length for e in trace.gpu if e.kind == "matmul" and e.shapes == SCORES)
    flops = reading.product_flops(3137, 64, 3137, batch=96)
    return reading.per_second(flops, times[len(times) // 2]) / 1e12


def busy(trace):
    return reading.busy_share(trace)


def idle(trace):
    return 1 - reading.busy_share(trace)


def elementwise(trace):
    return reading.share_by_kind(trace)["elementwise"]
