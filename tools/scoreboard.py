"""Forecasts of the clock against what others measured: errors by table, card, family and regime, and two baselines."""

import argparse
import contextlib
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module

import measurements
from measurements import forecasts

HELP = "compare the clock's forecasts with published measurements"
SHEETS = {  # the words of `measurements` for a card → those of practice GPUs
    "A100 40 GB": "A100 40",
    "A100 80 GB": "A100 80",
    "H100": "H100 SXM",
}


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


@dataclass(frozen=True)
class Point:
    """A case and its forecast; ``flops_ms`` and ``bytes_ms`` are the baselines FLOPs ÷ peak and bytes ÷ bandwidth."""

    table: str
    network: str
    card: str
    kind: str
    bound: str
    measured_ms: float
    forecast_ms: float
    low_ms: float
    high_ms: float
    flops_ms: float
    bytes_ms: float

    @property
    def family(self) -> str:
        """The kind of network: the first word of its name."""
        return re.match(r"[a-z0-9]*?[a-z]+", self.network.removeprefix("tf_"))[0]


def network(name: str):
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


def inference(name, batch, pixels, precision="AMP", last=False):
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


def training(name, batch, pixels, precision="AMP", last=False, foreach=True):
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
    more = {} if kind == "inference" else {"foreach": False}
    for row in measurements.published(table).rows("steps"):
        name, batch, pixels = row["network"], row["batch"], row["pixels"]
        key = (make.__name__, name, batch, pixels)
        step = lambda args=(name, batch, pixels): make(*args, **more)  # noqa: E731
        yield Case(table, name, row["device"], kind, row["time_ms"], key, step)


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
            make = lambda width=row["width"]: softmax(width)  # noqa: E731
            key = ("softmax", row["width"])
            yield Case(source.name, "softmax", "RTX 3090", "operator", row["time_ms"], key, make)


def product(size, dtype):
    """A product of two matrices, ten times, so that the CPU runs ahead."""
    import torch

    a = torch.empty(size, size, dtype=dtype, device="cuda")
    return lambda: [a @ a for _ in range(10)]


def softmax(width):
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


def layers(count, width, batch):
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


TABLES = {
    "timm_infer_3090": lambda: timm("timm_infer_3090", "inference"),
    "timm_train_3090": lambda: timm("timm_train_3090", "training"),
    "resnet50_nvidia": nvidia,
    "ddp_v100": ddp,
    "operators": operators,
    "crossover_4090": crossover,
}


def points(cases: list[Case], progress=lambda text: None) -> list[Point]:
    """A `Point` for each case whose card and network are known here; each step runs once, on shapes alone."""
    from practice_gpus.cards import find_card

    recorded = {}
    found = []
    for case in sorted(cases, key=lambda case: repr(case.key)):
        try:
            card = find_card(SHEETS.get(case.card, case.card))
        except ValueError:
            continue
        if case.key not in recorded:
            recorded = {case.key: record(case, progress)}
        forecast, gradients = recorded[case.key]
        if forecast is not None:
            found.append(point(case, forecast.on(card, case.gpus, gradients)))
    return found


def record(case: Case, progress):
    """(the forecast of a case's step, bytes of its gradients), or (None, 0) where it does not run here."""
    import torch

    from practice_gpus import practice_gpus

    progress(f"{case.table} {case.network}")
    choose_attention(case)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = case.table.startswith(
        "timm"
    )  # as its benchmark.py does
    try:
        with practice_gpus(1, "900 GiB", values=False, stand_in=0.0) as gpus:
            step = case.make()
            if step is None:
                return None, 0
            forecast = gpus.forecast(step, card="RTX 3090")
            size = torch.cuda.memory_allocated()
            return forecast, size // 3 if case.gpus > 1 else 0  # weights, gradients, momentum
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        progress(f"{case.network}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return None, 0
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32


def choose_attention(case: Case) -> None:
    """Give timm's networks the attention of their time: fused since PyTorch 2.0."""
    with contextlib.suppress(ImportError):
        import_module("timm.layers").set_fused_attn(case.kind == "inference")


def point(case: Case, forecast) -> Point:
    """The forecast and the baselines of a case; operators ran ten times, so a tenth."""
    share = 10 if case.kind == "operator" else 1
    works = [entry.work for entry in forecast.entries if hasattr(entry, "work")]
    card = forecast.card
    flops = sum(work.flops / card.peak(work.unit) for work in works if work.flops)
    moved = sum(work.bytes for work in works) / card.bandwidth / 1e9
    times = forecast.ms, forecast.low_ms, forecast.high_ms, 1e3 * flops, 1e3 * moved
    times = [round(time / share, 5) for time in times]
    return Point(
        case.table, case.network, card.name, case.kind, forecast.bound, case.measured_ms, *times
    )


def summary(chosen: list[Point]) -> dict:
    """Median error, share within 1.5 times, rank correlation, share in range; median errors of the baselines."""

    def error(field):
        return statistics.median(abs(getattr(p, field) / p.measured_ms - 1) for p in chosen)

    ratios = [p.forecast_ms / p.measured_ms for p in chosen]
    measured = [p.measured_ms for p in chosen]
    forecasts = [p.forecast_ms for p in chosen]
    several = len(set(measured)) > 2 and len(set(forecasts)) > 2
    rank = statistics.correlation(ranks(measured), ranks(forecasts)) if several else None
    return {
        "points": len(chosen),
        "median_error": error("forecast_ms"),
        "within_1_5": sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios) / len(chosen),
        "rank": rank,
        "in_range": sum(p.low_ms <= p.measured_ms <= p.high_ms for p in chosen) / len(chosen),
        "flops_error": error("flops_ms"),
        "bytes_error": error("bytes_ms"),
    }


def ranks(values: list[float]) -> list[int]:
    """The place of each value among all, from the least."""
    place = {value: index for index, value in enumerate(sorted(set(values)))}
    return [place[value] for value in values]


def report(found: list[Point]) -> str:
    """The summaries as text, one line a group."""
    head = f"{'':34}points  error  ≤1.5×   rank  range  FLOPs÷peak  bytes÷bandwidth"
    lines = [head]
    for title, group in (
        ("table", lambda p: f"{p.table}, {p.kind}"),
        ("card", lambda p: f"{p.card}, {p.kind}"),
        ("regime", lambda p: f"{p.bound}, {p.kind}"),
        ("family", lambda p: p.family),
    ):
        lines.append(f"by {title}")
        groups: dict = {}
        for each in found:
            groups.setdefault(group(each), []).append(each)
        for name, chosen in sorted(groups.items()):
            lines.append(line(name, summary(chosen)))
    misses = [p for p in found if not 1 / 1.5 <= p.forecast_ms / p.measured_ms <= 1.5]
    lines.append("farther off than 1.5 times: forecast ÷ measured")
    misses.sort(key=lambda p: p.forecast_ms / p.measured_ms)
    lines += [
        f"  {p.forecast_ms / p.measured_ms:.2f}  {p.network}, {p.card}, {p.kind}" for p in misses
    ]
    return "\n".join(lines)


def line(name: str, s: dict) -> str:
    """One line of the report."""
    rank = "–" if s["rank"] is None else f"{s['rank']:.2f}"
    return (
        f"  {name[:32]:32}{s['points']:6}{s['median_error']:7.0%}{s['within_1_5']:7.0%}{rank:>7}"
        f"{s['in_range']:7.0%}{s['flops_error']:12.0%}{s['bytes_error']:17.0%}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scoreboard`."""
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all without one")
    parser.add_argument("--every", type=int, default=1, help="only every Nth case of timm's tables")
    parser.add_argument("--stored", action="store_true", help="print what was stored, run nothing")
    parser.add_argument(
        "--write", action="store_true", help=f"store the points in {forecasts.FILE.name}"
    )


def run(options: argparse.Namespace) -> int:
    """Forecast, compare and print. Returns 0, or 2 when wrongly called."""
    unknown = set(options.tables) - set(TABLES)
    if unknown or options.every < 1:
        known = ", ".join(TABLES)
        print(f"scoreboard: tables are {known}; --every takes 1 or more", file=sys.stderr)
        return 2
    if options.stored:
        print(report(stored()))
        return 0
    found = []
    for table in options.tables or TABLES:
        every = options.every if table.startswith("timm") else 1
        found += points(list(TABLES[table]())[::every], lambda text: print(text, flush=True))
        if options.write:
            write(found)
    print(report(found))
    return 0


def write(found: list[Point]) -> None:
    """Store points, one a line, in place of those of the same tables."""
    tables = {each.table for each in found}
    kept = (
        [each for each in stored() if each.table not in tables] if forecasts.FILE.exists() else []
    )
    lines = ",\n".join(json.dumps(asdict(each)) for each in [*kept, *found])
    forecasts.FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def stored() -> list[Point]:
    """The points that were stored."""
    return [Point(**row) for row in forecasts.points()]
