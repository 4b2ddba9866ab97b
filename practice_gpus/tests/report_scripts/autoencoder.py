"""An autoencoder in a class that trains itself, with arguments."""

import argparse

import torch
from torch import nn


class Trainer:
    def __init__(self, args):
        self.device = torch.device(args.device)
        # @hard self.device = torch.device("cuda")
        self.model = nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 32)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.codes = []
        self.noise = torch.rand(16, 32)

    def step(self, x):
        x = x.to(self.device)
        # @left x = x + self.noise
        # @small x = x + torch.zeros(1).to(self.device)
        y = self.model(x)
        # @leak self.codes.append(y)
        loss = (y - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        # @wait if loss > 1e9:
        # @wait     print("too large")
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    trainer = Trainer(args)
    losses = [trainer.step(torch.rand(16, 32)) for _ in range(args.steps)]
    print(torch.stack(losses).tolist()[-1])


main()
