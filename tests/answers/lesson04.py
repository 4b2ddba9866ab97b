"""Wrong answers to the exercises of lesson 04."""

from answers import edit

ZERO = "    optimizer.zero_grad()\n"
STEP = "    optimizer.step()\n"
RETURN = "return loss.detach(), (logits.argmax(1) == y).sum()"
MEAN = "total += loss.detach() * len(y)\n        count += len(y)"
LOAD = ', map_location="cpu", weights_only=True'
WRONG = {
    "step": (
        edit("earlier batch", ZERO, ""),
        edit("did not change", ZERO, "", STEP, ZERO + STEP),
        edit("same device", "x, y = x.to(device), y.to(device)", "x = x.to(device)"),
        edit("carries its graph", "loss.detach()", "loss"),
        edit("the loss is of type float", "loss.detach()", "loss.item()"),
        edit("wait for the GPU once", "    return", "    loss.item()\n    return"),
        edit("add up", ".sum()", ".sum() / 1000"),
        edit("the loss is", "loss.detach(),", "loss.detach() * len(y),"),
        edit("expected two things", RETURN, "return loss.detach()"),
    ),
    "checkpoint": (
        edit("Which argument of torch.load", LOAD, ""),
        edit("runs code of its own", "weights_only=True", "weights_only=False"),
        edit(
            "the optimizer starts afresh", 'optimizer.load_state_dict(checkpoint["optimizer"])', ""
        ),
        edit("weights are not those", 'model.load_state_dict(checkpoint["model"])', ""),
        edit("weight is on cpu", "    return", '    model.to("cpu")\n    return'),
        edit("the epoch is None", "return ", ""),
        edit("the file says epoch 7", '["epoch"]', '["epoch"] + 1'),
    ),
    "bugs": (
        edit("back into training mode", "model.train()", ""),
        edit("same device", "x, y = x.to(device), y.to(device)", "x = x.to(device)"),
        edit("What is in .grad", "optimizer.zero_grad()", ""),
        edit("graphs of all batches", "loss.detach()", "loss"),
        edit(
            "What does `total` hold on to",
            "loss.detach()",
            "loss",
            "total / count",
            "(total / count).detach()",
        ),
        edit("over all pictures", MEAN, "total += loss.detach()\n        count += 1"),
    ),
}
