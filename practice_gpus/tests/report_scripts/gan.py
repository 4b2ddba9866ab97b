"""Two networks that play against each other, with an optimizer each."""

import torch
from torch import nn

dev = "cuda" if torch.cuda.is_available() else "cpu"
# @hard dev = torch.device("cuda:0")
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(dev)
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(dev)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)
criterion = nn.BCEWithLogitsLoss()
ones = torch.ones(32, 1, device=dev)
zeros = torch.zeros(32, 1, device=dev)
fakes = []
for step in range(10):
    real = torch.randn(32, 2).to(dev) + 3
    # @left real = real + torch.randn(32, 2)
    z = torch.randn(32, 4, device=dev)
    fake = G(z)
    opt_d.zero_grad()
    loss_d = criterion(D(real), ones) + criterion(D(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = criterion(D(fake), ones)
    loss_g.backward()
    opt_g.step()
    # @leak fakes += [fake]
    # @wait print(f"{loss_g.item():.3f}")
    # @small weight = torch.tensor([float(step)]).to(dev)
print("done", loss_g.item())
