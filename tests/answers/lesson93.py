"""Wrong answers to the puzzles of page 93."""

from answers import edit, given
from answers.lesson12 import changed

WRONG = {
    "outer": (
        edit("out[0, 1] is", "a[:, None] + b[None, :]", "a[None, :] + b[:, None]"),
        edit("out-of-bounds store", ", mask=mask", ""),
    ),
    "row_sums": (
        edit("only the first block", "range(0, columns, BLOCK)", "range(0, BLOCK, BLOCK)"),
        edit("only the last block", "total +=", "total ="),
        edit("past the end of x", ", mask=offsets < columns, other=0.0", ""),
    ),
    "double": (
        edit("expected", "2 * values", "values"),
        edit(
            "past the end of x",
            "tl.load(x + start + offsets, mask=mask)",
            "tl.load(x + start + offsets)",
        ),
    ),
    "histogram": (
        edit("out[0] is", ", mask=offsets < n)\n    tl.atomic", ")\n    tl.atomic"),
        edit(
            "past the end of x",
            "tl.load(x + offsets, mask=offsets < n, other=0)",
            "tl.load(x + offsets)",
        ),
    ),
    "convolve": (
        changed("weights are turned around", "taps[k] *", "taps[4 - k] *"),
        changed("race in shared memory", "__syncthreads();", ""),
        changed("before the start of x", "first + p >= 0 && ", ""),
    ),
    "online": (
        edit("expected", "total * tl.exp(largest - new)", "total"),
        edit("past the end of x", ", mask=offsets < columns)", ")"),
    ),
    "product": (
        given("expected a dict", 64),
        given("they take 16, 32, 64 or 128", {"TILE": 48, "num_warps": 4}),
        given("more than its 255 registers", {"TILE": 128, "num_warps": 1}),
    ),
    "quantized": (
        edit("out[0] is", "total * tl.load(scale + row, mask=row < rows)", "total"),
        edit("past the end of weight", ", mask=mask, other=0", ""),
    ),
    "attention": (
        edit(
            "sees the words 0 to i",
            "others.T <= rows",
            "others.T < n",
            "(tl.program_id(0) + 1) * BLOCK, BLOCK",
            "n, BLOCK",
        ),
        edit("out[1, 0] is", " * scale", ""),
        edit("past the end of q", ", mask=rows < n, other=0.0", ""),
    ),
}
