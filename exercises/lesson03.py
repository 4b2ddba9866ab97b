"""Exercises and quiz of lesson 03, Put a CNN on the GPU."""

import torch
from torch import nn

from helpers.checks.core import Exercise, LearnerError, NotAttempted, NotYet, Question, Wrong, call
from practice_gpus import practice_gpus


# --- finish the network ----------------------------------------------------------------------------------------------
def finish(build, shape, classes):
    with torch.device("meta"):
        values = build()(torch.empty(1, *shape)).numel()
    return nn.Sequential(build(), nn.Flatten(), nn.Linear(values, classes))


def _builder(layers, log):
    """A function build() whose layers note in `log` on which devices real numbers went through them."""

    def note(module, inputs):
        if not inputs[0].is_meta and type(inputs[0]) is torch.Tensor:
            log.append(str(inputs[0].device))

    def build():
        made = nn.Sequential(*layers())
        made[0].register_forward_pre_hook(note)
        for parameter in made.parameters():
            nn.init.constant_(parameter, 0.25)
        return made

    return build


_FEATURES = (
    ((3, 32, 32), 10, lambda: [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)]),
    ((1, 28, 28), 4, lambda: [nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)]),
    ((2, 9, 21), 1, lambda: [nn.Conv2d(2, 3, 3, stride=2)]),
)


def _check_finish(answer):
    for shape, classes, layers in _FEATURES:
        log = []
        found = call(answer, _builder(layers, log), shape, classes)
        if log:
            raise NotYet(
                f"pictures {shape}: a real picture went through build()'s layers on {log[0]}. The number can "
                "be had without arithmetic: on which device are tensors only shapes?"
            )
        with torch.device("meta"):
            values = nn.Sequential(*layers())(torch.empty(1, *shape)).numel()
        _check_network(found, shape, classes, values)
    return "three networks finished, and no picture was computed on."


def _check_network(found, shape, classes, values):
    if not isinstance(found, nn.Module):
        raise NotYet(
            f"finish(...) returned {type(found).__name__}; expected the finished network, an nn.Module."
        )
    if any(nn.parameter.is_lazy(p) for p in found.parameters()):
        raise NotYet(
            "nn.LazyLinear postpones the question to the first batch; until then it has no shape."
        )
    for name, parameter in found.named_parameters():
        if parameter.device.type != "cpu":
            raise NotYet(
                f"{name} is on {parameter.device}; the finished network belongs on the CPU, with numbers. "
                "What was built inside the with block, and what after it?"
            )
    convolution = next(
        (module for module in found.modules() if isinstance(module, nn.Conv2d)), None
    )
    if convolution is None or not torch.all(convolution.weight == 0.25):
        raise NotYet(
            "the network's first layer is not as build() makes it: a trip to meta loses the numbers. "
            "build() may be called more than once."
        )
    linear = next((module for module in found.modules() if isinstance(module, nn.Linear)), None)
    takes = values if linear is None else linear.in_features
    if takes != values and takes % values == 0:
        raise NotYet(
            f"pictures {shape}: the linear layer takes {takes} values, {takes // values} times what one "
            "picture delivers. How many pictures were counted?"
        )
    if takes != values:
        raise NotYet(
            f"pictures {shape}: the linear layer takes {takes} values, and one picture delivers another "
            "number. Is it asked anew for each shape, and is it channels, height and width together?"
        )
    try:
        shown = tuple(found(torch.rand(2, *shape)).shape)
    except RuntimeError as error:
        raise NotYet(
            f"pictures {shape}: a batch of two raised: {str(error).splitlines()[0]}. Between the maps and the "
            "linear layer, what makes each picture one row?"
        ) from None
    if shown != (2, classes):
        raise NotYet(
            f"pictures {shape}, {classes} classes: a batch of two gave {shown}, expected (2, {classes})."
        )


def _finish_with(values):
    return lambda build, shape, n: nn.Sequential(
        build(), nn.Flatten(), nn.Linear(values(build, shape), n)
    )


def _on_meta(make):
    def made(*arguments):
        with torch.device("meta"):
            return make(*arguments)

    return made


flat = Exercise(
    key="03.flat",
    title="finish the network",
    minutes=6,
    lines=4,
    difficulty=2,
    check_answer=_check_finish,
    hints=(
        'Inside `with torch.device("meta"):` new layers and new tensors have shapes and no numbers.',
        "There, send torch.empty(1, *shape) through build() and count with numel(). After it, build again.",
    ),
    reference=finish,
    explanation="On the meta device the layers only work out shapes, so one picture of any size costs nothing. The "
    "layers that go into the network are built again, outside the block, with real numbers.",
    wrong=(
        Wrong(_finish_with(lambda build, shape: 500), "height and width together"),
        Wrong(
            _finish_with(lambda build, shape: build()(torch.rand(1, *shape)).numel()),
            "a real picture",
        ),
        Wrong(
            _finish_with(_on_meta(lambda build, shape: build()(torch.empty(8, *shape)).numel())),
            "How many",
        ),
        Wrong(_on_meta(finish), "inside the with block"),
        Wrong(
            lambda build, *args: nn.Sequential(build(), finish(build, *args)[2]),
            "makes each picture one row",
        ),
        Wrong(
            lambda *arguments: _on_meta(finish)(*arguments).to_empty(device="cpu"), "a trip to meta"
        ),
        Wrong(
            lambda build, shape, n: nn.Sequential(build(), nn.Flatten(), nn.LazyLinear(n)),
            "postpones",
        ),
        Wrong(lambda build, shape, n: 512, "returned int"),
    ),
)


# --- register the buffer ---------------------------------------------------------------------------------------------
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
    mean, std, x = torch.rand(3, 1, 1), torch.rand(3, 1, 1) + 0.5, torch.rand(2, 3, 4, 5)
    with practice_gpus(2):
        module = call(answer, mean, std)
        if (
            set(vars(module)) == set(vars(nn.Module()))
            and not module._buffers
            and not module._parameters
        ):
            raise NotAttempted
        _check_kept(module)
        found = call(module, x)
        if not isinstance(found, torch.Tensor) or found.shape != x.shape:
            raise NotYet(
                "forward no longer returns the normalized x. Leave it as it was; only __init__ is to be filled."
            )
        if not torch.allclose(found, (x - mean) / std, atol=1e-5):
            raise NotYet(
                "on the CPU, Normalize(mean, std)(x) differs from (x - mean) / std. Was mean or std changed?"
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


def _check_kept(module):
    for name in ("mean", "std"):
        kept = getattr(module, name, None)
        if not isinstance(kept, torch.Tensor):
            raise NotYet(
                f"after Normalize(mean, std), the attribute {name} is {type(kept).__name__}, not a tensor."
            )
        if kept.device.type != "cpu":
            raise NotYet(
                f"{name} came in on the CPU and is on {kept.device} before anyone moved the module. Leave the "
                "choice of the device to .to()."
            )
        if isinstance(kept, nn.Parameter):
            raise NotYet(
                f"{name} is a parameter, so parameters() hands it to the optimizer, which may change it. It "
                "is a constant that moves along: what are those called?"
            )


def _variant(keep):
    def start(self, mean, std):
        nn.Module.__init__(self)
        keep(self, "mean", mean)
        keep(self, "std", std)

    return type("Normalize", (Normalize,), {"__init__": start})


class _Silent(Normalize):
    def forward(self, x):
        (x - self.mean) / self.std


buffer = Exercise(
    key="03.buffer",
    title="register the buffer",
    minutes=3,
    lines=2,
    difficulty=1,
    check_answer=_check_buffer,
    hints=(
        "A tensor that moves with the module and is not learned is called a buffer.",
        'self.register_buffer("name", tensor), once for each tensor; nn.Buffer does the same by assignment.',
    ),
    reference=Normalize,
    explanation="register_buffer puts the tensor on the module's list, so .to() moves it and state_dict() saves it, "
    "while parameters() leaves it out, so no optimizer changes it.",
    wrong=(
        Wrong(_variant(setattr), "plain attribute"),
        Wrong(_Silent, "forward no longer"),
        Wrong(lambda mean, std: mean, "without parentheses"),
        Wrong(
            _variant(lambda self, name, value: setattr(self, name, nn.Parameter(value))),
            "is a parameter",
        ),
        Wrong(
            _variant(lambda self, name, value: self.register_buffer(name, value, persistent=False)),
            "persistent",
        ),
        Wrong(
            _variant(lambda self, name, value: self.register_buffer(name, value.to("cuda"))),
            "before anyone",
        ),
        Wrong(
            _variant(lambda self, name, value: self.register_buffer(name, value * 0 + 1)),
            "differs from",
        ),
        Wrong(
            _variant(lambda self, name, value: name == "std" or self.register_buffer(name, value)),
            "bute std",
        ),
    ),
)


# --- where every tensor lives ----------------------------------------------------------------------------------------
def places(model):
    found = {name: p.device for name, p in model.named_parameters()}
    found |= {name: b.device for name, b in model.named_buffers()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                found[f"{path}.{name}" if path else name] = value.device
    return found


def _scattered():
    """A model with tensors of every kind on three devices, and where its parameters, buffers and others are."""
    head = nn.Sequential(nn.Flatten(), nn.Linear(8, 2, bias=False)).to("cuda:1")
    head.register_buffer("scale", torch.ones(2, device="cuda:1"), persistent=False)
    head[1].mask = torch.ones(8)
    model = nn.Sequential(nn.Conv2d(3, 4, 3).to("cuda:0"), nn.BatchNorm2d(4), head)
    model.origin = torch.zeros(2, device="cuda:0")
    model.rate, model.nothing = 0.5, None
    groups = {
        "parameter": (
            "0.weight cuda:0",
            "0.bias cuda:0",
            "1.weight cpu",
            "1.bias cpu",
            "2.1.weight cuda:1",
        ),
        "buffer": (
            "1.running_mean cpu",
            "1.running_var cpu",
            "1.num_batches_tracked cpu",
            "2.scale cuda:1",
        ),
        "plain attribute": ("2.1.mask cpu", "origin cuda:0"),
    }
    return model, {kind: dict(line.split() for line in group) for kind, group in groups.items()}


def _check_places(answer):
    with practice_gpus(2):
        model, groups = _scattered()
        found = _as_places(call(answer, model))
        for kind, expected in groups.items():
            for name, device in expected.items():
                _check_place(kind, name, device, found)
        extra = set(found) - {name for group in groups.values() for name in group}
        if extra:
            raise NotYet(
                f"{min(extra)!r} is in the answer, and no tensor of the model has that name."
            )
    return "parameters, buffers and plain tensors, found on three devices."


def _as_places(found):
    if not isinstance(found, dict):
        raise NotYet(
            f"places(model) returned {type(found).__name__}; expected a dict of name to device. One device "
            "cannot tell it all: a model may be spread."
        )
    return {str(name): str(device) for name, device in found.items()}


def _check_place(kind, name, device, found):
    path, _, last = name.rpartition(".")
    if name in found:
        if found[name] != device:
            raise NotYet(
                f"{name} is on {device}; the answer says {found[name]}. Is each tensor asked for its own?"
            )
    elif f".{name}" in found:
        raise NotYet(
            f"the name '.{name}' begins with a point. The model is among its own modules, with an empty path."
        )
    elif last in found:
        raise NotYet(f"{last!r} lacks its path: the tensor of {path!r} is called {name!r}.")
    else:
        look = {
            "parameter": "named_parameters() walks through all of them",
            "buffer": "buffers have a list of their own, and state_dict() leaves some out",
            "plain attribute": "it is on no list; a Python object keeps its attributes in vars(object)",
        }
        raise NotYet(f"{name}, a {kind}, is missing: {look[kind]}.")


def _wrong_names(write):
    """A wrong answer that writes the names of plain attributes as `write(path, name)`."""
    return lambda model: {
        name: t.device
        for name, t in [
            *model.named_parameters(),
            *model.named_buffers(),
            *(
                (write(path, name), value)
                for path, module in model.named_modules()
                for name, value in vars(module).items()
                if isinstance(value, torch.Tensor) and write(path, name)
            ),
        ]
    }


where = Exercise(
    key="03.where",
    title="report where every tensor lives",
    minutes=6,
    lines=7,
    difficulty=3,
    check_answer=_check_places,
    hints=(
        "Three kinds: named_parameters() and named_buffers() give two of them with full names.",
        "For the third, walk through named_modules() and look at vars(module) for values that are tensors; the path "
        "of the model itself is empty.",
    ),
    reference=places,
    explanation="Parameters and buffers have lists with full names. A plain attribute is on no list; it lies in the "
    "__dict__ of its module, which vars() shows, and named_modules() reaches every module with its path.",
    wrong=(
        Wrong(lambda model: next(model.parameters()).device, "may be spread"),
        Wrong(
            lambda model: {name: p.device for name, p in model.named_parameters()}, "1.running_mean"
        ),
        Wrong(lambda model: {name: t.device for name, t in model.state_dict().items()}, "2.scale"),
        Wrong(_wrong_names(lambda path, name: None), "on no list"),
        Wrong(_wrong_names(lambda path, name: name), "lacks its path"),
        Wrong(_wrong_names(lambda path, name: f"{path}.{name}"), "begins with a point"),
        Wrong(
            lambda model: dict.fromkeys(places(model), next(model.parameters()).device),
            "asked for its own",
        ),
    ),
)


# --- a tensor made in forward ----------------------------------------------------------------------------------------
def with_rows(x):
    n, _, height, width = x.shape
    rows = torch.linspace(0, 1, height, device=x.device, dtype=x.dtype)
    rows = rows.view(1, 1, height, 1).expand(n, 1, height, width)
    return torch.cat([x, rows], dim=1)


def _check_rows(answer):
    with practice_gpus(2):
        for dtype in (torch.float32, torch.float16):
            for device in ("cpu", "cuda:0", "cuda:1"):
                for shape in ((2, 3, 4, 5), (1, 1, 1, 3), (0, 2, 3, 3), (3, 1, 5, 4)):
                    _check_rows_of(answer, torch.rand(shape).to(device, dtype))
        _check_rows_of(answer, torch.rand(2, 3, 5, 4).transpose(2, 3))
    return (
        "the new channel follows the device and the dtype of its input, on the CPU and on two GPUs."
    )


def _check_rows_of(answer, x):
    before, wanted = x.clone(), (len(x), x.shape[1] + 1, *x.shape[2:])
    case = f"x {tuple(x.shape)}, {str(x.dtype)[6:]}, on {x.device}"
    try:
        found = call(answer, x)
    except LearnerError as error:
        if "device" not in str(error):
            raise
        place = "on a GPU" if x.device.type == "cpu" else "elsewhere"
        raise NotYet(
            f"{case}: {error}\nA tensor made in the function lives {place}. Which argument of the function "
            "that makes it says where?"
        ) from None
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != wanted:
        raise NotYet(
            f"{case}: expected shape {wanted}, got {getattr(found, 'shape', type(found).__name__)}."
        )
    if found.device != x.device:
        raise NotYet(
            f"{case}: the result came back on {found.device}. The caller's tensors are where x is."
        )
    if found.dtype != x.dtype:
        raise NotYet(
            f"{case}: the result is {str(found.dtype)[6:]}. cat takes the wider dtype; which is yours?"
        )
    if not torch.equal(found[:, :-1], before):
        raise NotYet(
            f"{case}: the first {x.shape[1]} channels are no longer those of x. The new one comes last."
        )
    channel, (height, width) = found[:, -1].cpu().float(), x.shape[2:]
    if torch.isnan(channel).any():
        raise NotYet(
            f"{case}: the new channel holds nan.{' What divides a single row?' if height == 1 else ''}"
        )
    if torch.allclose(
        channel, torch.linspace(0, 1, height).view(1, height, 1).expand(channel.shape), atol=2e-3
    ):
        return
    if torch.allclose(channel, torch.linspace(0, 1, width).expand(channel.shape), atol=2e-3):
        raise NotYet(f"{case}: the values grow from left to right; expected from top to bottom.")
    raise NotYet(
        f"{case}: the first column of the new channel is {channel[0, :, 0].tolist()}; expected 0 at the top, "
        "1 at the bottom, equal steps between."
    )


def _rows_of(made):
    """A wrong answer whose rows come from `made(x, height)`."""

    def answer(x):
        n, _, height, width = x.shape
        return torch.cat(
            [x, made(x, height).view(1, 1, height, 1).expand(n, 1, height, width)], dim=1
        )

    return answer


rows = Exercise(
    key="03.rows",
    title="make a tensor inside forward",
    minutes=5,
    lines=4,
    difficulty=2,
    check_answer=_check_rows,
    hints=(
        "Every function that makes a tensor takes device= and dtype=; x knows both.",
        "torch.linspace(0, 1, height, device=x.device, dtype=x.dtype), viewed as (1, 1, height, 1), expanded; cat.",
    ),
    reference=with_rows,
    explanation="The new tensor is made where x is and in x's dtype, so the function asks for no machine, "
    "copies nothing, and works on the second GPU as on the first.",
    wrong=(
        Wrong(_rows_of(lambda x, height: torch.linspace(0, 1, height)), "lives elsewhere"),
        Wrong(
            _rows_of(lambda x, height: torch.linspace(0, 1, height, device="cuda")),
            "lives on a GPU",
        ),
        Wrong(
            _rows_of(lambda x, height: torch.linspace(0, 1, height, device=x.device)),
            "which is yours",
        ),
        Wrong(lambda x: with_rows(x.cpu()), "came back on"),
        Wrong(
            _rows_of(lambda x, height: (steps := torch.arange(height).to(x)) / steps.max()),
            "a single row",
        ),
        Wrong(lambda x: with_rows(x.transpose(2, 3)).transpose(2, 3), "left to right"),
        Wrong(lambda x: with_rows(x).flip(1), "no longer those"),
        Wrong(lambda x: x, "expected shape"),
    ),
)


# --- read the messages -----------------------------------------------------------------------------------------------
_SAME = "Expected all tensors to be on the same device, but"
_TYPES = "Input type (torch.{}FloatTensor) and weight type (torch.{}FloatTensor) should be the same"
MESSAGES = {
    "A": ("logits = model(x)", _TYPES.format("", "cuda.")),
    "B": ("logits = model(x)", _TYPES.format("cuda.", "")),
    "C": ("return self.net(x * self.mask)", f"{_SAME} found at least two devices, cuda:0 and cpu!"),
    "D": ("x = x + torch.randn(x.shape)", f"{_SAME} found at least two devices, cuda:0 and cpu!"),
    "E": (
        "logits = model(x)",
        f"{_SAME} got weight is on cuda:1, different from other tensors on cuda:0",
    ),
}
FIXES = {
    "A": "x = x.to(device)",
    "B": "model.to(device)",
    "C": "self.mask = nn.Buffer(mask)",
    "D": "torch.randn_like(x)",
    "E": "x = x.to(next(model.parameters()).device)",
}
_READ = {
    "A": "the input is torch.FloatTensor, which means the CPU; the weight is the one on the GPU.",
    "B": "here the weight is the one without cuda.",
    "C": "x moves with the batch; what did the model keep that .to() does not know?",
    "D": "nothing was kept: one of the two tensors is made in this very line.",
    "E": "both are on a GPU; the weight is named with its device, and the other tensors with theirs.",
}
_CLOSE = {
    ("A", "E"): "A would run with it. But E has no other: there x is on `device` already.",
    ("B", "E"): "B would run with it, on the CPU. What brings it to the GPU?",
    (
        "E",
        "B",
    ): "E would run with it. But B has no other: nothing else brings its model to the GPU.",
}


def show_messages():
    """Print five lines of code, each with the message that it raises."""
    for name, (line, message) in MESSAGES.items():
        print(f"{name}  {line}\n   RuntimeError: {message}")


def _check_messages(answer):
    if not isinstance(answer, dict) or set(answer) != set(FIXES):
        raise NotYet(f"expected a dict with the letters {', '.join(FIXES)}, got {answer!r}.")
    letters = {fix: name for name, fix in FIXES.items()}
    for name, fix in FIXES.items():
        if not isinstance(answer[name], str) or answer[name] not in letters:
            raise NotYet(
                f"{name}: {answer[name]!r} is not one of the five fixes. Copy one from the task."
            )
        if close := _CLOSE.get((name, letters[answer[name]])):
            raise NotYet(f"{name}: {close} Each fix is used once.")
        if answer[name] != fix:
            raise NotYet(f"{name} is not mended by {answer[name]}: {_READ[name]}")
    return "five messages read; each named the tensor to move."


messages = Exercise(
    key="03.messages",
    title="read five messages",
    minutes=3,
    lines=1,
    difficulty=1,
    check_answer=_check_messages,
    hints=(
        "torch.FloatTensor is on the CPU, torch.cuda.FloatTensor on a GPU. Which of the two is in the wrong place?",
        "A and B differ in one word. C and D raise the same words: the line tells them apart. E names two GPUs.",
    ),
    reference=FIXES,
    source=f"fixes = {FIXES!r}",
    explanation="A: the batch was left on the CPU. B: the model was. C: a plain attribute stayed. D: a tensor was "
    "made without a device. E: model and data are on two GPUs.",
    wrong=(
        Wrong({**FIXES, "A": FIXES["B"], "B": FIXES["A"]}, "means the CPU"),
        Wrong({**FIXES, "B": FIXES["A"]}, "without cuda"),
        Wrong({**FIXES, "C": FIXES["A"]}, "the model keep"),
        Wrong({**FIXES, "D": FIXES["C"]}, "this very line"),
        Wrong({**FIXES, "E": FIXES["A"]}, "both are"),
        Wrong({**FIXES, "A": FIXES["E"], "E": FIXES["A"]}, "E has no other"),
        Wrong({**FIXES, "B": FIXES["E"], "E": FIXES["B"]}, "on the CPU. What"),
        Wrong({**FIXES, "E": FIXES["B"]}, "B has no other"),
        Wrong({**FIXES, "A": "x.cuda"}, "one of the five fixes"),
    ),
)


QUIZ = (
    Question(
        "03.inplace",
        "Which line moves its object although nothing is assigned?",
        ("x.to(device) for a tensor x", "model.to(device) for a module", "both"),
        (
            "A tensor's .to returns the moved tensor; x itself stays.",
            "Yes: a module moves in place, and returns itself.",
            "Only one: a tensor is never moved in place.",
        ),
        1,
    ),
    Question(
        "03.stays",
        "After model.to(device), what is still where it was?",
        (
            "a BatchNorm layer's running mean",
            "a tensor in a Python list of the module",
            "a layer's bias",
        ),
        ("Buffers move.", "Yes: .to() only knows what is registered.", "Parameters move."),
        1,
    ),
    Question(
        "03.optimizer",
        "Adam has taken a step on the CPU; then the model moved to the GPU. What happens next?",
        (
            "Training goes on",
            "The step fails: Adam's averages are on the CPU",
            "Adam changes an old copy",
        ),
        (
            "Not after the first step.",
            "Yes: .to() moved the parameters, not the optimizer's state.",
            "The parameters are the same objects.",
        ),
        1,
    ),
    Question(
        "03.bytes",
        "What takes more bytes in this network's forward pass of 64 pictures?",
        ("the parameters", "the outputs of the layers", "both the same"),
        (
            "They do not grow with the batch.",
            "Yes: they grow with the batch.",
            "Count the outputs of conv1.",
        ),
        1,
    ),
)
