"""A small CNN with a DataLoader and a test after each epoch, in functions."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        # @left x = x * torch.rand(8, 4, 4)
        return self.fc(x.flatten(1))


def train(model, loader, optimizer, device, seen):
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        # @wait seen["last"] = float(loss)
        # @leak seen["outputs"].append(out)
        # @small rate = torch.as_tensor([0.1, 0.2], device=device)
    return total.item() / len(loader.dataset)


@torch.no_grad()
def test(model, loader, device):
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=device)
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    return correct.item() / len(loader.dataset)


def main():
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    data = TensorDataset(torch.rand(128, 1, 16, 16), torch.randint(10, (128,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = Net().to(device)
    # @hard model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    seen = {"outputs": []}
    for epoch in range(2):
        print(epoch, train(model, loader, optimizer, device, seen), test(model, loader, device))


if __name__ == "__main__":
    main()
