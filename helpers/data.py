"""Images to learn from: ten classes of drawn shapes, made here without a download, and two real data sets by name.

`shapes` draws, `load` gives a `TensorDataset`. Lesson 04 looks at the images and learns from them.
"""

import math
import os
import socket
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

CLASSES = (
    "circle",
    "ring",
    "crescent",
    "square",
    "frame",
    "bar",
    "triangle",
    "star",
    "cross",
    "heart",
)
SIDE = 32  # pixels, both ways
_CHUNK = 1000  # images drawn at once: their noise is 12 MB
# name → (class of torchvision.datasets, folder it keeps under root, size of the download)
_SETS = {
    "fashion-mnist": ("FashionMNIST", "FashionMNIST", "30 MB"),
    "cifar-10": ("CIFAR10", "cifar-10-batches-py", "170 MB"),
}


# --- Shapes: signed distance to the edge (negative inside) at u, v; lengths in units of the shape's radius


def _length(u: Tensor, v: Tensor) -> Tensor:
    return torch.sqrt(u * u + v * v)


def _box(u: Tensor, v: Tensor, half_width: float, half_height: float) -> Tensor:
    return torch.maximum(u.abs() - half_width, v.abs() - half_height)


def _triangle(u: Tensor, v: Tensor) -> Tensor:
    sides = [u * math.cos(a) + v * math.sin(a) for a in (math.pi / 3, math.pi, 5 * math.pi / 3)]
    return torch.stack(sides).amax(0) - 0.55


def _star(u: Tensor, v: Tensor) -> Tensor:
    """Five points: fold the plane into half a point, then take the distance to the line from its notch to its tip."""
    sector = 2 * math.pi / 5
    angle = (torch.remainder(torch.atan2(v, u), sector) - sector / 2).abs()
    along = _length(u, v) * torch.cos(angle)
    across = _length(u, v) * torch.sin(angle)
    notch = 0.5
    tip_along = 1.1 * math.cos(sector / 2)
    tip_across = 1.1 * math.sin(sector / 2)
    edge = math.hypot(tip_along - notch, tip_across)
    return ((along - notch) * tip_across - across * (tip_along - notch)) / edge


def _heart(u: Tensor, v: Tensor) -> Tensor:
    corner = (u.abs() + (v - 0.1).abs() - 0.85) / math.sqrt(2)
    lobes = _length(u.abs() - 0.42, v - 0.52) - 0.6
    return torch.minimum(corner, lobes)


_DISTANCES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (  # in the order of CLASSES
    lambda u, v: _length(u, v) - 0.9,
    lambda u, v: (_length(u, v) - 0.75).abs() - 0.2,
    lambda u, v: torch.maximum(_length(u, v) - 1, 0.8 - _length(u - 0.5, v)),
    lambda u, v: _box(u, v, 0.8, 0.8),
    lambda u, v: _box(u, v, 0.68, 0.68).abs() - 0.18,
    lambda u, v: _box(u, v, 1.1, 0.33),
    _triangle,
    _star,
    lambda u, v: torch.minimum(_box(u, v, 1.0, 0.28), _box(u, v, 0.28, 1.0)),
    _heart,
)


def shapes(n: int, seed: int = 0, device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
    """Draw `n` pictures of shapes: (images float32 [n, 3, 32, 32] in 0..1, labels int64 [n]), both on `device`.

    The classes (`CLASSES`) come equally often, in random order. Each shape has its own light color on its own dark
    background, its place (up to a quarter of the picture from the middle, in x and y), size, turn and noise.
    The same `n` and `seed` give the same images: every random number is drawn on the CPU, so another device changes
    them only by rounding (about 1e-5), and so may another CPU. Another release of PyTorch may draw other numbers:
    https://docs.pytorch.org/docs/stable/notes/randomness.html
    Raises TypeError or ValueError for an `n` below 1, a negative `seed` or a device that is not there.
    """
    _check_whole("n", n, 1)
    _check_whole("seed", seed, 0)
    _check_device(device)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    labels = torch.randperm(n, generator=generator, device="cpu") % len(CLASSES)
    images = torch.empty(n, 3, SIDE, SIDE, device=device)
    for start in range(0, n, _CHUNK):
        part = labels[start : start + _CHUNK]
        images[start : start + len(part)] = _draw(part, generator, device)
    return images, labels.to(device)


def _draw(labels: Tensor, generator: torch.Generator, device: str | torch.device) -> Tensor:
    """Images [n, 3, 32, 32] of the shapes that the CPU tensor `labels` [n] asks for."""

    def random(*rest: int) -> Tensor:
        return torch.rand(len(labels), *rest, generator=generator, device="cpu").to(device)

    place = (random(2, 1, 1) - 0.5) * (SIDE / 2)
    radius = SIDE * (0.24 + 0.1 * random(1, 1))
    turn = random(1, 1) * (2 * math.pi)
    dark = 0.4 * random(3, 1, 1)
    light = 0.65 + 0.35 * random(3, 1, 1)
    noise = 0.2 * (random(3, SIDE, SIDE) - 0.5)
    cover = _cover(labels, place, radius, turn).unsqueeze(1)
    return (dark + (light - dark) * cover + noise).clamp_(0, 1)


def _cover(labels: Tensor, place: Tensor, radius: Tensor, turn: Tensor) -> Tensor:
    """How much of each pixel the shape covers, 0 to 1, [n, 32, 32]: from its distance in pixels to the edge."""
    pixel = torch.arange(SIDE, device=radius.device) - (SIDE - 1) / 2
    x = (pixel - place[:, 0]) / radius
    y = (pixel.unsqueeze(1) - place[:, 1]) / radius
    u = x * turn.cos() + y * turn.sin()
    v = y * turn.cos() - x * turn.sin()
    distance = torch.empty_like(u)
    for number, signed_distance in enumerate(_DISTANCES):
        which = (labels == number).nonzero().flatten().to(u.device)
        distance[which] = signed_distance(u[which], v[which])
    return (0.5 - distance * radius).clamp_(0, 1)


# --- Data sets by name


def load(
    name: str,
    train: bool = True,
    n: int | None = None,
    root: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> TensorDataset:
    """The data set `name` as a `TensorDataset` of images (float32, 0..1, 32×32) and labels (int64), on the CPU.

    "shapes" is drawn here: 8,000 images to train on (seed 0) or 2,000 others to test on (seed 1), or `n`.
    "fashion-mnist" (1 channel, padded from 28×28 with black) and "cifar-10" (3 channels) come through torchvision:
    the first `n` images of its training or test part, read from the folder `root` (default ~/.cache/gpus-in-pytorch).
    Nothing is fetched unless `download=True`; then torchvision's checksums are tested and a failure leaves nothing.
    The result's `classes` are the names of the labels.
    Raises ValueError or TypeError for an argument that does not fit, FileNotFoundError when the files are missing or
    broken, OSError when they cannot be fetched, ImportError without torchvision.
    """
    names = ("shapes", *_SETS)
    if name not in names:
        raise ValueError(f"name: takes one of {', '.join(map(repr, names))}; got {name!r}")
    if n is not None:
        _check_whole("n", n, 1)
    if name == "shapes":
        images, labels = shapes(n or (8000 if train else 2000), seed=0 if train else 1)
        return _dataset(images, labels, CLASSES)
    source = _open(name, train, _check_root(root), download)
    if n is not None and n > len(source):
        raise ValueError(f"n: {name} has {len(source):,} images in this part; got {n:,}")
    labels = torch.as_tensor(source.targets[:n], dtype=torch.int64)
    return _dataset(_as_images(source.data[:n]), labels, source.classes)


def _dataset(images: Tensor, labels: Tensor, classes: Iterable[str]) -> TensorDataset:
    dataset = TensorDataset(images, labels)
    dataset.classes = tuple(classes)  # type: ignore[attr-defined]
    return dataset


def _as_images(data: Any) -> Tensor:
    """Bytes [n, 28, 28] or [n, 32, 32, 3] as floats [n, channels, 32, 32] in 0..1."""
    images = torch.as_tensor(data)
    images = images.unsqueeze(1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    border = (SIDE - images.shape[-1]) // 2
    return torch.nn.functional.pad(images, [border] * 4).contiguous().float().div_(255)


def _open(name: str, train: bool, root: Path, download: bool) -> Any:
    """torchvision's data set from the files under `root`, fetched first where they are missing and `download` is on."""
    try:
        import torchvision
    except ImportError as error:
        raise ImportError(f"name: {name!r} needs torchvision: pip install torchvision") from error
    kind, folder, size = _SETS[name]
    make = getattr(torchvision.datasets, kind)
    try:
        return make(root, train=train)
    except Exception as error:  # torchvision's own differ: RuntimeError, AssertionError, …
        if not download:
            words = (
                f"load({name!r}, download=True) fetches {size}, or copy the folder {folder} there"
            )
            missing = f"root: {name} is missing or broken in {root} ({_line(error)})"
            raise FileNotFoundError(f"{missing}; {words}") from error
    try:
        _fetch(make, folder, root)
    except Exception as error:
        failed = f"download: {name} could not be fetched into {root} ({_line(error)})"
        words = "check the network and the free space, or copy the folder"
        raise OSError(f"{failed}; {words} {folder} there from another machine") from error
    return make(root, train=train)


def _fetch(make: Callable[..., Any], folder: str, root: Path) -> None:
    """Download into a folder beside, where torchvision tests its checksums, and move it into place."""
    root.mkdir(parents=True, exist_ok=True)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # seconds without an answer; torchvision sets none
    try:
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
            make(temporary, download=True)
            if (
                root / folder
            ).exists():  # broken, or put there by another process: this one is whole
                os.replace(root / folder, Path(temporary) / "before")
            os.replace(Path(temporary) / folder, root / folder)
    finally:
        socket.setdefaulttimeout(before)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


# --- Arguments


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: takes a whole number; got {value!r} ({type(value).__name__})")
    if not least <= value < 2**63:
        raise ValueError(f"{name}: takes a whole number of at least {least}; got {value}")


def _check_device(device: object) -> None:
    try:
        torch.empty(0, device=device)  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError) as error:
        words = f"{device!r} is not usable here; 'cpu' always is ({error})"
        raise ValueError(f"device: {words}") from error


def _check_root(root: object) -> Path:
    if root is None:
        try:
            root = Path.home() / ".cache" / "gpus-in-pytorch"
        except RuntimeError as error:
            words = "this user has no home folder; give root, the path of a folder"
            raise ValueError(f"root: {words}") from error
    if not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"root: takes the path of a folder; got {root!r} ({type(root).__name__})")
    if Path(root).exists() and not Path(root).is_dir():
        raise ValueError(f"root: takes the path of a folder; {root} is a file")
    return Path(root)
