"""Wrong answers to the exercises of lesson 05."""

from answers import edit

OUT_OF_MEMORY = "except torch.OutOfMemoryError"
DROPS_LAST = (
    *(
        "model.zero_grad()",
        "n = min(len(x), max(size, len(x) - len(x) % size))\n    model.zero_grad()",
    ),
    *("x.split(size), y.split(size)", "x[:n].split(size), y[:n].split(size)"),
    *("/ len(y)", "/ n"),
)
WRONG = {
    "leak": (
        edit("what else does a sample", ".clone()", ""),
        edit(
            "a loss, keep alive",
            "loss.item()",
            "loss",
            "sum(losses) / len(losses)",
            "float(sum(losses) / len(losses))",
        ),
        edit("the mean loss is", "/ len(losses)", ""),
        edit("first row", "rows[0].clone()", "rows[-1].clone()"),
        edit("mean loss and the samples", ", samples\n", "\n"),
        edit("returned None", "return ", ""),
    ),
    "largest": (
        edit("also tried and kept", "return fits", "return 1 << fits.bit_length() >> 1"),
        edit("Halve the range", "(fits + too_large) // 2", "too_large - 1"),
        edit("OutOfMemoryError only", OUT_OF_MEMORY, "except Exception"),
        edit("exactly when even", "return fits", "return max(1, fits)"),
        edit("mat1 and mat2", OUT_OF_MEMORY, "except RuntimeError"),
        edit("whole number", "return fits", "return float(fits)"),
    ),
    "accumulation": (
        edit("part of the whole mean", " * len(labels) / len(y)", ""),
        edit("uneven", "* len(labels) / len(y)", "/ len(x.split(size))"),
        edit("earlier step", "model.zero_grad()", ""),
        edit("samples at once", "split(size)", "split(len(x))"),
        edit(
            "waited for one backward",
            "model.zero_grad()",
            "model.zero_grad()\n    loss = 0",
            "loss = nn",
            "loss = loss + nn",
            "        loss.backward",
            "    loss.backward",
        ),
        edit("What about the last piece", *DROPS_LAST),
        edit("Is backward called for each piece", "loss.backward()", ""),
        edit(
            "zero_grad inside the loop",
            "        loss = nn",
            "        model.zero_grad()\n        loss = nn",
        ),
    ),
}
