"""Train the small CNN on any device, stop when you like, and go on later (lesson 04).

    python train.py --device auto --epochs 4 --checkpoint run.pt
    python train.py --device cpu --epochs 6 --checkpoint run.pt --resume

On a CPU the resumed run ends with bit for bit the same weights as a run without a stop.
"""

import argparse
import time
import zipfile
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course import files
from helpers.data import CLASSES, shapes
from helpers.devices import pick_device
from helpers.training import SmallCNN, evaluate, send

# a resumed run must have these from its checkpoint
SAME_RUN = ("images", "batch_size", "lr", "amp", "seed")


def arguments():
    parser = argparse.ArgumentParser(description="Train the small CNN on any device.")
    parser.add_argument(
        "--device",
        default="auto",
        help="auto (the best one here), cpu, cuda, cuda:1, mps, xpu",
    )
    parser.add_argument(
        "--disable-cuda",
        action="store_true",
        help="stay on the CPU where auto would choose CUDA",
    )
    parser.add_argument(
        "--epochs", type=int, default=4, help="passes over the images, all in all"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate of Adam")
    parser.add_argument(
        "--images", type=int, default=8000, metavar="N", help="learn from N images"
    )
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint", type=Path, metavar="PATH", help="file to write after each epoch"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint"
    )
    return parser


def check(args):
    """The device to use; raises ValueError where arguments do not fit, before any work is done."""
    for name in ("epochs", "batch_size", "lr"):
        if not 0 < getattr(args, name) < float("inf"):
            raise ValueError(
                f"--{name.replace('_', '-')} takes a number above 0; got {getattr(args, name)}"
            )
    if args.resume and args.checkpoint is None:
        raise ValueError("--resume needs --checkpoint PATH, the file to go on from")
    if args.checkpoint and (
        args.checkpoint.is_dir() or not args.checkpoint.parent.is_dir()
    ):
        raise ValueError(
            f"--checkpoint takes the path of a file in a folder that exists; got {args.checkpoint}"
        )
    if not args.disable_cuda:
        return pick_device(args.device)
    if args.device.startswith("cuda"):
        raise ValueError(
            f"--disable-cuda and --device {args.device} exclude each other"
        )
    return torch.device("cpu") if args.device == "auto" else pick_device(args.device)


def train_epoch(model, loader, optimizer, scaler, device, dtype):
    """The loop of lesson 04; with mixed precision where `dtype` is not None. Returns the mean loss per image."""
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        x = send(x, device)
        y = send(y, device)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()  # the scaler does nothing unless dtype is float16
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach() * len(y)
    return total.item() / len(loader.dataset)


def save(path, state):
    """Write the file whole or not at all: under another name first, which then takes the place of the old file."""
    with files.atomic_write(path) as part:
        torch.save(state, part)


def load(path, args, parts):
    """Put the checkpoint at `path` into `parts` (name → object with load_state_dict); returns its epoch."""
    try:  # tensors come to the CPU, wherever they were saved; load_state_dict copies them to the model's device
        state = torch.load(path, map_location="cpu", weights_only=True)
        if (
            not isinstance(state, dict)
            or not {"epoch", "rng", "args", *parts} <= state.keys()
        ):
            raise ValueError("it is not a checkpoint of this script")
        # torch.save stores checksums, torch.load does not look at them
        if zipfile.ZipFile(path).testzip():
            raise ValueError("its bytes are damaged")
        if any(str(name).startswith("module.") for name in state["model"]):
            raise ValueError(
                "it is of a wrapped model: save model.module.state_dict(), whose names lack 'module.'"
            )
        for name in SAME_RUN:
            if state["args"].get(name) != getattr(args, name):
                raise ValueError(
                    f"its {name} is {state['args'].get(name)}, this run's is {getattr(args, name)}"
                )
        for name, part in parts.items():
            if name == "scaler" and not state[name]:
                continue  # saved by a bfloat16 run, which scales nothing
            part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"])
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(
            f"--resume: cannot go on from {path}, no whole checkpoint of this run ({reason})"
        ) from error
    return state["epoch"]


def main(args):
    device = check(args)
    dtype = half_precision(device) if args.amp else None
    torch.manual_seed(args.seed)
    train_data = TensorDataset(*shapes(args.images))
    train_loader = DataLoader(
        train_data, args.batch_size, shuffle=True, pin_memory=device.type == "cuda"
    )
    test_loader = DataLoader(TensorDataset(*shapes(2000, seed=1)), 500)
    model = SmallCNN(len(CLASSES)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
    first = load(args.checkpoint, args, parts) if args.resume else 0
    print(
        f"device {device}: {len(train_data)} images of shapes, {first} of {args.epochs} epochs done",
        flush=True,
    )
    for epoch in range(first + 1, args.epochs + 1):
        start = time.perf_counter()
        loss = train_epoch(model, train_loader, optimizer, scaler, device, dtype)
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch}: loss {loss:.3f}, test accuracy {evaluate(model, test_loader, device):.1%}"
        )
        print(
            f"  {seconds:.1f} s, {len(train_data) / seconds:.0f} images per second",
            flush=True,
        )
        if args.checkpoint:
            save(args.checkpoint, state_of(epoch, args, parts))


def half_precision(device):
    """bfloat16; float16 on older GPUs, which only imitate bfloat16."""
    if device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return torch.float16


def state_of(epoch, args, parts):
    """What `load` needs to go on after `epoch`, as a dict."""
    state = {name: part.state_dict() for name, part in parts.items()}
    rng = torch.get_rng_state()
    return {**state, "epoch": epoch, "rng": rng, "args": settings(args)}


def settings(args):
    """The arguments as plain values, which weights_only=True accepts."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(args).items()
    }


if __name__ == "__main__":
    parser = arguments()
    try:
        main(parser.parse_args())
    except (ValueError, TypeError, OSError, ImportError) as error:
        # prints how to use the script, then the message; exit status 2
        parser.error(str(error))
