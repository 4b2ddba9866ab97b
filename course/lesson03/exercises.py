"""Exercises and quiz of lesson 03, Put a CNN on the GPU."""

import copy

import torch
from torch import nn

from course.checks import expect
from course.checks.core import NotAttempted, NotYet, call
from course.checks.words import exercise, quiz
from practice_gpus import practice_gpus

# --- finish the network ---------------------------------------------------------------------------


def finish(body, shape, classes):
    twin = copy.deepcopy(body).to("meta")
    features = twin(torch.empty(1, *shape, device="meta")).numel()
    return nn.Sequential(body, nn.Flatten(), nn.Linear(features, classes))


def _body(layers, log):
    """A trained body: `layers` whose weights are all 0.25; it notes in `log` where real photos went through it."""

    def note(module, inputs):
        if not inputs[0].is_meta and type(inputs[0]) is torch.Tensor:
            log.append(str(inputs[0].device))

    body = nn.Sequential(*layers)
    body[0].register_forward_pre_hook(note)
    for parameter in body.parameters():
        nn.init.constant_(parameter, 0.25)
    return body


_BODIES = (
    ((3, 32, 32), 10, lambda: [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)]),
    ((1, 28, 28), 4, lambda: [nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)]),
    ((3, 40, 64), 3, lambda: [nn.Conv2d(3, 9, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]),
)


def _check_finish(answer):
    for shape, classes, layers in _BODIES:
        log = []
        network = call(answer, _body(layers(), log), shape, classes)
        if log:
            raise NotYet(
                f"photos {shape}: a real photo went through the body, on {log[0]}. You can get the number "
                "without any arithmetic: on which device do tensors have shapes only?"
            )
        features = nn.Sequential(*layers())(torch.empty(1, *shape)).numel()
        _check_network(network, shape, classes, features)
    return "three bodies finished, and not one photo was computed."


def _check_network(network, shape, classes, features):
    if not isinstance(network, nn.Module):
        raise NotYet(f"finish(...) returned {type(network).__name__}, expected an nn.Module.")
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    weights = [module.weight for module in convolutions]
    if not weights or weights[0].is_meta or not torch.all(weights[0] == 0.25):
        raise NotYet(
            "the network lacks the trained weights of the body. If you moved the body to meta, they are gone: "
            "a module's .to moves the module itself. What could you move instead?"
        )
    linears = [module for module in network.modules() if isinstance(module, nn.Linear)]
    takes = linears[-1].in_features if linears else features
    if takes != features:
        raise NotYet(
            f"photos {shape}: the linear layer takes {takes} values, and one photo delivers a different number. "
            "How many photos did you count, and do you multiply channels, height and width?"
        )
    try:
        logits = network(torch.rand(2, *shape))
    except RuntimeError as error:
        raise NotYet(
            f"photos {shape}: a batch of two raised: {str(error).splitlines()[0]}. Between the body and "
            "the linear layer, what makes each photo one row?"
        ) from None
    expect.tensor(logits, shape=(2, classes), what=f"for two photos {shape}, the result")


flat = exercise("03.flat", _check_finish, finish, tool="finish")


# --- register the buffer --------------------------------------------------------------------------


class Normalize(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std


def _check_buffer(answer):
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise NotYet(
            f"expected the class itself, got {type(answer).__name__}. Pass the name without parentheses."
        )
    mean = torch.rand(3, 1, 1)
    std = torch.rand(3, 1, 1) + 0.5
    x = torch.rand(2, 3, 4, 5)
    with practice_gpus(2):
        module = call(answer, mean, std)
        if vars(module).keys() == vars(nn.Module()).keys() and not [*module.buffers()]:
            if not [*module.parameters()]:
                raise NotAttempted
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
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            values = value.values() if isinstance(value, dict) else value
            values = values if isinstance(value, (dict, list, tuple)) else [value]
            if any(isinstance(each, (torch.Tensor, nn.Module)) for each in values):
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
    several = nn.Sequential(_layer(noise=mask), nn.ModuleList([_layer(old=[mask])]))
    plain = "Which of the plain attributes in `vars(module)` are tensors?"
    held = "An attribute may be a list, a tuple or a dict. What is in it?"
    deep = "Submodules have attributes, too; what you return begins with the submodule's name."
    return [
        ("a module with a plain tensor", _layer(mask=mask), {"mask"}, plain),
        ("a module with a list of layers", _layer(hidden=[nn.Linear(2, 2)]), {"hidden"}, held),
        ("a module with a tuple of tensors", _layer(steps=(mask, mask)), {"steps"}, held),
        ("a module with a dict of tensors", _layer(scales={"red": mask}), {"scales"}, held),
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
        for name in sorted(set(found) - expected):
            raise NotYet(f"{what}: {name!r} is registered, or holds neither tensor nor module.")
        if expected - set(found):
            raise NotYet(f"{what}: you found {sorted(found)}, and there is more. {thought}")
    return "masks and hidden layers found in seven models, also deep inside."


left = exercise("03.left", _check_left, left_behind, tool="left_behind")


QUIZ = quiz("03")
