"""The jobs of lesson 01's explorer, forecast from shapes alone: ResNet-50 trained in 16 bits, and in use."""

import torch
from torch.nn import functional as F

from helpers.which_card import Job
from practice_gpus import practice_gpus

BATCH = 64


def jobs():
    """Return the jobs: a training step of ResNet-50 in 16 bits, and one image at a time."""
    from torchvision.models import resnet50

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
