"""Wrong answers to the exercises of lesson 02."""

from answers import edit

LIST = "return type(batch)(move_batch(part, device) for part in batch)"
DICT = "return {key: move_batch(value, device) for key, value in batch.items()}"
IN_PLACE = "for key in batch:\n            batch[key] = move_batch(batch[key], device)\n        return batch"
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
        edit("but got", "x = x.to(weight.device)\n", "pass\n"),
        edit("at least two devices", "weight.new_ones(", "torch.ones("),
        edit("can't convert", ".cpu()", ""),
        edit("requires grad", ".detach()", ""),
        edit("Keep bias", "weight.new_ones(weight.shape[1])", "0"),
        edit(
            "the work ran on the CPU",
            "x = x.to(weight.device)",
            "x, weight = x.cpu(), weight.cpu()",
        ),
        edit(
            "one each is enough",
            "weight.new_ones(weight.shape[1])",
            "torch.ones(weight.shape[1]).to(weight.device)",
        ),
        edit("expected a NumPy array", ".detach().cpu().numpy()", ""),
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
