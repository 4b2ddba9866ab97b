"""Guess the next letter with an LSTM."""

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog " * 8
LETTERS = sorted(set(TEXT))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Model(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, len(LETTERS))

    def forward(self, x, state=None):
        out, state = self.lstm(self.embedding(x), state)
        return self.head(out), state


def main():
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    model = Model().to(device)
    # @hard model = Model().to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state = None
    states = []
    for start in range(0, 320, 32):
        x = numbers[start : start + 32].view(4, 8).to(device)
        y = numbers[start + 1 : start + 33].view(4, 8).to(device)
        # @left h = torch.zeros(1, 4, 32)
        # @left state = model(x, (h, h))[1]
        out, state = model(x, state)
        state = tuple(each.detach() for each in state)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())
        # @leak states.append(out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # @wait best = out[0, 0].argmax().cpu()
        # @small eye = torch.tensor([1, 2], device=device)
    print(LETTERS[out[0, -1].argmax().item()])


main()
