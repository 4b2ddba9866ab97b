"""Wrong answers to the exercises of lesson 08."""

import torch
from torch import nn

from exercises.lesson08 import profiles, quick_labels
from helpers.checks.core import Wrong


def _still_scaled(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), most)
    scaler.step(optimizer)
    scaler.update()


def _clipped_first(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), most)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


def _never_clipped(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _no_update(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), most)
    scaler.step(optimizer)


def _plain_optimizer(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), most)
    optimizer.step()
    scaler.update()


def _always_to_the_limit(loss, model, optimizer, scaler, most):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    for parameter in model.parameters():
        parameter.grad *= most / norm
    scaler.step(optimizer)
    scaler.update()


def _cut(model, images):
    return quick_labels(model, images[: len(images) // 64 * 64] if len(images) > 64 else images)


def _still_single(model, images):
    with torch.inference_mode():
        return [int(model(image[None]).argmax(1)) for image in images]


def _tensor(model, images):
    return model(images).argmax(1)


def _turned(model, images):
    with torch.inference_mode():
        return model(images.flip(0)).argmax(1).tolist()


WRONG = {
    "clip": (
        Wrong(_still_scaled, "still scaled"),
        Wrong(_clipped_first, "divided by the scale"),
        Wrong(_never_clipped, "Nothing was clipped"),
        Wrong(_no_update, "scaler.update()"),
        Wrong(_plain_optimizer, "leaves such a step out"),
        Wrong(_always_to_the_limit, "below the limit"),
    ),
    "profiles": (
        Wrong({**profiles.reference, "A": "mixed precision"}, "in the loader"),
        Wrong({**profiles.reference, "B": "mixed precision"}, "shorter than its launch"),
        Wrong({**profiles.reference, "C": "CUDA graph"}, "no gap at all"),
    ),
    "speedup": (
        Wrong(_cut, "shorter batch"),
        Wrong(_still_single, "is asked for"),
        Wrong(_tensor, "returned Tensor"),
        Wrong(_turned, "labels differ"),
    ),
}
