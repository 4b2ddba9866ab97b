"""The jobs of lesson 01's explorer, forecast from shapes alone: an image network trained, one image, a chatbot's next word."""

import torch
from torch import nn
from torch.nn import functional as F

from helpers.which_card import Job
from practice_gpus import practice_gpus

BATCH = 64
WIDTH, INNER, LAYERS, HEADS, WORDS = 4096, 11008, 32, 32, 2048  # Llama-2-7B, 2,048 words so far


def jobs():
    """Return the jobs: ResNet-50 trained in float32 and in 16 bits, one image at a time, and a word of a 7B chatbot."""
    with practice_gpus(1, memory="80 GiB", card="A100 80", values=False) as gpus:
        train = training()
        float32, half = (gpus.forecast(lambda on=on: train(half=on)) for on in (False, True))
    with practice_gpus(1, memory="80 GiB", card="A100 80", values=False) as gpus, torch.no_grad():
        image = gpus.forecast(one_image())
    with practice_gpus(1, memory="80 GiB", card="A100 80", values=False) as gpus, torch.no_grad():
        word = gpus.forecast(next_word())
    trained = f"train ResNet-50, {BATCH} images a step"
    return [
        Job(f"{trained}, float32", float32, BATCH, "images"),
        Job(f"{trained}, 16 bits", half, BATCH, "images"),
        Job("ResNet-50 in use, one image at a time", image, 1, "images"),
        Job("a chatbot of 7 billion weights, 16 bits", word, 1, "words"),
    ]


class Bottleneck(nn.Module):
    """A block of ResNet-50: three convolutions, and a path around them."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            *convolution(channels, width, 1),
            nn.ReLU(True),
            *convolution(width, width, 3, stride),
            nn.ReLU(True),
            *convolution(width, 4 * width, 1),
        )
        same = channels == 4 * width and stride == 1
        self.around = (
            nn.Identity() if same else nn.Sequential(*convolution(channels, 4 * width, 1, stride))
        )

    def forward(self, x):
        """Return the block's output for `x`."""
        return torch.relu_(self.body(x) + self.around(x))


def convolution(channels, out, size, stride=1):
    """Return a convolution without bias, and its batch normalization."""
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


def resnet50():
    """Return ResNet-50 (He et al., 2015), 25.6 million weights."""
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def training():
    """Return a function that trains ResNet-50 by one step on 224 x 224 photos, in 16 bits where `half` is true."""
    model = resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.empty(BATCH, 3, 224, 224, device="cuda")
    labels = torch.empty(BATCH, dtype=torch.int64, device="cuda")

    def step(half):
        with torch.autocast("cuda", torch.float16, half):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def one_image():
    """Return ResNet-50's answer to one image."""
    model = resnet50().cuda().eval()
    image = torch.empty(1, 3, 224, 224, device="cuda")
    return lambda: model(image)


def next_word():
    """Return the next word of a model of Llama-2-7B's shape, in bfloat16."""
    like = {"device": "cuda", "dtype": torch.bfloat16}
    square = [nn.Linear(WIDTH, WIDTH, bias=False, **like) for _ in range(4 * LAYERS)]
    wide = [nn.Linear(WIDTH, INNER, bias=False, **like) for _ in range(2 * LAYERS)]
    narrow = [nn.Linear(INNER, WIDTH, bias=False, **like) for _ in range(LAYERS)]
    cache = [torch.empty(2, 1, HEADS, WORDS, WIDTH // HEADS, **like) for _ in range(LAYERS)]
    norm, head = nn.RMSNorm(WIDTH, **like), nn.Linear(WIDTH, 32_000, bias=False, **like)
    word = torch.empty(1, 1, WIDTH, **like)

    def step():
        x = word
        for layer in range(LAYERS):
            query, key, value, out = square[4 * layer : 4 * layer + 4]
            y = norm(x)
            q, _, _ = (each(y).view(1, HEADS, 1, -1) for each in (query, key, value))
            y = F.scaled_dot_product_attention(q, *cache[layer])
            x = x + out(y.view(1, 1, WIDTH))
            y = norm(x)
            gate, up = wide[2 * layer : 2 * layer + 2]
            x = x + narrow[layer](F.silu(gate(y)) * up(y))
        return head(norm(x))

    return step
