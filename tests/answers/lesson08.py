"""Wrong answers to the exercises of lesson 08."""

from answers import edit

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
    "card": (
        edit("call step() once before", "        step()\n", ""),
        edit("Is `card` passed on", "card=card", 'card="A100 80"'),
        edit("shapes are enough", "values=False, stand_in=1.0", "values=True"),
        edit("the keys are", '"range": forecast.range, ', ""),
        edit("bound is", "forecast.bound", "forecast.cause"),
        edit("range is", "forecast.range", "[forecast.low_ms, forecast.high_ms]"),
        edit("is there a `return`", "return {", "told = {"),
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
