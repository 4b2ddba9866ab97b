"""The two patients that run in the notebook itself: a recompiler and an overflow."""

import math
import warnings

import torch
from torch import nn

from course.checks.core import NotYet, call
from course.checks.words import exercise


# --- the recompiler ------------------------------------------------------------------------------
class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * (1 - 0.5**self.calls)


def count_graphs(model, calls=6):
    """Return how many graphs torch.compile makes for `calls` calls of `model`, and the guards that failed."""
    import torch._dynamo

    graphs, failed = [], []

    def keep(graph, inputs):
        """Run a graph as it is, like backend="eager"."""
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    listen = torch._dynamo.optimize(keep, guard_fail_fn=lambda fail: failed.append(fail.reason))
    compiled = listen(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Guards may run slower")  # on Python 3.13.0
        for _ in range(calls):
            compiled(torch.ones(2, 8))
    guards = [reason.split("#")[0].partition(": ")[2].strip() for reason in failed]
    return len(graphs), list(dict.fromkeys(guards))


def _check_recompiles(answer):
    model = call(answer)
    if not isinstance(model, nn.Module) or not isinstance(getattr(model, "layer", None), nn.Linear):
        raise NotYet("expected a class whose objects are modules with a `layer`, as before.")
    x = torch.randn(2, 8)
    for number in range(1, 4):
        if not torch.allclose(call(model, x), model.layer(x) * (1 - 0.5**number), atol=1e-6):
            raise NotYet(f"call {number} gives another result than before.")
    graphs, guards = count_graphs(call(answer))
    if graphs > 2:
        first = guards[0] if guards else "none"
        raise NotYet(f"six calls, {graphs} graphs. The guard that failed first: {first}")
    return f"six calls, {graphs} graph{'s' * (graphs > 1)}. {recompiles.explanation}"


recompiles = exercise("13.recompiles", _check_recompiles, Once)


# --- the overflow --------------------------------------------------------------------------------
def overflowing():
    """Return a network whose numbers grow beyond what 16 bits can hold, and its input."""
    torch.manual_seed(3)
    model = nn.Sequential()
    for i in range(5):
        model.append(nn.Linear(64, 64))
        model.append(nn.ReLU())
        nn.init.normal_(model[2 * i].weight, std=1.5)
    model.append(nn.LogSoftmax(dim=1))
    return model, torch.randn(4, 64)


def first_bad(model, x):
    bad = []

    def look(name):
        def hook(module, inputs, output):
            if not output.isfinite().all():
                bad.append(name)

        return hook

    hooks = [m.register_forward_hook(look(n)) for n, m in model.named_modules() if n]
    model(x)
    for hook in hooks:
        hook.remove()
    return bad[0] if bad else None


def _check_overflow(answer):
    for value, place in ((math.inf, "2"), (math.nan, "1"), (-math.inf, "3"), (0.0, None)):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)))
        nn.init.constant_(model[int(place or 0)].bias, value)
        found = call(answer, model, torch.ones(2, 4))
        what = f"{value} first out of module {place!r}" if place else "finite outputs only"
        if not isinstance(found, type(place)) or found != place:
            raise NotYet(f"a network with {what}: your function returned {found!r}.")
        if any(m._forward_hooks for m in model.modules()):
            raise NotYet("your hooks are still in the model. Remove them at the end.")
    return f"inf and NaN found at their source. {overflow.explanation}"


overflow = exercise("13.overflow", _check_overflow, first_bad)
