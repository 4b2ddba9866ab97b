"""The steps that others measured and published, to be run on practice GPUs: what `tools.scoreboard` compares."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from course import measurements

Step = Callable[[], object]  # one step of what was measured


@dataclass(frozen=True)
class Case:
    """One measured step: ``make`` builds it on practice GPUs and returns a function without arguments."""

    table: str
    network: str
    card: str
    kind: str  # "inference", "training" or "operator"
    measured_ms: float
    key: tuple  # cases with the same key run the same step
    make: Callable
    gpus: int = 1
    tf32: bool = False  # whether products used it
    how: str = ""  # "compiled", "graph" (compiled, one graph), and a plan of several GPUs


def network(name: str) -> Any:
    """A network of timm's or, where that is not installed, of torchvision's, on the GPU; None where neither has it."""
    import torch

    try:
        make = import_module("timm").create_model
    except ImportError:
        import torchvision.models as known

        if name not in known.list_models(module=known):
            return None
        return known.get_model(name).cuda()
    with torch.device("meta"):
        return make(name).to_empty(device="cuda").cuda()


def inference(
    name: str, batch: int, pixels: int, precision: str = "AMP", last: bool = False
) -> Step | None:
    """A step of inference."""
    import torch

    model = network(name)
    if model is None:
        return None
    x = torch.empty(batch, 3, pixels, pixels, device="cuda")
    if last:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    model.eval()

    def step():
        with torch.no_grad(), torch.autocast("cuda", torch.float16, precision == "AMP"):
            model(x)

    return step


def training(
    name: str,
    batch: int,
    pixels: int,
    precision: str = "AMP",
    last: bool = False,
    foreach: bool = True,
) -> Step | None:
    """A training step with SGD and momentum."""
    import torch

    model = network(name)
    if model is None:
        return None
    x = torch.empty(batch, 3, pixels, pixels, device="cuda")
    if last:
        model, x = (each.to(memory_format=torch.channels_last) for each in (model, x))
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=foreach)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16, precision == "AMP"):
            out = model(x)
        out = out[0] if isinstance(out, (tuple, list)) else out
        torch.nn.functional.cross_entropy(out, labels).backward()
        optimizer.step()

    return step


def timm(table: str, kind: str) -> Iterator[Case]:
    """Networks of timm's tables. PyTorch 1.12, of the training table, had no fused attention and no foreach SGD."""
    make = inference if kind == "inference" else training
    more: dict[str, Any] = {} if kind == "inference" else {"foreach": False}
    for row in measurements.published(table).rows("steps"):
        name, batch, pixels = row["network"], row["batch"], row["pixels"]
        key = (make.__name__, name, batch, pixels)
        step = lambda args=(name, batch, pixels): make(*args, **more)  # noqa: E731
        # timm's benchmark.py asks for tf32
        yield Case(table, name, row["device"], kind, row["time_ms"], key, step, tf32=True)


def nvidia() -> Iterator[Case]:
    """ResNet-50 as NVIDIA measured it: mixed precision channels last, float32 as it is; training with a batch of 128."""
    source = measurements.published("resnet50_nvidia")
    for kind, make in (("inference", inference), ("training", training)):
        for row in source.rows(kind):
            if row.get("gpus", 1) > 1:
                continue
            batch = row.get("batch", 128)
            args = ("resnet50", batch, 224, row["precision"], row["precision"] == "AMP")
            yield Case(
                source.name,
                "resnet50",
                source.devices[row["device"]]["card"],
                kind,
                1e3 * batch / row["images_per_s"],
                (make.__name__, *args),
                lambda args=args, make=make: make(*args),
            )


def ddp() -> Iterator[Case]:
    """Training on one and on eight V100 in one machine, float32."""
    source = measurements.published("ddp_v100")
    for row in source.rows("training"):
        alone = row["mode"] == "no DDP"
        if row["gpus"] != (1 if alone else 8):
            continue
        name = row["network"].lower().replace("-", "").replace(" ", "_")
        args = (name, 32, 224, "FP32")
        make = lambda args=args: training(*args)  # noqa: E731
        measured = 1e3 * row["step_s"]
        yield Case(source.name, name, "V100", "training", measured, args, make, row["gpus"])


def operators() -> Iterator[Case]:
    """Products of square matrices, and a softmax."""
    import torch

    dtypes = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    source = measurements.published("matmul_sizes")
    for row in source.rows("matmul"):
        if row["dtype"] in dtypes and row["tflop_per_s"]:
            size, dtype = row["size"], dtypes[row["dtype"]]
            make = lambda size=size, dtype=dtype: product(size, dtype)  # noqa: E731
            measured = 2 * size**3 / row["tflop_per_s"] / 1e9
            card = source.devices[row["device"]]["card"]
            name = f"matmul {row['dtype']}"
            yield Case(source.name, name, card, "operator", measured, (size, dtype), make)
    source = measurements.published("triton_softmax_rtx3090")
    for row in source.rows("forward"):
        if "PyTorch" in row["code"]:
            step = lambda width=row["width"]: softmax(width)  # noqa: E731
            key = ("softmax", row["width"])
            yield Case(source.name, "softmax", "RTX 3090", "operator", row["time_ms"], key, step)


def product(size: int, dtype: Any) -> Step:
    """A product of two matrices, ten times, so that the CPU runs ahead."""
    import torch

    a = torch.empty(size, size, dtype=dtype, device="cuda")
    return lambda: [a @ a for _ in range(10)]


def softmax(width: int) -> Step:
    """A softmax of 2,048 rows, ten times."""
    import torch

    x = torch.empty(2048, width, device="cuda")
    return lambda: [x.softmax(1) for _ in range(10)]


def crossover() -> Iterator[Case]:
    """Stacks of linear layers on an RTX 4090: the CPU issues them, under WSL."""
    source = measurements.published("crossover_4090")
    for row in source.rows():
        if row["device"] == "RTX 4090" and row["layers"] <= 2048:
            args = row["layers"], row["width"], row["batch"]
            make = lambda args=args: layers(*args)  # noqa: E731
            yield Case(
                source.name, "linear layers", "RTX 4090", "inference", row["time_ms"], args, make
            )


def layers(count: int, width: int, batch: int) -> Step:
    """``count`` linear layers."""
    import torch

    layer = torch.nn.Linear(width, width, device="cuda")
    x = torch.empty(batch, width, device="cuda")

    def step():
        y = x
        with torch.no_grad():
            for _ in range(count):
                y = layer(y)

    return step


def transformers() -> Iterator[Case]:
    """Encoders of Hugging Face on a T4 and an RTX 3090, float32 and float16."""
    from course.tools._encoder import encoding

    source = measurements.published("transformers_t4_3090")
    for row in source.rows("steps"):
        args = row["network"], row["batch"], row["tokens"], row["precision"]
        make = lambda args=args: encoding(*args)  # noqa: E731
        name, ms = f"{row['network']} {row['precision']}", row["time_ms"]
        # PyTorch before 1.12 used tf32 by default
        yield Case(source.name, name, row["device"], "inference", ms, args, make, tf32=True)


TABLES = {
    "timm_infer_3090": lambda: timm("timm_infer_3090", "inference"),
    "timm_train_3090": lambda: timm("timm_train_3090", "training"),
    "resnet50_nvidia": nvidia,
    "ddp_v100": ddp,
    "operators": operators,
    "crossover_4090": crossover,
    "transformers": transformers,
}
