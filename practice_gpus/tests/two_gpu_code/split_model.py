"""Train a network whose first half lives on one GPU and whose second half lives on another."""

import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(0)


class SplitNet(nn.Module):
    """Two linear layers on two devices; the activation crosses between them."""

    def __init__(self, device0, device1):
        super().__init__()
        self.device0, self.device1 = device0, device1
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU()).to(device0)
        self.head = nn.Sequential(nn.Dropout(0.0), nn.Linear(32, 5)).to(device1)

    def forward(self, x):
        """Return logits of shape [n, 5] on the second device."""
        hidden = self.encoder(x.to(self.device0))
        return self.head(hidden.to(self.device1))


model = SplitNet("cuda:0", "cuda:1")
for name, parameter in model.named_parameters():
    print(f"{name:18} {tuple(parameter.shape)!s:9} {parameter.device}")

loss_fn = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

inputs = torch.randn(64, 10)
labels = inputs[:, :5].argmax(dim=1)

losses = []
for _ in range(30):
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = loss_fn(outputs, labels.to(outputs.device))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

print("loss on", loss.device, "fell:", losses[-1] < losses[0] / 3)
print("gradients on", model.encoder[0].weight.grad.device, "and", model.head[1].weight.grad.device)
momentum = [optimizer.state[p]["momentum_buffer"].device for p in model.parameters()]
print("momentum on", *momentum)
accuracy = (model(inputs).argmax(1).cpu() == labels).float().mean().item()
print("learned:", accuracy > 0.9)

try:
    loss_fn(model(inputs), labels.to("cuda:0"))
except RuntimeError as error:
    print("labels on the wrong GPU:", str(error).split(",")[0])
