"""Wrong answers to the exercises of lesson 08."""

from answers import edit, given, instead

UNSCALE = "    scaler.unscale_(optimizer)\n"
CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), most)\n"
STEP = "    scaler.step(optimizer)\n    scaler.update()\n"
TO_THE_LIMIT = (
    "    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
    "    for parameter in model.parameters():\n        parameter.grad *= most / norm\n"
)
LOSS = "F.cross_entropy(model(x).flatten(0, 1), y.flatten())"
WRONG = {
    "clip": (
        edit("still scaled", UNSCALE, ""),
        edit("divided by the scale", UNSCALE, "", CLIP, CLIP + UNSCALE),
        edit("Nothing was clipped", CLIP, ""),
        edit("scaler.update()", "scaler.update()", ""),
        edit("scaler.step skips it", "scaler.step(optimizer)", "optimizer.step()"),
        edit("optimizer.step doesn't", UNSCALE + CLIP + STEP, "    optimizer.step()\n"),
        edit("below the limit", CLIP, TO_THE_LIMIT),
    ),
    "diagnosis": (
        instead("with twice the batch, and it takes × 2.0", A=("overhead", "CUDA graph")),
        instead("the arithmetic is far slower", A=("compute", "16 bits")),
        instead("about twice as long", B=("memory", "16 bits")),
        instead("only the arithmetic changes", C=("memory", "16 bits")),
        instead("leave the CPU and the copies as they are", A=("CPU or copies", "16 bits")),
        instead("brings × 1.00 by forecast", C=("compute", "CUDA graph")),
        instead("brings × 0.98 by forecast", B=("overhead", "16 bits")),
        instead("name a limit and a change", B="overhead"),
        instead("is none of overhead", B=("launches", "CUDA graph")),
        instead("Was TF32 on for these tests", D=("memory", "16 bits")),
        given("expected a dict", {"A": ("memory", "16 bits")}),
    ),
    "rung": (
        edit("the loss was", LOSS, "F.cross_entropy(model(x[:1]).flatten(0, 1), y[:1].flatten())"),
        edit("aren't those of plain_step", "    optimizer.step()\n", ""),
        edit(
            "15 are there",
            LOSS,
            "sum(F.cross_entropy(model(a[None])[0], b) for a, b in zip(x, y)) / len(x)",
        ),
        edit("is there a `return`", "return loss.detach()", ""),
    ),
}
