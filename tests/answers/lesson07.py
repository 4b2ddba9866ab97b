"""Wrong answers to the exercises of lesson 07."""

from answers import edit

AFTER = "fn()\n        synchronize()\n"
BEFORE = "synchronize()\n        start"
HALTING = (
    "total = 0.0\n    for row in rows:\n        if row.max() > 0.5:\n"
    "            total += row[row > 0.5].sum().item()\n    return total"
)
SUM = "return (rows * (rows > 0.5)).sum().item()"
QUEUE = 'with torch.cuda.stream(side):\n        copy = host.to("cuda", non_blocking=True)\n'
WORK = "    result = work()\n"
WAIT = "    main.wait_stream(side)\n"
RECORD = "    copy.record_stream(main)\n"
WRONG = {
    "stopwatch": (
        edit("before the work was done", AFTER, "fn()\n"),
        edit("decide too much", "statistics.median", "statistics.mean"),
        edit("Which unit", "1000 * ", ""),
        edit("read 2 times", "range(7)", "range(1)"),
        edit("never called clock()", "clock()", "time.perf_counter()"),
        edit("before any call of fn()", "range(3)", "range(0)"),
        edit("lucky", "statistics.median", "min"),
        edit("still in the queue", BEFORE, "start"),
        edit(
            "only the work and the wait",
            "start = clock()",
            "start = clock()\n        synchronize()",
        ),
    ),
    "sums": (
        edit("a mask as an index waits", SUM, "return rows[rows > 0.5].sum().item()"),
        edit(".item() reads it", ".item()", ""),
        edit("came back changed", SUM, "rows[rows <= 0.5] = 0\n    return rows.sum().item()"),
        edit("above 0.5", SUM, "return rows.sum().item()"),
        edit("it waited", SUM, HALTING),
    ),
    "streams": (
        edit("didn't wait for the copy", WAIT, ""),
        edit("Python itself", ", non_blocking=True", ""),
        edit("the copy did not run", QUEUE, 'copy = host.to("cuda", non_blocking=True)\n'),
        edit("Only the copy belongs", "    result = work()", "        result = work()", RECORD, ""),
        edit("the two took turns", WORK + WAIT, WAIT + WORK),
        edit("belongs to `side`", RECORD, ""),
        edit("it returned Tensor", "return copy, result", "return copy"),
    ),
}
