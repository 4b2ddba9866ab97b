"""Train with DataParallel on every GPU, save the plain model, and load it on the CPU."""

import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    """Random points, labeled by the sign of their sum."""

    def __init__(self, count, size):
        generator = torch.Generator().manual_seed(0)
        self.points = torch.randn(count, size, generator=generator)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], (self.points[index].sum() > 0).long()


class Net(nn.Module):
    """A small classifier that says what it was given."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2)
        )

    def forward(self, x):
        """Return logits of shape [n, 2]."""
        if not self.training:
            print(f"    inside: input {tuple(x.shape)} on {x.device}")
        return self.layers(x)


torch.manual_seed(1)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Points(200, 8), batch_size=40, shuffle=True, pin_memory=True)

model = Net()
if torch.cuda.device_count() > 1:
    print("using", torch.cuda.device_count(), "GPUs")
    model = nn.DataParallel(model)
model.to(device)

optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loss_fn = nn.CrossEntropyLoss().to(device)
first = None
for _ in range(4):
    total = 0.0
    for points, labels in loader:
        points, labels = points.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = loss_fn(model(points), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    first = first or total
print("last epoch better than first:", total < first)

model.eval()
with torch.no_grad():
    out = model(torch.randn(7, 8))
print("output", tuple(out.shape), "on", out.device)
print("first key:", next(iter(model.state_dict())))

path = os.path.join(tempfile.mkdtemp(), "net.pt")
torch.save(model.module.state_dict(), path)
plain = Net()
plain.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
print(
    "loaded on",
    next(plain.parameters()).device,
    "same weights:",
    torch.equal(plain.layers[0].weight, model.module.layers[0].weight.cpu()),
)
os.remove(path)
