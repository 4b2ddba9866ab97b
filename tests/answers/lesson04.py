"""Wrong answers to the exercises of lesson 04."""

from answers import edit

ZERO = "    optimizer.zero_grad()\n"
STEP = "    optimizer.step()\n"
MEAN = "total += loss.detach() * len(y)\n        count += len(y)"
WRONG = {
    "step": (
        edit("earlier batch", ZERO, ""),
        edit("did not change", ZERO, "", STEP, ZERO + STEP),
        edit("same device", "x, y = x.to(device), y.to(device)", "x = x.to(device)"),
        edit("carries its graph", "loss.detach()", "loss"),
        edit("the loss is of type float", "loss.detach()", "loss.item()"),
        edit("wait for the GPU once", "    return", "    loss.item()\n    return"),
        edit("the loss is", "loss.detach()", "loss.detach() * len(y)"),
    ),
    "test": (
        edit("not in eval mode", "    model.eval()\n", ""),
        edit("nobody will call backward", "torch.inference_mode()", "torch.enable_grad()"),
        edit("went in training mode", "model.train(training)", "model.train()"),
        edit("went in eval mode", "    model.train(training)\n", ""),
        edit("What fraction", "correct.item() / count", "correct.item()"),
        edit("divide once", ".sum()", ".float().mean()", "len(y)", "1"),
        edit(
            "wait for the GPU 4 times",
            "            count +=",
            "            correct.item()\n            count +=",
        ),
        edit("same device", "x, y = x.to(device), y.to(device)", "x = x.to(device)"),
    ),
    "checkpoint": (
        edit("the checkpoint of epoch 7 is gone", 'f"{path}.part")\n    os', "path)\n    #"),
        edit("opens only with its source code", "model.state_dict()", "model"),
        edit("no file at `path`", "    os.replace", "    #"),
        edit("KeyError: 'epoch'", '{**states, "epoch": epoch}', "states"),
        edit("the file says epoch 8", '"epoch": epoch', '"epoch": epoch + 1'),
        edit("KeyError: 'param_groups'", '"optimizer": optimizer', '"optimizer": model'),
        edit("weight is on cpu", "    torch.save", '    model.to("cpu")\n    torch.save'),
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
        edit("over all images", MEAN, "total += loss.detach()\n        count += 1"),
    ),
}
