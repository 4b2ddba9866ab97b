"""Wrong answers to the exercises of lesson 11."""

from answers import edit, given

WRONG = {
    "softmax": (
        edit("`exp` overflows", "values - tl.max(values, axis=0)", "values"),
        edit("each program took row 0", "x + row * columns", "x"),
        edit("masked out: which `other`", ', other=-float("inf")', ", other=0.0"),
        edit("out-of-bounds store", "result, mask=mask", "result"),
        given("expected a kernel", 5),
    ),
    "product": (
        edit("nothing was added", "acc = tl.dot(left, right, acc)", "tl.dot(left, right, acc)"),
        edit("only the last tiles", "tl.dot(left, right, acc)", "tl.dot(left, right)"),
        edit("only the first tiles", "range(0, n, TILE)", "range(0, TILE, TILE)"),
        edit("past the end of b", ", mask=mask_b, other=0.0", ""),
        edit("out[0, 0] is", "k[:, None] * n + columns", "k[:, None] + columns"),
    ),
    "attention": (
        edit("both have to shrink", "row_sum * alpha", "row_sum", "acc * alpha[:, None]", "acc"),
        edit("`acc` has to shrink", "acc * alpha[:, None]", "acc"),
        edit("`row_sum` has to shrink", "row_sum * alpha", "row_sum"),
        edit("only the last tile of keys", "        row_max = new_max\n", ""),
        edit("keys past the end", 'scores, -float("inf")', "scores, 0.0"),
        edit("out[0, 0] is", "tl.exp(row_max - new_max)", "tl.exp(new_max - row_max)"),
    ),
}
