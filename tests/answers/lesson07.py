"""Wrong answers to the exercises of lesson 07."""

from answers import edit, given, instead

AFTER = "fn()\n        synchronize()\n"
BEFORE = "synchronize()\n        start"
ALWAYS = '        warnings.simplefilter("always")\n'
DEFAULT = '    torch.cuda.set_sync_debug_mode("default")\n'
X = 'images.to("cuda", non_blocking=True)'
ADDED = "train_step(model, photos.prepare(x), y, optimizer)"
WRONG = {
    "stopwatch": (
        edit("before the work was done", AFTER, "fn()\n"),
        edit("decide too much", "statistics.median", "statistics.mean"),
        edit("Which unit", "1000 * ", ""),
        edit("read 2 times", "range(7)", "range(1)"),
        edit("read 0 times", "clock()", "time.perf_counter()"),
        edit("before any call of fn()", "range(3)", "range(0)"),
        edit("lucky", "statistics.median", "min"),
        edit("still in the queue", BEFORE, "start"),
    ),
    "waits": (
        edit("once per line", ALWAYS, '        warnings.simplefilter("default")\n'),
        edit("another cause", 'if "synchronizing" in str(w.message)', ""),
        edit("debug mode stays on", DEFAULT, ""),
        edit(
            "expected the line of code",
            "linecache.getline(w.filename, w.lineno).strip()",
            "w.lineno",
        ),
        edit("you found 0", "        step()\n", ""),
        given("is there a `return`", lambda step: step()),
        given("expected a list", lambda step: 3),
    ),
    "epoch": (
        edit("synchronized 3 times", ADDED, f"{ADDED}.item()", "total.item()", "total"),
        edit("synchronized 4 times", X, 'images.to("cuda")'),
        edit("ran on the CPU", X, "photos.prepare(images).to('cuda')", "photos.prepare(x)", "x"),
        edit("the mean of the batches", " / len(batches)", ""),
        edit(".item() reads it", "total.item()", "total"),
    ),
    "limit": (
        instead("twice the batch takes 1.0 times", A="copies"),
        instead("a kernel runs 99% of the time", B="overhead"),
        instead("TFLOP/s are far from 67", B="compute"),
        instead("needs no more launches", C="overhead"),
        instead("GB/s are far from 3,350", D="memory"),
        instead("step D has no limit yet", D=...),
        instead("the four limits are", A="cpu"),
        instead("memory still limits it", batch=32),
        instead("compute already limits it", batch=512),
        instead("double it from 8 on", batch=0),
        instead("From which batch on", batch=...),
        given("expected a dict", "memory"),
    ),
}
