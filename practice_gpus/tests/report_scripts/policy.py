"""A policy that learns in a made-up world: small tensors, many steps."""

import torch
from torch import nn
from torch.distributions import Bernoulli


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, state):
        return Bernoulli(
            logits=self.head(torch.relu(self.body(state))).squeeze(1), validate_args=False
        )


def episode(policy, device, steps=6):
    state = torch.zeros(8, 4, device=device)
    chances, rewards = [], []
    for _ in range(steps):
        choice = policy(state)
        action = choice.sample()
        chances.append(choice.log_prob(action))
        state = state + torch.randn(8, 4, device=device) * 0.1
        # @left state = state + torch.randn(8, 4)
        rewards.append((action == 1).float())
    return torch.stack(chances), torch.stack(rewards)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    policy = Policy().to(device)
    # @hard policy = Policy().to(device="cuda:0")
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    returns = torch.zeros((), device=device)
    memory = []
    for _ in range(10):
        chances, rewards = episode(policy, device)
        loss = -(chances * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns += rewards.mean()
        # @wait gain = rewards.mean().tolist()
        # @leak memory.append(chances)
        # @small discount = torch.tensor(0.99).to(device)
    print(returns.item() / 10)


main()
