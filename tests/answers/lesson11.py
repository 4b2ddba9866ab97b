"""Wrong answers to the exercises of lesson 11."""

from answers import edit, given

WRONG = {
    "mirror": (
        edit("out-of-bounds store", "values, mask=inside)", "values)"),
        edit("out-of-bounds load", "tl.load(x + places, mask=inside)", "tl.load(x + places)"),
        edit("1 element past the end of out", "n - 1 - places", "n - places"),
        edit("that is x as it was", "out + n - 1 - places", "out + places"),
        given("expected a kernel", 5),
    ),
    "gated": (
        edit("silu(g) is g * sigmoid(g)", "g * tl.sigmoid(g)", "tl.sigmoid(g)"),
        edit("where is `up`", " * u, mask", ", mask"),
        edit("swapped", "g * tl.sigmoid(g) * u", "g * u * tl.sigmoid(u)"),
        edit("past the end of up", "tl.load(up + places, mask=inside)", "tl.load(up + places)"),
        edit("never written", "tl.program_id(0) * BLOCK + ", ""),
    ),
    "row_sums": (
        edit("only the first block", "range(0, columns, BLOCK)", "range(0, BLOCK, BLOCK)"),
        edit("only the last block", "total +=", "total ="),
        edit("past the end of x", ", mask=places < columns, other=0.0", ""),
        edit("out[0] is", "out + row", "out"),
    ),
}
