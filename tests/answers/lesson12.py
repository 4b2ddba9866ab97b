"""Wrong answers to the exercises of lesson 12."""

from answers import Wrong, given


def changed(says, old, new):
    """Return the model answer, CUDA C, with a few words changed."""
    return Wrong(says, lambda reference: _replaced(reference, old, new))


def _replaced(text, old, new):
    assert old in text, f"{old!r} is not in the model answer"
    return text.replace(old, new)


WRONG = {
    "transpose": (
        changed("race in shared memory", "__syncthreads();", ""),
        changed("only 8 of every 32 rows", "i < 32; i += 8", "i < 8; i += 8"),
        changed("out-of-bounds", "if (r + i < columns && c < rows)", ""),
        given("there is no kernel in this text", "transpose(x)"),
    ),
    "matmul": (
        changed("race in shared memory", "    __syncthreads();\n    for", "    for"),
        changed("what thread (31, 0) read", "    __syncthreads();\n  }", "  }"),
        changed("read by columns", "left[threadIdx.y][k]", "left[k][threadIdx.y]"),
        changed(
            "only the last pair",
            "__syncthreads();\n    for",
            "__syncthreads();\n    sum = 0;\n    for",
        ),
        changed("each row of `right`", "(start + threadIdx.y) * n", "start * n"),
        changed("nothing was added", "sum += left", "left"),
        given("expected CUDA C as text", 4),
    ),
}
