"""A perceptron on made-up numbers, all at the top level."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# @hard device = torch.device("cuda:0")
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs = torch.randn(320, 20)
targets = torch.randint(5, (320,))
total = torch.zeros((), device=device)
history = []
for start in range(0, 320, 32):
    x = inputs[start : start + 32].to(device)
    y = targets[start : start + 32].to(device)
    # @small x = x * torch.tensor(0.5, device=device)
    out = model(x)
    # @left out = out + torch.ones(5)
    loss = F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    # @wait print("loss", loss.item())
    # @leak history.append(loss)
print("mean", total.item() / 10)
