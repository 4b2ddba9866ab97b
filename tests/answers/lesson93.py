"""Wrong answers to the puzzles of page 93."""

from answers import edit, given
from answers.lesson12 import changed

WRONG = {
    "outer": (
        edit("out[0, 1] is", "a[:, None] + b[None, :]", "a[None, :] + b[:, None]"),
        edit("out-of-bounds store", ", mask=inside", ""),
    ),
    "double": (
        edit("expected", "2 * values", "values"),
        edit(
            "past the end of x",
            "tl.load(x + start + places, mask=inside)",
            "tl.load(x + start + places)",
        ),
    ),
    "histogram": (
        edit("out[0] is", ", mask=places < n)\n    tl.atomic", ")\n    tl.atomic"),
        edit(
            "past the end of x",
            "tl.load(x + places, mask=places < n, other=0)",
            "tl.load(x + places)",
        ),
    ),
    "convolve": (
        changed("weights are turned around", "taps[k] *", "taps[4 - k] *"),
        changed("race in shared memory", "__syncthreads();", ""),
        changed("before the start of x", "first + p >= 0 && ", ""),
    ),
    "online": (
        edit("expected", "total * tl.exp(largest - new)", "total"),
        edit("past the end of x", ", mask=places < columns)", ")"),
    ),
    "product": (
        given("expected a dict", 64),
        given("they take 16, 32, 64 or 128", {"TILE": 48, "num_warps": 4}),
        given("more than its 255 registers", {"TILE": 128, "num_warps": 1}),
    ),
    "quantized": (
        edit("out[0] is", "total * tl.load(scale + row, mask=row < rows)", "total"),
        edit("past the end of weight", ", mask=inside, other=0", ""),
    ),
    "attention": (
        edit("out[0, 0] is", " * scale", ""),
        edit("past the end of q", ", mask=rows < n, other=0.0", ""),
    ),
}
