"""Images to learn from without a download: ten classes of drawn shapes, such as rings, stars and hearts.

`shapes(3000)` gives images and labels, and another `seed` other images, to test on. They look simple, yet a linear model
names fewer than 60% of them right: there is something to learn.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

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
