"""Wrong answers to the exercises of lesson 12."""

from answers import Wrong, given


def changed(says, old, new):
    """Return the model answer, CUDA C, with a few words changed."""
    return Wrong(says, lambda reference: _replaced(reference, old, new))


def _replaced(text, old, new):
    assert old in text, f"{old!r} is not in the model answer"
    return text.replace(old, new)


SCALED = "v.x *= a; v.y *= a; v.z *= a; v.w *= a;"
WRONG = {
    "saxpy": (
        changed("out-of-bounds load", "if (4 * i >= n) return;", ""),
        changed("only the first block's", "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
        changed("only x is multiplied", "(y)[i];", f"(y)[i]; {SCALED}"),
        changed("four each", "if (4 * i >= n)", "if (i < n) out[i] = a * x[i] + y[i];"),
        changed('error: expected a ";"', "[i] = v;", "[i] = v"),
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
    "best": (
        given("room for more results", (8, 8)),
        given("LDL and STL = 0.406", (16, 16)),
        given("the tile is too large", (15, 16)),
        given("to 256 results", (16, 17)),
        given("two whole numbers", 15),
    ),
}
