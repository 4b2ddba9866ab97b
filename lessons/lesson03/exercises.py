"""Exercises, quiz and figures of lesson 03, Put a CNN on the GPU."""

import torch
from torch import nn
from torch.nn import functional as F

import measurements
from helpers import plots
from helpers.checks import expect
from helpers.checks.core import CORRECT, Exercise, NotAttempted, NotYet, Question, call
from helpers.data import CLASSES, shapes
from helpers.timing import time_ms
from helpers.training import SmallCNN
from practice_gpus import practice_gpus

# --- figures --------------------------------------------------------------------------------------


def show_maps(model):
    """Show a star, and the sixteen pictures that the first layer of `model` makes of it."""
    images, labels = shapes(200, seed=3)
    star = images[labels == CLASSES.index("star")][:1]
    layer = model.conv1
    with torch.inference_mode():
        maps = F.relu(layer(4 * star.to(layer.weight.device) - 2))[0].cpu()
    brightest = maps.amax((1, 2), keepdim=True).clamp_min(1e-6)
    gray = (maps / brightest)[:, None].expand(-1, 3, -1, -1)
    title = "A star (top left), and what sixteen filters see in it"
    figure = plots.pictures(torch.cat([star, gray]), title=title, columns=9)
    plots.show(figure, f"{title}: its inside, its outside, its edges.")


def show_bytes(width, batch):
    """A figure and a sentence: bytes of parameters and outputs of the lesson's network, from the meta device."""
    with torch.device("meta"):
        model = SmallCNN(width=width)
        x = torch.empty(batch, 3, 32, 32)
        mib = {}
        for name in ("conv1", "conv2", "conv3"):
            x = model.get_submodule(name)(x)
            mib[name] = _mib(model.get_submodule(name), x)
            x = F.max_pool2d(x, 2)
        mib["classify"] = _mib(model.classify, model.classify(x.flatten(1)))
    parameters = sum(row["parameters"] for row in mib.values())
    outputs = sum(row["outputs"] for row in mib.values())
    title = f"Parameters {parameters:,.2f} MiB, outputs {outputs:,.2f} MiB"
    return plots.stacked(mib, title, "MiB"), f"{title}."


def _mib(layer, output):
    parameters = sum(p.nbytes for p in layer.parameters())
    return {"parameters": parameters / 2**20, "outputs": output.nbytes / 2**20}


_RATES = {"about 96": 96, "about 1,300": 1300, "about 25,000": 25_000}
RATES = tuple(_RATES)


def rate_of_v100(batch):
    """The answer of `RATES` that fits the published pictures per second of a V100 at `batch`."""
    [row] = _published().rows("inference", device="V100 16GB, DGX-1", precision="FP32", batch=batch)
    return min(RATES, key=lambda answer: abs(_RATES[answer] - row["images_per_s"]))


def _published():
    return measurements.published("resnet50_nvidia")


def show_rates(device):
    """Show pictures per second by batch: of our network on the CPU and on `device` here, and of ResNet-50, published."""
    data = _published()
    here = {"CPU here": _rates("cpu", (1, 4, 16, 64, 256))}
    if device.type != "cpu":
        here[f"{device.type} here"] = _rates(device, (1, 4, 16, 64, 256, 1024))
    figure = plots.blank_figure((7.2, 3.2))
    figure.suptitle("More pictures at a time, until the device is busy", fontsize=11)
    left, right = figure.subplots(1, 2)
    for label, rates in here.items():
        left.plot([*rates], [*rates.values()], "o-", label=label)
    for device_name, style in (("V100 16GB, DGX-1", "s--"), ("T4", "^--")):
        rows = data.rows("inference", device=device_name, precision="FP32")
        batches = [row["batch"] for row in rows]
        right.plot(batches, [row["images_per_s"] for row in rows], style, label=device_name[:4])
    for axes, title in ((left, "our network, here"), (right, "ResNet-50, 224 pixels, published")):
        axes.set_title(title, fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 4, 16, 64, 256], [1, 4, 16, 64, 256])
        axes.set_xlabel("pictures in a batch")
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, loc="upper left")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("pictures per second")
    plots.sources(figure, f"published: {data.source}")
    name, rates = next(iter(here.items()))
    single = rates[1]
    best = max(rates.values())
    plots.show(
        figure, f"{name}: {single:,.0f} pictures per second one by one, {best:,.0f} at best."
    )


def _rates(device, batches):
    """{batch: pictures per second} of the lesson's network, from the median of several calls."""
    network = SmallCNN().to(device)
    rates = {}
    for n in batches:
        pictures = torch.rand(n, 3, 32, 32, device=device)
        with torch.inference_mode():
            time = time_ms(lambda: network(pictures), device)  # noqa: B023 - called at once
        rates[n] = 1000 * n / time.median_ms
    return rates


def show_normalized(answer):
    """Show nine pictures, and below them what the learner's Normalize makes of them, once it is right."""
    pictures, _ = shapes(9, seed=5)
    rows = [pictures]
    title = "Nine pictures; a second row waits here for your Normalize"
    if buffer.outcome(answer).status == CORRECT:
        mean = pictures.mean((0, 2, 3)).reshape(3, 1, 1)
        std = pictures.std((0, 2, 3)).reshape(3, 1, 1)
        rows.append(0.5 + 0.2 * answer(mean, std)(pictures))
        title = "Nine pictures, and what your Normalize makes of them: their mean is gray now"
    figure = plots.pictures(torch.cat(rows), title=title, columns=9)
    plots.show(figure, f"{title}.")


# --- finish the network ---------------------------------------------------------------------------


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
        network = nn.Sequential(*layers())
        network[0].register_forward_pre_hook(note)
        for parameter in network.parameters():
            nn.init.constant_(parameter, 0.25)
        return network

    return build


_FEATURES = (
    ((3, 32, 32), 10, lambda: [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)]),
    ((1, 28, 28), 4, lambda: [nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)]),
    ((2, 9, 21), 1, lambda: [nn.Conv2d(2, 3, 3, stride=2)]),
)


def _check_finish(answer):
    for shape, classes, layers in _FEATURES:
        log = []
        network = call(answer, _builder(layers, log), shape, classes)
        if log:
            raise NotYet(
                f"pictures {shape}: a real picture went through build()'s layers on {log[0]}. The number can "
                "be had without arithmetic: on which device are tensors only shapes?"
            )
        with torch.device("meta"):
            values = nn.Sequential(*layers())(torch.empty(1, *shape)).numel()
        _check_network(network, shape, classes, values)
    return "three networks finished, and no picture was computed on."


def _check_network(network, shape, classes, values):
    if not isinstance(network, nn.Module):
        raise NotYet(f"finish(...) returned {type(network).__name__}, expected an nn.Module.")
    if any(nn.parameter.is_lazy(p) for p in network.parameters()):
        raise NotYet(
            "nn.LazyLinear postpones the question to the first batch; you can answer it now."
        )
    for name, parameter in network.named_parameters():
        expect.tensor(parameter, device="cpu", what=f"with what you built inside the block, {name}")
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions or not torch.all(convolutions[0].weight == 0.25):
        raise NotYet(
            "the network's first layer is not as build() makes it: a trip to meta loses the numbers. "
            "build() may be called twice."
        )
    linears = [module for module in network.modules() if isinstance(module, nn.Linear)]
    takes = linears[-1].in_features if linears else values
    if takes != values and takes % values == 0:
        raise NotYet(
            f"pictures {shape}: the linear layer takes {takes} values, {takes // values} times what one "
            "picture delivers. How many pictures were counted?"
        )
    if takes != values:
        raise NotYet(
            f"pictures {shape}: the linear layer takes {takes} values, and one picture delivers another "
            "number: channels, height and width together."
        )
    try:
        logits = network(torch.rand(2, *shape))
    except RuntimeError as error:
        raise NotYet(
            f"pictures {shape}: a batch of two raised: {str(error).splitlines()[0]}. Between the maps and "
            "the linear layer, what makes each picture one row?"
        ) from None
    expect.tensor(logits, shape=(2, classes), what=f"for two pictures {shape}, the result")


flat = Exercise(
    key="03.flat",
    title="finish the network",
    check_answer=_check_finish,
    hints=(
        "The section The whole class ran the network on a device where tensors have shapes and no numbers.",
        'Inside `with torch.device("meta"):`, send one picture through `build()` and count the values. '
        "After the block, build the layers again: those have numbers.",
        "`values = build()(torch.empty(1, *shape)).numel()` in the block; then "
        "`nn.Sequential(build(), nn.Flatten(), nn.Linear(values, ...))`.",
    ),
    reference=finish,
    explanation="On the meta device the layers only work out shapes, so a picture of any size costs nothing. The "
    "layers that go into the network are built again, outside the block, with real numbers.",
)


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


buffer = Exercise(
    key="03.buffer",
    title="register the buffer",
    check_answer=_check_buffer,
    hints=(
        "The class `Parts`, in What moves and what stays, holds a tensor that moves and is not learned.",
        "Such a tensor is called a buffer. The module has a method that registers one under a name.",
        '`self.register_buffer("mean", mean)`, and the same once more for `std`.',
    ),
    reference=Normalize,
    explanation="register_buffer puts the tensor on the module's list, so .to() moves it and state_dict() saves it, "
    "while parameters() leaves it out, so no optimizer changes it. self.mean = nn.Buffer(mean) does the same.",
)


# --- read the messages ----------------------------------------------------------------------------
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
    "B": "here the weight is the one without cuda. What brings it to the GPU?",
    "C": "x moves with the batch; what did the model keep that .to() does not know?",
    "D": "nothing was kept: one of the two tensors is made in this very line.",
    "E": "both are on a GPU; the weight is named with its device, and the other tensors with theirs.",
}


def show_messages():
    """Print five lines of code, each with the message that it raises, and five fixes."""
    for name, (line, message) in MESSAGES.items():
        print(f"{name}  {line}\n   RuntimeError: {message}")
    print("\nThe fixes, each used once:")
    for fix in sorted(FIXES.values()):
        print(f"   {fix}")


def _check_messages(answer):
    expect.choices(answer, FIXES, _READ)
    return "five messages read, and each has its fix."


messages = Exercise(
    key="03.messages",
    title="read five messages",
    check_answer=_check_messages,
    hints=(
        "Break it, above, raises A, D and E. Which line raised which message?",
        "`torch.FloatTensor` is on the CPU, `torch.cuda.FloatTensor` on a GPU. A and B differ in that one word; "
        "C and D raise the same words, so look at their lines.",
        "E is the only one with two GPUs in it: its fix asks the model where it is.",
    ),
    reference=FIXES,
    source=f"fixes = {FIXES!r}",
    explanation="A: the batch was left on the CPU. B: the model was. C: a plain attribute stayed. D: a tensor was "
    "made without a device. E: model and data are on two GPUs.",
)


QUIZ = (
    Question(
        "03.inplace",
        "Which line moves its object although nothing is assigned?",
        {
            "x.to(device) for a tensor x": "A tensor's .to returns the moved tensor; x itself stays.",
            "model.to(device) for a module": "Yes: a module moves in place, and returns itself.",
            "both": "Only one: a tensor is never moved in place.",
        },
        right=1,
    ),
    Question(
        "03.stays",
        "After model.to(device), what is still where it was?",
        {
            "a BatchNorm layer's running mean": "Buffers move.",
            "a layer's bias": "Parameters move.",
            "a tensor in a Python list of the module": "Yes: .to() only knows what is registered.",
        },
        right=2,
    ),
    Question(
        "03.optimizer",
        "Adam has taken a step on the CPU; then the model moved to the GPU. What happens next?",
        {
            "The step fails: Adam's averages are on the CPU": "Yes: .to() moved the parameters, not the optimizer's state.",
            "Training goes on": "Not after the first step.",
            "Adam changes an old copy": "The parameters are the same objects.",
        },
        right=0,
    ),
)
