"""Wrong answers to the exercises of lesson 08."""

from answers import edit, instead

UNSCALE = "    scaler.unscale_(optimizer)\n"
CLIP = "    torch.nn.utils.clip_grad_norm_(model.parameters(), most)\n"
STEP = "    scaler.step(optimizer)\n    scaler.update()\n"
TO_THE_LIMIT = (
    "    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
    "    for parameter in model.parameters():\n        parameter.grad *= most / norm\n"
)
CUT = "images[: len(images) // 64 * 64].split(64) if len(images) > 64 else [images]"
WRONG = {
    "clip": (
        edit("still scaled", UNSCALE, ""),
        edit("divided by the scale", UNSCALE, "", CLIP, CLIP + UNSCALE),
        edit("Nothing was clipped", CLIP, ""),
        edit("scaler.update()", "scaler.update()", ""),
        edit("leaves such a step out", "scaler.step(optimizer)", "optimizer.step()"),
        edit("optimizer.step doesn't", UNSCALE + CLIP + STEP, "    optimizer.step()\n"),
        edit("below the limit", CLIP, TO_THE_LIMIT),
    ),
    "profiles": (
        instead("in the loader", A="mixed precision"),
        instead("shorter than its launch", B="mixed precision"),
        instead("no gap at all", C="CUDA graph"),
    ),
    "speedup": (
        edit("shorter batch", "images.split(64)", CUT),
        edit("is asked for", "split(64)", "split(1)"),
        edit("returned Tensor", ".tolist()", ""),
        edit("labels differ", "images.split", "images.flip(0).split"),
    ),
}
