"""Mixed precision with a gradient scaler and accumulated gradients."""

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
)
model.to(device)
# @hard model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler(device.type)
images = torch.rand(96, 3, 8, 8)
labels = torch.randint(4, (96,))
curve = []
kept = {}
for start in range(0, 96, 4):
    x = images[start : start + 4].to(device)
    y = labels[start : start + 4].to(device)
    with torch.autocast(device.type, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y) / 2
        # @left loss = loss + 0.1 * nn.functional.mse_loss(x, torch.zeros(4, 3, 8, 8))
    scaler.scale(loss).backward()
    curve.append(loss.detach())
    # @small noise = torch.tensor([0.1, 0.2]).to(device)
    # @wait values = loss.detach().cpu().numpy()
    if start % 8 == 4:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        # @leak kept[start] = model(x)
print(torch.stack(curve).mean().item())
