"""Exercises and quiz of lesson 03, Put a CNN on the GPU."""

import math

import torch
from torch import nn

from course.checks import expect
from course.checks.core import NotAttempted, NotYet, call, same_code
from course.checks.words import exercise, quiz
from practice_gpus import practice_gpus

# --- register the buffer --------------------------------------------------------------------------


class Normalize(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std


class Unregistered(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = mean
        self.std = std


def _check_buffer(answer):
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise NotYet(
            f"expected the class itself, got {type(answer).__name__}. Pass the name without parentheses."
        )
    if same_code(answer.__init__, Unregistered.__init__):
        raise NotAttempted("Change how it keeps mean and std, then run this cell again.")
    mean = torch.rand(3, 1, 1)
    std = torch.rand(3, 1, 1) + 0.5
    x = torch.rand(2, 3, 4, 5)
    with practice_gpus(2):
        module = call(answer, mean, std)
        _check_attributes(module)
        result = expect.tensor(call(module, x), shape=x.shape, what="what forward returns")
        if not torch.allclose(result, (x - mean) / std, atol=1e-5):
            raise NotYet(
                "Normalize(mean, std)(x) differs from (x - mean) / std. Was mean or std changed?"
            )
        module.to("cuda:1")
        for name in ("mean", "std"):
            if str(getattr(module, name).device) != "cuda:1":
                raise NotYet(
                    f"after module.to('cuda:1'), {name} is on {getattr(module, name).device}: a plain "
                    "attribute is not on the list that .to() walks through."
                )
        call(module, x.to("cuda:1"))
    missing = {"mean", "std"} - set(module.state_dict())
    if missing:
        raise NotYet(
            f"state_dict() lacks {', '.join(sorted(missing))}: a model loaded from a file would normalize "
            "with other numbers. Is it persistent?"
        )
    return "mean and std move, are saved, and stay out of the optimizer's reach."


def _check_attributes(module):
    for name in ("mean", "std"):
        tensor = expect.tensor(getattr(module, name, None), what=f"the attribute {name}")
        if tensor.device.type != "cpu":
            raise NotYet(
                f"{name} came in on the CPU and is on {tensor.device} before anyone moved the module. Leave the "
                "choice of the device to .to()."
            )
        if isinstance(tensor, nn.Parameter):
            raise NotYet(
                f"{name} is a parameter, so parameters() hands it to the optimizer, which may change it. It "
                "is a constant that moves along: what are those called?"
            )


buffer = exercise("03.buffer", _check_buffer, Normalize, tool="Normalize")


# --- find what stays behind -----------------------------------------------------------------------


def left_behind(model):
    found = []
    for place, module in model.named_modules():
        for name, value in vars(module).items():
            path = f"{place}.{name}".removeprefix(".")
            if isinstance(value, torch.Tensor):
                found.append(path)
    return found


def _layer(**plain):
    """A layer with parameters and buffers, which move, and the attributes in `plain`."""
    module = nn.BatchNorm2d(2)
    for name, value in {"rate": 0.1, "sizes": [2, 2], "names": {"a": 1}, **plain}.items():
        setattr(module, name, value)
    return module


def _models():
    """[(what it is, model, names of what stays, what to think of)], the easy ones first."""
    mask = torch.ones(2)
    masked = nn.Sequential(_layer(mask=mask))
    several = nn.Sequential(_layer(noise=mask), nn.ModuleList([_layer(old=mask)]))
    plain = "Which of the plain attributes in `vars(module)` are tensors?"
    deep = "Submodules have attributes, too; what you return begins with the submodule's name."
    return [
        ("a module with a plain tensor", _layer(mask=mask), {"mask"}, plain),
        ("a module with two plain tensors", _layer(mean=mask, std=mask), {"mean", "std"}, plain),
        ("a network that is registered whole", nn.Sequential(nn.BatchNorm2d(2)), set(), ""),
        ("a network whose first layer has a mask", masked, {"0.mask"}, deep),
        ("a network with layers inside layers", several, {"0.noise", "1.0.old"}, deep),
    ]


def _check_left(answer):
    finds = [call(answer, model) for _, model, *_ in _models()]
    if all(isinstance(found, list) and not found for found in finds):
        raise NotAttempted("it finds nothing yet: put the test in place of the three dots.")
    for what, model, expected, thought in _models():
        found = call(answer, model)
        if not isinstance(found, (list, tuple, set)) or not all(isinstance(n, str) for n in found):
            raise NotYet("left_behind(model) has to `return` a list of names, such as ['mask'].")
        if expected - set(found):
            raise NotYet(f"{what}: you found {sorted(found)}, and there is more. {thought}")
        for name in sorted(set(found) - expected):
            raise NotYet(f"{what}: {name!r} is registered, or isn't a tensor.")
    return "What stays was found in five models, also deep inside."


left = exercise("03.left", _check_left, left_behind, tool="left_behind")


# --- forecast the bend ----------------------------------------------------------------------------


def fills_at(launches, launch_us, photo_us):
    return math.ceil(launches * launch_us / photo_us)


def _check_bend(answer):
    for case in ((10, 80, 30), (160, 30, 480), (159, 30, 79.1), (159, 10, 79.1), (12, 10, 900)):
        right = fills_at(*case)
        found = expect.number(call(answer, *case), f"fills_at{case}")
        if found != right:
            why = bend.word(found, *case, right=right)
            raise NotYet(f"fills_at{case}: got {found:.3g}, expected {right}. {why}".strip())
    low, high = (fills_at(159, launch_us, 79.1) for launch_us in (10, 80))
    return f"by forecast, our network fills an H100 from {low} photos on with a fast CPU, and from {high} on with a slow one."


bend = exercise("03.bend", _check_bend, fills_at)


QUIZ = quiz("03")
