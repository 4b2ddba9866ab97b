"""One network on two GPUs, half on each, or all of it on the CPU."""

import torch
from torch import nn

if torch.cuda.device_count() >= 2:
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
else:
    first = second = torch.device("cpu")


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(24, 48).to(first)
        # @hard self.front = self.front.cuda()
        self.back = nn.Linear(48, 3).to(second)

    def forward(self, x):
        h = torch.tanh(self.front(x.to(first)))
        # @left h = self.back(h)
        return self.back(h.to(second))


model = Halves()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
outputs = []
for _ in range(8):
    x = torch.rand(40, 24)
    y = torch.randint(3, (40,)).to(second)
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # @wait top = out[out > 0].sum()
    # @leak outputs.append(out)
    # @small shift = torch.tensor([1.0]).to(second)
print(loss.item())
