"""Train, save, load and go on; the best weights are kept in a file."""

import os
import tempfile

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")


def fit(model, optimizer, steps, notes):
    x = torch.rand(64, 12).to(device)
    y = x.sum(1, keepdim=True)
    for number in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        # @left loss = loss + (y - torch.ones(64, 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # @leak notes["curve"].append(model(x))
        # @wait print(number, loss.item())
        # @small target = torch.tensor([number, number + 1]).to(device)
    return loss


def make():
    model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1)).to(device)
    # @hard model = model.to("cuda:0")
    return model, torch.optim.Adam(model.parameters())


notes = {"curve": []}
model, optimizer = make()
fit(model, optimizer, 6, notes)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
model, optimizer = make()
state = torch.load(path, map_location="cpu", weights_only=True)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
print("after", fit(model, optimizer, 6, notes).item())
