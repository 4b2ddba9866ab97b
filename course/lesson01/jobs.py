"""The jobs of lesson 01's explorer, forecast from shapes alone: ResNet-50 trained in 16 bits, and in use."""

import torch
from torch import nn
from torch.nn import functional as F

from course.lesson01.which_card import Job
from practice_gpus import practice_gpus

BATCH = 64
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width and number of blocks


def convolution(inputs, outputs, size=1, stride=1):
    """Return a convolution and its batch normalization."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """A block of ResNet-50: 1 x 1, 3 x 3 and 1 x 1 convolutions, whose output is added to the input."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.narrow = convolution(inputs, width)
        self.middle = convolution(width, width, 3, stride)
        self.widen = convolution(width, 4 * width)
        same = inputs == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, 4 * width, 1, stride)

    def forward(self, x):
        inner = F.relu(self.narrow(x), inplace=True)
        inner = F.relu(self.middle(inner), inplace=True)
        return F.relu(self.widen(inner) + self.shortcut(x), inplace=True)


def resnet50():
    """Return ResNet-50 for 1,000 classes: the layers of torchvision's, which doesn't import beside every build of torch."""
    layers = [convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for stage, (width, blocks) in enumerate(STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def jobs():
    """Return the jobs: a training step of ResNet-50 in 16 bits, and one image at a time."""
    with practice_gpus(1, memory="80 GiB", card="A100 80", values=False) as gpus:
        model = resnet50().cuda()
        half = gpus.forecast(training(model))
        model.eval()
        image = torch.empty(1, 3, 224, 224, device="cuda")
        with torch.no_grad():
            single = gpus.forecast(lambda: model(image))
    return [
        Job("train ResNet-50 in 16 bits", half, BATCH),
        Job("use ResNet-50, one image at a time", single, 1),
    ]


def training(model):
    """Return a function that trains `model` by one step on 224 x 224 photos, in 16 bits."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.empty(BATCH, 3, 224, 224, device="cuda")
    labels = torch.empty(BATCH, dtype=torch.int64, device="cuda")

    def step():
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
