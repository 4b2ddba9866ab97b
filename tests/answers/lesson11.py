"""Wrong answers to the exercises of lesson 11."""

from answers import edit, given

LOOP = (
    "    for start in range(0, columns, BLOCK):\n        places = start + tl.arange(0, BLOCK)\n    "
)
ONCE = "    places = tl.arange(0, BLOCK)\n"
WRONG = {
    "mirror": (
        edit("writes beside `out`", "values, mask=inside)", "values)"),
        edit("reads beside `x`", "tl.load(x + places, mask=inside)", "tl.load(x + places)"),
        edit("at place 8", "n - 1 - places", "n - places"),
        edit("expected", "out + n - 1 - places", "out + places"),
        edit("reads beside `x`, which has 10 elements, at place 10", "places < n", "places <= n"),
        given("expected a kernel", 5),
    ),
    "gated": (
        edit("silu(g) is g * sigmoid(g)", "g * tl.sigmoid(g)", "tl.sigmoid(g)"),
        edit("where is `up`", " * u, mask", ", mask"),
        edit("swapped", "g * tl.sigmoid(g) * u", "g * u * tl.sigmoid(u)"),
        edit(
            "touch twice",
            "g * tl.sigmoid(g) * u",
            "g * tl.sigmoid(tl.load(gate + places, mask=inside)) * u",
        ),
        edit("reads beside `up`", "tl.load(up + places, mask=inside)", "tl.load(up + places)"),
    ),
    "row_sums": (
        edit("only the first block", "range(0, columns, BLOCK)", "range(0, 1)"),
        edit("only the last block", "total +=", "total ="),
        edit("reads beside `x`", ", mask=places < columns, other=0.0", ""),
        edit("4 rows of 40", "x + row * columns + places", "x + row * BLOCK + places"),
        edit("3 rows of 16", "out + row", "out"),
    ),
}
