"""Wrong answers to the exercises of lesson 02."""

from answers import edit

LIST = "return type(batch)(move_batch(part, device) for part in batch)"
DICT = "return {key: move_batch(value, device) for key, value in batch.items()}"
IN_PLACE = "for key in batch:\n            batch[key] = move_batch(batch[key], device)\n        return batch"
STEP = "steps.append((moved - centers).norm().item())"
WRONG = {
    "batch": (
        edit("a tensor: the tensor is on cpu", "return batch.to(device)", "batch.to(device)"),
        edit("a tuple[0]: the tensor is on cpu", LIST, "return batch"),
        edit("build a new container", DICT, IN_PLACE),
        edit("expected tuple", LIST, "return [move_batch(part, device) for part in batch]"),
        edit("AttributeError: 'str'", "    return batch\n", "    return batch.to(device)\n"),
        edit("Does every path return", "    return batch\n", "    return None\n"),
        edit("the device you were given", "batch.to(device)", "batch.cuda()"),
    ),
    "repair": (
        edit(
            "the work ran on the CPU",
            "    centers = points",
            "    points = points.cpu()\n    centers = points",
        ),
        edit("X1: cuda X2: cpu", "points[:k]", "points[:k].cpu()"),
        edit("found at least two", ", device=points.device", ""),
        edit("20 of them to the GPU", "== groups)", "== torch.arange(k).to(points.device))"),
        edit(
            "21 copies",
            "steps.append((moved - centers).norm())",
            STEP,
            "torch.stack(steps).tolist()",
            "steps",
        ),
        edit("can't convert", "centers.cpu().numpy()", "centers.numpy()"),
        edit("expected a NumPy array", "centers.cpu().numpy()", "centers.cpu()"),
        edit("list of floats", "torch.stack(steps).tolist()", "steps"),
        edit("the numbers differ", "range(20)", "range(3)"),
        edit("the centers and the steps", "    return centers.cpu()", "    centers.cpu()"),
    ),
    "fit": (
        edit("still has the overhead", "1 / per_byte / 1000", "large[0] / large[1] / 1000"),
        edit("How many make a GB/s", "1 / per_byte / 1000", "1 / per_byte"),
        edit("isn't all overhead", "small[1] - small[0] * per_byte", "small[1]"),
        edit("the overhead is", "small[1] - small[0]", "large[1] - small[0]"),
        edit("the bandwidth is", "1 / per_byte / 1000", "per_byte"),
        edit("expected two values", ", 1 / per_byte / 1000", ""),
        edit("is there a `return`", "    return overhead_us", "    overhead_us"),
    ),
}
