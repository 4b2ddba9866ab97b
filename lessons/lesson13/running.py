"""The two patients that run in the notebook itself: a recompiler and an overflow."""

import logging
import math
import re

import torch
from torch import nn

from helpers.checks.core import Exercise, NotYet, call


# --- the recompiler ------------------------------------------------------------------------------
class Warmup(nn.Module):
    """Scales its output up, call by call; it counts the calls in an int."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        """Return the layer's output, times 1 - 0.5 ** calls."""
        self.calls += 1
        return self.layer(x) * (1 - 0.5**self.calls)


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
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()  # counts the graphs and runs them as they are, like backend="eager"
    heard = _Guards()
    torch._dynamo.reset()
    with heard:
        compiled = torch.compile(model, backend=counter)
        for _ in range(calls):
            compiled(torch.ones(2, 8))
    return counter.frame_count, heard.guards


class _Guards(logging.Handler):
    """Hears what TORCH_LOGS=recompiles would print, and keeps the first failed guard of each message."""

    def __init__(self):
        super().__init__()
        self.guards = []

    def emit(self, record):
        """Keep the guard of `record`."""
        found = re.search(r"- \d+/\d+: (.*?)\s+#", record.getMessage())
        if found:
            self.guards.append(found[1])

    def __enter__(self):
        torch._logging.set_logs(recompiles=True)
        self.log = logging.getLogger("torch._dynamo.guards.__recompiles")
        self.before = self.log.handlers[:], self.log.propagate
        self.log.handlers[:], self.log.propagate = [self], False

    def __exit__(self, *_):
        self.log.handlers[:], self.log.propagate = self.before
        torch._logging.set_logs()


def _check_recompiles(answer):
    model, truth = call(answer), Warmup()
    if not isinstance(model, nn.Module):
        raise NotYet("expected a class whose objects are modules.")
    missing = set(truth.state_dict()) - set(model.state_dict())
    if missing:
        raise NotYet(f"it has no parameter {sorted(missing)[0]!r} any more; keep the layer.")
    model.load_state_dict(truth.state_dict(), strict=False)
    x = torch.randn(2, 8)
    for number in range(1, 4):
        if not torch.allclose(call(model, x), truth(x), atol=1e-6):
            raise NotYet(f"call {number} gives another result than before.")
    graphs, guards = count_graphs(call(answer))
    if graphs > 2:
        raise NotYet(
            f"six calls, {graphs} graphs. The guard that failed first: {guards[0] if guards else 'none'}"
        )
    return f"six calls, {graphs} graph{'s' * (graphs > 1)}: a tensor may change without a new graph, an attribute of Python may not."


recompiles = Exercise(
    key="13.recompiles",
    title="a model that compiles again and again",
    check_answer=_check_recompiles,
    hints=(
        "The guard names the attribute that the graph takes for a constant.",
        "A tensor's value isn't a constant of the graph. Which method of `nn.Module` stores a tensor that isn't a parameter?",
        'In `__init__`: `self.register_buffer("calls", torch.zeros(()))`. The rest can stay.',
    ),
    reference=Once,
    explanation="torch.compile treats an int that belongs to a module as a constant and guards on it, so each new value needs a new "
    "graph. A buffer is an input of the graph: its value may change.",
)


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


class _Sick(nn.Module):
    """Gives `value` in the first element."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        """Return `x` with the value in it."""
        y = x.clone()
        y.view(-1)[0] = self.value
        return y


def _check_overflow(answer):
    for value, place in ((math.inf, "2"), (math.nan, "1"), (-math.inf, "3"), (None, None)):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        if value is not None:
            model[int(place)] = _Sick(value)
        found = call(answer, model, torch.ones(2, 4))
        what = "finite outputs only" if value is None else f"{value} first out of module {place!r}"
        if not isinstance(found, type(place)) or found != place:
            raise NotYet(f"a network with {what}: your function returned {found!r}.")
        left = [m for m in model.modules() if m._forward_hooks]
        if left:
            raise NotYet("your hooks are still in the model. Remove them at the end.")
    return "inf and NaN found at their source, and the model left as it was. Repair: bfloat16, or numbers that stay small."


overflow = Exercise(
    key="13.overflow",
    title="a loss of NaN",
    check_answer=_check_overflow,
    hints=(
        "A forward hook gets `(module, inputs, output)` after each module. `model.named_modules()` gives names and modules.",
        "In the hook: `if not output.isfinite().all()`, keep the name. The first one kept is the answer.",
        "`register_forward_hook` returns a handle; call its `remove()` at the end. Leave out the model itself, whose name is ''.",
    ),
    reference=first_bad,
    explanation="Hooks run in the order of the modules, so the first name is where the numbers overflow. NaN comes later, from inf - inf.",
)
