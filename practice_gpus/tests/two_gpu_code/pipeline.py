"""A pipeline of two stages: while one GPU works on a piece of the batch, the other works on the piece before it."""

import torch
from torch import nn


class Stages(nn.Module):
    """Two stages on two GPUs, fed with pieces of the batch."""

    def __init__(self, pieces=4):
        super().__init__()
        self.pieces = pieces
        self.stage0 = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        ).cuda(0)
        self.stage1 = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        ).cuda(1)
        self.head = nn.Linear(16, 10).cuda(1)

    def finish(self, hidden):
        """Return the logits of one piece whose hidden values are on the second GPU."""
        return self.head(self.stage1(hidden).flatten(1))

    def forward(self, x):
        """Return logits of shape [n, 10] on the second GPU."""
        splits = iter(x.split(len(x) // self.pieces))
        hidden = self.stage0(next(splits)).to("cuda:1")
        results = []
        for piece in splits:
            results.append(self.finish(hidden))
            hidden = self.stage0(piece).to("cuda:1")
        results.append(self.finish(hidden))
        return torch.cat(results)


def whole(model, x):
    """Return the logits of the batch sent through both stages at once."""
    return model.finish(model.stage0(x).to("cuda:1"))


torch.manual_seed(0)
model = Stages().eval()
images = torch.randn(16, 3, 8, 8, device="cuda:0")
with torch.no_grad():
    same = torch.allclose(model(images), whole(model, images), atol=1e-5)
print("pieces give the same result:", same)

model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
targets = torch.randint(0, 10, (16,), device="cuda:1")
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
history = []
for _ in range(20):
    loss = nn.functional.cross_entropy(model(images), targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    history.append(loss.item())
end.record()
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
print("time measured:", start.elapsed_time(end) >= 0)
print("loss fell:", history[-1] < 0.5 * history[0])
print("stages on:", next(model.stage0.parameters()).device, next(model.stage1.parameters()).device)
print("batches seen by BatchNorm:", model.stage0[1].num_batches_tracked.item())
