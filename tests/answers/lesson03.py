"""Wrong answers to the exercises of lesson 03."""

import torch
from torch import nn

from exercises.lesson03 import FIXES, Normalize, finish
from helpers.checks.core import Wrong


def _finish_with(values):
    return lambda build, shape, n: nn.Sequential(
        build(), nn.Flatten(), nn.Linear(values(build, shape), n)
    )


def _on_meta(make):
    def made(*arguments):
        with torch.device("meta"):
            return make(*arguments)

    return made


def _no_flatten(build, shape, classes):
    return nn.Sequential(build(), finish(build, shape, classes)[2])


def _lazy(build, shape, classes):
    return nn.Sequential(build(), nn.Flatten(), nn.LazyLinear(classes))


def _normalize(keep):
    """A class like Normalize, which keeps each tensor by `keep(module, name, value)`."""

    def start(self, mean, std):
        nn.Module.__init__(self)
        keep(self, "mean", mean)
        keep(self, "std", std)

    return type("Normalize", (Normalize,), {"__init__": start})


class _Silent(Normalize):
    def forward(self, x):
        (x - self.mean) / self.std


def _only_mean(self, name, value):
    if name == "mean":
        self.register_buffer(name, value)


WRONG = {
    "flat": (
        Wrong(_finish_with(lambda build, shape: 500), "height and width together"),
        Wrong(
            _finish_with(lambda build, shape: build()(torch.rand(1, *shape)).numel()),
            "a real picture",
        ),
        Wrong(
            _finish_with(_on_meta(lambda build, shape: build()(torch.empty(8, *shape)).numel())),
            "How many pictures",
        ),
        Wrong(_on_meta(finish), "expected cpu"),
        Wrong(_no_flatten, "makes each picture one row"),
        Wrong(_lazy, "postpones"),
        Wrong(lambda build, shape, classes: 512, "returned int"),
    ),
    "buffer": (
        Wrong(_normalize(setattr), "plain attribute"),
        Wrong(_Silent, "what forward returns"),
        Wrong(
            _normalize(lambda self, name, value: setattr(self, name, nn.Parameter(value))),
            "is a parameter",
        ),
        Wrong(
            _normalize(
                lambda self, name, value: self.register_buffer(name, value, persistent=False)
            ),
            "persistent",
        ),
        Wrong(
            _normalize(lambda self, name, value: self.register_buffer(name, value.to("cuda"))),
            "before anyone",
        ),
        Wrong(
            _normalize(lambda self, name, value: self.register_buffer(name, value * 0 + 1)),
            "differs from",
        ),
        Wrong(_normalize(_only_mean), "the attribute std"),
    ),
    "messages": (
        Wrong({**FIXES, "A": FIXES["B"], "B": FIXES["A"]}, "which means the CPU"),
        Wrong({**FIXES, "B": FIXES["A"]}, "without cuda"),
        Wrong({**FIXES, "C": FIXES["A"]}, "the model keep"),
        Wrong({**FIXES, "D": FIXES["C"]}, "this very line"),
        Wrong({**FIXES, "E": FIXES["A"]}, "both are on a GPU"),
    ),
}
