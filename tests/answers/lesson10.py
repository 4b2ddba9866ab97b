"""Wrong answers to the exercises of lesson 10."""

from answers import edit, given, instead

LOOP = "for up, down in zip(ups, downs):"
PART = "part = F.relu(x.to(up.device) @ up) @ down"
SUM = "total = total + part.to(x.device)"
TOTAL = "total = torch.zeros_like(x)"
MOVES = "\n        up, down = up.to(x.device), down.to(x.device)"
BACK = "part = F.relu(x.to(up.device) @ up).to(x.device) @ down.to(x.device)"
WRONG = {
    "bytes": (
        edit("That is what one GPU alone needs", "optimizer / ranks", "optimizer"),
        edit(
            "Here everything is split",
            "stage >= 1",
            "True",
            "stage >= 2",
            "True",
            "stage >= 3",
            "True",
        ),
        edit("add the bytes of weights", "8 * parameters", "4 * parameters"),
        edit("the rest stays", "stage >= 1", "stage == 1"),
    ),
    "product": (
        edit(
            "stand side by side",
            TOTAL,
            "parts = []",
            SUM,
            "parts.append(part.to(x.device))",
            "return total",
            "return torch.cat(parts, 1)",
        ),
        edit("is missing", "F.relu(x.to(up.device) @ up)", "(x.to(up.device) @ up)"),
        edit(
            "not behind them",
            PART,
            "part = x.to(up.device) @ up @ down",
            "return total",
            "return F.relu(total)",
        ),
        edit("added, not averaged", "return total", "return total / len(ups)"),
        edit("Expected all tensors to be on the same device", "x.to(up.device)", "x"),
        edit("Does an operator such as", SUM, SUM + "\n        x += 0 * total + 1"),
        edit("Did every GPU's part arrive", SUM, "total = part.to(x.device)"),
        edit("computed nothing", LOOP, LOOP + MOVES),
        edit("tensors between GPUs", PART, BACK),
    ),
    "choose": (
        instead("What fits needs no shards", A="fully_shard"),
        instead("over a fast link", B="DDP"),
        instead("inside a machine", C="fully_shard"),
        instead("a single token faster", D="fully_shard"),
        instead("is none of", B="FSDP"),
        given("expected a dict", ["DDP"]),
    ),
}
