"""A transformer's encoder that learns whether a row holds more ones than zeros."""

import torch
from torch import nn


def batches(count):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        x = torch.randint(2, (16, 9), generator=generator)
        yield x, (x.sum(1) > 4).long()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2, 16)
        self.position = nn.Parameter(torch.zeros(9, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        h = self.embed(x) + self.position
        # @left h = h + torch.arange(16.0)
        return self.head(self.encoder(h).mean(1))


def run():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # @hard device = torch.device("cuda:0")
    model = Counter().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    logs = {}
    right = torch.zeros((), device=device)
    for number, (x, y) in enumerate(batches(9)):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right += (out.argmax(1) == y).float().mean()
        # @wait rows = (out.argmax(1) == y).nonzero()
        # @leak logs[number] = out
        # @small bonus = torch.tensor(number).to(device)
    print((right / 9).item())


if __name__ == "__main__":
    run()
