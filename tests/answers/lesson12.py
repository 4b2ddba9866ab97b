"""Wrong answers to the exercises of lesson 12."""

from answers import Wrong, given


def changed(says, old, new):
    """Return the model answer, CUDA C, with a few words changed."""
    return Wrong(says, lambda reference: _replaced(reference, old, new))


def _replaced(text, old, new):
    assert old in text, f"{old!r} is not in the model answer"
    return text.replace(old, new)


WRONG = {
    "saxpy": (
        changed("out-of-bounds load", "if (i < n) ", ""),
        changed("only the first block's", "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
        changed("only x is multiplied", "a * x[i] + y[i]", "a * (x[i] + y[i])"),
        changed('error: expected a ";"', "y[i];", "y[i]"),
        given("expected CUDA C as text", 5),
    ),
    "transpose": (
        changed("race in shared memory", "__syncthreads();", ""),
        changed("only 8 of every 32 rows", "i < 32; i += 8", "i < 8; i += 8"),
        changed("out-of-bounds", "if (r + i < columns && c < rows)", ""),
        given("there is no kernel in this text", "transpose(x)"),
    ),
    "matmul": (
        changed("only one of every four rows", "i < 4; i++)\n    out", "i < 1; i++)\n    out"),
        changed("threads share rows", "threadIdx.y * 4", "threadIdx.y"),
        changed(
            "out-of-bounds load",
            "blockIdx.y * 32 + threadIdx.y * 4",
            "blockIdx.y * 32 + threadIdx.y * 8",
        ),
        given("expected CUDA C as text", 4),
    ),
}
