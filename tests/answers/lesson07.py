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
        instead("no kernel of A runs for 52% of the time", A=1024),
        instead("no kernel of A runs for 0% of the time", A=8192),
        instead("of 3,350 GB/s and 40 of 67 TFLOP/s", B=32),
        instead("of 3,350 GB/s and 54 of 67 TFLOP/s", B=512),
        instead("double it from 8 on", B=8),
        instead("step B has no batch yet", B=...),
        instead("expected a number", A="2,048 rows"),
        given("expected a dict", 64),
    ),
}
