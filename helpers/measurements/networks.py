"""What a device does with the networks of the lessons: forward, training, memory, a timeline, and a test loop.

Each part is a generator of rows for its section of the schema, as in `helpers.measurements.measure`.
"""

import gc
import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

from helpers.data import shapes
from helpers.devices import synchronize
from helpers.measurements.measure import PRECISIONS, digits, growing, timed
from helpers.memory import forecast, tensor_bytes
from helpers.training import SmallCNN, evaluate

SHAPE = (3, 32, 32)


def mlp():
    """A network of matrix products only: 3072, 512, 512, 10."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3072, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def networks(device):
    """Networks by name; the wide one only where it does not take minutes."""
    wide = {} if device.type == "cpu" else {"SmallCNN, width 128": lambda: SmallCNN(width=128)}
    return {"MLP": mlp, "SmallCNN": SmallCNN, **wide}


def batches(device, quick, most):
    """Growing batch sizes: powers of four."""
    sizes = [4**n for n in range(0, 8) if 4**n <= (most if device.type != "cpu" else 1024)]
    return sizes[1::2] if quick else sizes


def batch_of(n, device):
    """n drawn images and their labels on the device; a few hundred are drawn, the rest repeats them."""
    images, labels = shapes(min(n, 256), seed=0)
    times = -(-n // len(images))
    return images.repeat(times, 1, 1, 1)[:n].to(device), labels.repeat(times)[:n].to(device)


def forward(device, quick):
    """Forward passes without gradients, by network, batch and number format."""
    for name, build in networks(device).items():
        for dtype in ("float32",) if device.type == "cpu" else ("float32", "float16"):
            model = build().to(device, PRECISIONS[dtype]).eval()

            def measured(batch, name=name, model=model, dtype=dtype):
                x = batch_of(batch, device)[0].to(PRECISIONS[dtype])
                with torch.inference_mode():
                    times = timed(lambda: model(x), device, quick)
                return {
                    "network": name,
                    "batch": batch,
                    "dtype": dtype,
                    **times,
                    **_rate(batch, times),
                }

            yield from growing(batches(device, quick, 4**7), measured, quick)


def _rate(images, times):
    return {"images_per_s": digits(1e3 * images / times["time_ms"])}


def training_step(model, x, y, optimizer, precision):
    """A function that trains `model` one step on (x, y): autocast below float32, a scaler under float16."""
    dtype = None if precision == "float32" else PRECISIONS[precision]
    scaler = torch.amp.GradScaler(x.device.type, enabled=precision == "float16")

    def step():
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=dtype) if dtype else nullcontext():
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def training(device, quick):
    """Training steps on data that is on the device, by network, precision and batch; on CUDA with their peak."""
    take_workspaces(device)
    precisions = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "bfloat16", "float16")}
    for name, build in networks(device).items():
        for precision in precisions.get(device.type, ("float32",)):

            def measured(batch, name=name, build=build, precision=precision):
                before = _held(device)
                model = build().to(device)
                step = training_step(
                    model, *batch_of(batch, device), torch.optim.Adam(model.parameters()), precision
                )
                step()
                _forget_peak(device)
                times = timed(step, device, quick)
                return {
                    "network": name,
                    "batch": batch,
                    "precision": precision,
                    **times,
                    **_rate(batch, times),
                    "peak_bytes": _peak(device, before),
                }

            yield from growing(batches(device, quick, 4**6), measured, quick)


def take_workspaces(device):
    """Let the libraries of a GPU take the memory that they keep, so that no measurement counts it as a network's."""
    if device.type == "cuda":
        _measured_peak(mlp(), 64, "adam", "float32", device)


def _held(device):
    """Bytes that are in use on a CUDA device now, after what nobody needs is gone; else 0."""
    gc.collect()
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _forget_peak(device):
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device, before):
    return torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else None


def memory(device, quick):
    """Peak of a training step, forecast and measured: by the allocator on CUDA, by PyTorch's profiler on a CPU."""
    take_workspaces(device)
    for name, build in networks(device).items():
        for batch in (64,) if quick else (32, 128, 512):
            for optimizer, precision in (("adam", "float32"), ("momentum", "bfloat16")):
                found = forecast(
                    build(), SHAPE, batch, optimizer, None if precision == "float32" else precision
                )
                parts = {
                    f"{part}_bytes": getattr(found, part)
                    for part in ("parameters", "gradients", "optimizer", "activations", "other")
                }
                yield {
                    "network": name,
                    "batch": batch,
                    "precision": precision,
                    "optimizer": optimizer,
                    **parts,
                    "forecast_bytes": found.peak,
                    "measured_bytes": _measured_peak(build(), batch, optimizer, precision, device),
                }


def _measured_peak(model, batch, optimizer, precision, device):
    if device.type not in ("cuda", "cpu"):
        return None
    before = _held(device)
    (x, y), model = batch_of(batch, device), model.to(device)
    opt = (
        torch.optim.Adam(model.parameters(), foreach=True)
        if optimizer == "adam"
        else torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    )
    step = training_step(model, x, y, opt, precision)
    step()
    opt.zero_grad()
    if device.type == "cuda":
        _forget_peak(device)
        step()
        return _peak(device, before)
    state = [v for values in opt.state.values() for v in values.values() if torch.is_tensor(v)]
    return sum(
        map(tensor_bytes, [*model.parameters(), *model.buffers(), *state, x, y])
    ) + allocated_on_cpu(step)


def allocated_on_cpu(step):
    """The most that `step` holds at once on the CPU beyond what was there before, from the profiler's memory events."""
    trace = _trace(step, profile_memory=True)
    now = most = 0
    for event in sorted((e for e in trace if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return most


def _trace(step, **options):
    """Events of the profiler's Chrome trace of one `step`: https://docs.pytorch.org/docs/stable/profiler.html."""
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # else its library writes about its own start and end
    with torch.profiler.profile(acc_events=True, **options) as profile:
        step()
    return _events(profile)


def _events(profile):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def _warm_trace(step, device):
    """Events of one `step` after two that the profiler sees and forgets: its start slows a GPU's launches down."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    events = []
    with torch.profiler.profile(
        acc_events=True,
        schedule=torch.profiler.schedule(wait=0, warmup=2, active=1, repeat=1),
        on_trace_ready=lambda profile: events.extend(_events(profile)),
    ) as profile:
        for _ in range(3):
            step()
            synchronize(device)
            profile.step()
    return events


LANES = {"kernel": "GPU", "gpu_memcpy": "GPU", "gpu_memset": "GPU", "cpu_op": "CPU"}


def timeline(device, quick, most=200):
    """One training step of SmallCNN as the profiler saw it: the longest `most` events, in order of their start."""
    model = SmallCNN().to(device)
    step = training_step(
        model, *batch_of(64, device), torch.optim.Adam(model.parameters()), "float32"
    )
    for _ in range(5):
        step()
    events = [e for e in _warm_trace(step, device) if e.get("cat") in LANES and e.get("ph") == "X"]
    longest = sorted(_outermost(events), key=lambda e: -e["dur"])[:most]
    start = min((e["ts"] for e in longest), default=0)
    for e in sorted(longest, key=lambda e: e["ts"]):
        yield {
            "lane": LANES[e["cat"]],
            "name": e["name"][:60],
            "start_us": round(e["ts"] - start, 1),
            "duration_us": round(e["dur"], 1),
        }


def _outermost(events):
    """Events without the CPU operations that another one on the same thread called."""
    end = {}
    for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        inside = e["cat"] == "cpu_op" and e["ts"] < end.get(e["tid"], 0)
        if not inside:
            end[e["tid"]] = e["ts"] + e["dur"]
            yield e


def evaluation(device, quick):
    """A test loop over batches on the device, which reads its count after each batch or once."""
    size, count = (64, 4) if quick or device.type == "cpu" else (256, 64)
    model, batch = SmallCNN().to(device).eval(), batch_of(size, device)

    @torch.inference_mode()
    def each_batch():
        correct = 0
        for x, y in [batch] * count:
            correct += (model(x).argmax(1) == y).sum().item()
        return correct

    for way, fn in (
        ("each batch", each_batch),
        ("once", lambda: evaluate(model, [batch] * count, device)),
    ):
        times = timed(fn, device, quick)
        yield {
            "network": "SmallCNN",
            "way": way,
            "batch": size,
            "batches": count,
            **times,
            **_rate(size * count, times),
        }
