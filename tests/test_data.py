"""helpers.data: drawn shapes, and real data sets that are whole or not there at all."""

import gzip
import hashlib
import io
import pickle
import socket
import struct
import sys
import tarfile
import urllib.error

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers import data
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu

# --- Shapes


def test_shapes_are_images_with_labels():
    images, labels = data.shapes(1007)  # more than a chunk, and not a round number
    assert images.shape == (1007, 3, 32, 32) and images.dtype == torch.float32
    assert labels.shape == (1007,) and labels.dtype == torch.int64
    assert 0 <= images.min() < 0.01 and 0.99 < images.max() <= 1
    counts = torch.bincount(labels, minlength=10)
    assert len(data.CLASSES) == 10 == len(counts)
    assert counts.min() >= 100 and counts.max() <= 101
    assert labels[:50].unique().numel() > 5  # not sorted


def test_the_seed_decides_and_the_global_random_numbers_do_not():
    torch.manual_seed(1)
    first, labels = data.shapes(30, seed=5)
    state = torch.get_rng_state()
    torch.rand(3)
    again, same = data.shapes(30, seed=5)
    other, _ = data.shapes(30, seed=6)
    assert torch.equal(first, again) and torch.equal(labels, same)
    assert not torch.allclose(first, other, atol=0.1)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_a_linear_model_stays_under_60_percent():
    x, y = data.shapes(3000)
    held_out, labels = data.shapes(1000, seed=1)
    model = torch.nn.Linear(3 * 32 * 32, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for part in torch.arange(3000).repeat(3).split(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x[part].flatten(1)), y[part]).backward()
        optimizer.step()
    accuracy = (model(held_out.flatten(1)).argmax(1) == labels).float().mean()
    assert 0.1 < accuracy < 0.6


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n": 0}, ValueError, "n: .*at least 1; got 0"),
        ({"n": 2.5}, TypeError, "n: .*whole number; got 2.5"),
        ({"n": 5, "seed": -1}, ValueError, "seed: .*at least 0; got -1"),
        ({"n": 5, "device": "cuda:99"}, ValueError, "device: 'cuda:99'"),
    ],
)
def test_shapes_refuses_what_does_not_fit(arguments, error, words):
    with pytest.raises(error, match=words):
        data.shapes(**arguments)


def test_practice_gpus_and_gpus_draw_the_same_images():
    expected, expected_labels = data.shapes(25, seed=3)
    with practice_gpus():
        images, labels = data.shapes(25, seed=3, device="cuda:0")
        assert images.device == labels.device == torch.device("cuda:0")
        images, labels = images.cpu(), labels.cpu()
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-4)
    assert torch.equal(labels, expected_labels)


# --- Data sets by name


def test_load_gives_shapes_for_training_and_others_for_testing():
    train, test = data.load("shapes", n=100), data.load("shapes", train=False, n=100)
    assert len(train) == len(test) == 100
    assert train.classes == data.CLASSES
    image, label = train[3]
    assert image.shape == (3, 32, 32) and label.dtype == torch.int64
    assert not torch.equal(train.tensors[0], test.tensors[0])
    assert torch.equal(train.tensors[0], data.shapes(100, seed=0)[0])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": "mnist"}, ValueError, "'shapes', 'fashion-mnist', 'cifar-10'; got 'mnist'"),
        ({"name": "cifar-10", "root": 7}, TypeError, "root: .*folder; got 7"),
        ({"name": "cifar-10", "root": __file__}, ValueError, "root: .*is a file"),
    ],
)
def test_load_refuses_what_does_not_fit(arguments, error, words):
    with pytest.raises(error, match=words):
        data.load(**arguments)


def test_load_says_that_torchvision_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match="'cifar-10' needs torchvision: pip install"):
        data.load("cifar-10", root=tmp_path)


class Host:
    """Stands for the network: answers requests from `files` (end of the address → bytes), or fails."""

    def __init__(self):
        self.files, self.asked, self.timeouts = {}, [], set()

    def open(self, request, *args, **kwargs):
        self.asked.append(request.full_url)
        self.timeouts.add(socket.getdefaulttimeout())
        for end, content in self.files.items():
            if request.full_url.endswith(end):
                answer = io.BytesIO(content)
                answer.url, answer.length = request.full_url, len(content)
                return answer
        raise urllib.error.URLError("Name or service not known")


@pytest.fixture
def host(monkeypatch):
    """A network that has small sets of the real formats, with torchvision's checksums set to theirs."""
    datasets = pytest.importorskip("torchvision.datasets")
    host = Host()
    monkeypatch.setattr("urllib.request.urlopen", host.open)
    sums = _put_fashion(host.files)
    monkeypatch.setattr(datasets.FashionMNIST, "resources", sums)
    archive, lists, meta = _cifar_archive()
    host.files["cifar-10-python.tar.gz"] = archive
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", hashlib.md5(archive).hexdigest())
    monkeypatch.setattr(datasets.CIFAR10, "train_list", lists[:1])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", lists[1:])
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return host


def _put_fashion(files):
    """Four gzipped IDX files, 6 training and 4 test images whose pixels count up; returns names with checksums."""
    for part, n in (("train", 6), ("t10k", 4)):
        pixels = (np.arange(n * 784) % 256).astype(np.uint8).tobytes()
        images = struct.pack(">4i", 0x803, n, 28, 28) + pixels
        labels = struct.pack(">2i", 0x801, n) + bytes(range(n))
        files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(images, mtime=0)
        files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(labels, mtime=0)
    return [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]


def _cifar_archive():
    """The archive with a training batch of 5 images and a test batch of 3; also torchvision's lists of checksums."""
    contents = {"batches.meta": {"label_names": [f"class {i}" for i in range(10)]}}
    for name, n in (("data_batch_1", 5), ("test_batch", 3)):
        pixels = (np.arange(n * 3072).reshape(n, 3072) % 251).astype(np.uint8)
        contents[name] = {"data": pixels, "labels": list(range(n))}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, value in contents.items():
            contents[name] = pickle.dumps(value)
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(contents[name])
            archive.addfile(entry, io.BytesIO(contents[name]))
    sums = {name: hashlib.md5(value).hexdigest() for name, value in contents.items()}
    meta = {"filename": "batches.meta", "key": "label_names", "md5": sums.pop("batches.meta")}
    return buffer.getvalue(), [list(item) for item in sums.items()], meta


def test_fashion_mnist_is_fetched_once_and_read_afterwards(host, tmp_path):
    train = data.load("fashion-mnist", root=tmp_path / "new", download=True)
    asked = len(host.asked)
    host.files.clear()
    test = data.load("fashion-mnist", train=False, root=tmp_path / "new", download=True)
    assert len(host.asked) == asked > 0
    assert len(train) == 6 and len(test) == 4
    images, labels = train.tensors
    assert images.shape == (6, 1, 32, 32) and images.dtype == torch.float32
    assert labels.tolist() == [0, 1, 2, 3, 4, 5] and labels.dtype == torch.int64
    assert images[0, 0, 2, 2:12].tolist() == pytest.approx([i / 255 for i in range(10)])
    assert images[:, :, [0, 1, 30, 31]].abs().max() == 0 == images[..., [0, 1, 30, 31]].abs().max()
    assert train.classes[9] == "Ankle boot"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["FashionMNIST"]
    assert host.timeouts == {30} and socket.getdefaulttimeout() is None


def test_cifar_10_is_fetched_and_read(host, tmp_path):
    train = data.load("cifar-10", root=str(tmp_path), n=2, download=True)
    images, labels = train.tensors
    assert images.shape == (2, 3, 32, 32) and labels.tolist() == [0, 1]
    # channel, row, column, as the format says
    flat = torch.arange(2 * 3072).reshape(2, 3, 32, 32) % 251
    torch.testing.assert_close(images, flat / 255)
    assert train.classes[3] == "class 3"
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]
    # no part of the data set
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"left by torchvision")
    with pytest.raises(ValueError, match="n: cifar-10 has 3 images in this part; got 4"):
        data.load("cifar-10", train=False, n=4, root=tmp_path)


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10"])
def test_nothing_is_fetched_unasked(host, tmp_path, name):
    with pytest.raises(FileNotFoundError, match=rf"root: {name} is missing.*download=True"):
        data.load(name, root=tmp_path / "none")
    assert not host.asked and not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["cut short", "away"])
@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10"])
def test_a_failed_download_leaves_nothing_and_says_what_to_do(host, tmp_path, name, how):
    for file, content in list(host.files.items()):
        host.files[file] = content[: len(content) // 2]
    if how == "away":
        host.files.clear()
    words = rf"download: {name} could not be fetched .*check the network"
    with pytest.raises(OSError, match=words):
        data.load(name, root=tmp_path, download=True)
    assert host.asked and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("fashion-mnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("cifar-10", "cifar-10-batches-py/data_batch_1"),
    ],
)
def test_a_broken_file_is_noticed_and_a_download_repairs_it(host, tmp_path, name, file):
    whole = data.load(name, root=tmp_path, download=True).tensors[0]
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(FileNotFoundError, match="root: .* missing or broken"):
        data.load(name, root=tmp_path)
    files, host.files = host.files, {}
    with pytest.raises(OSError, match="download: "):
        data.load(name, root=tmp_path, download=True)
    host.files = files
    assert torch.equal(data.load(name, root=tmp_path, download=True).tensors[0], whole)
    assert len(list(tmp_path.iterdir())) == 1
