"""Wrong answers to the exercises of lesson 06."""

from answers import edit, given

LINES = ("model = DistributedDataParallel(model)", "sampler = DistributedSampler(dataset)")
TOTAL = (
    "total = sum(mean * size for mean, size in zip(means, sizes))\n    return total / sum(sizes)"
)
WRITES = (
    "for mean, size in zip(means, sizes):\n        if torch.is_tensor(mean):\n            mean *= size\n"
    "    return sum(means) / sum(sizes)"
)
WRONG = {
    "weigh": (
        edit("counts three times", TOTAL, "return sum(means) / len(means)"),
        edit("Divide by the number", "total / sum(sizes)", "total"),
        edit(
            "not the elements within",
            TOTAL,
            "return torch.stack([torch.as_tensor(m).mean() for m in means]).mean()",
        ),
        edit("came in changed", TOTAL, WRITES),
        edit("it returned list", TOTAL, "return [m * s for m, s in zip(means, sizes)]"),
    ),
    "script": (
        edit("the weights differ", LINES[0], ""),
        edit("both processes learned", LINES[1], ""),
        edit("did not reach the end", "'dist.init", "'# dist.init"),
        edit("rank 1: ", "'dist.init", "'if rank == 0: dist.init"),
        edit("is still there", "# TODO 1: join", "# TODO 1: leave"),
    ),
    "choose": (
        edit("multiplied by n", "(n * step_ms(n))", "step_ms(n)"),
        edit("limit included", "limit + 1)", "max(2, limit))"),
        given("no number of GPUs", lambda *args: 0.5),
        edit("exactly that efficiency", ">= efficiency)", "> efficiency or n == 1)"),
    ),
}
