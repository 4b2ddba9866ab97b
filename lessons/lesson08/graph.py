"""The best loop of lesson 08 as a CUDA graph: one launch replays a whole step of training."""

import math
import warnings

import torch

from helpers.training import train_step

RATE = 1e-3  # Adam's learning rate for batches of 32; it grows with the root of the batch: arxiv.org/abs/2205.10287


def graphed(rows, half, device):
    """make_step for `Climb`: a step as a CUDA graph, with the changes that `rows` kept; `half`: the 16-bit format."""
    best = [row for row in rows if row["kept"]]
    kept = [row["name"] for row in best]
    dtype = half if "mixed precision" in kept else None
    rate = torch.tensor(RATE * math.sqrt(best[-1]["batch"] / 32), device=device)

    def make_step(model):
        if "channels_last" in kept:
            model.to(memory_format=torch.channels_last)
        forward = torch.compile(model) if "torch.compile" in kept else model
        adam = torch.optim.Adam(model.parameters(), rate, capturable=True)
        scaler = torch.amp.GradScaler(device.type) if dtype == torch.float16 else None

        def step(x, y):
            return train_step(forward, x, y, adam, dtype, scaler)

        return step if scaler else Graph(step, adam)  # a scaler reads a value in every step

    return make_step


class Graph:
    """A step captured at its first call and replayed from then on, for batches of one shape.

    Follows https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture: warm-up on another stream, then
    the capture.
    """

    def __init__(self, step, optimizer):
        self.step = step
        self.optimizer = optimizer
        self.graph = None

    def __call__(self, x, y):
        if self.graph is None:
            self._capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss

    def _capture(self, x, y):
        self.x = x.clone()
        self.y = y.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), warnings.catch_warnings():
            # these steps are meant to run outside the graph
            warnings.filterwarnings("ignore", ".*capturable=True")
            for _ in range(3):
                self.step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step(self.x, self.y)
