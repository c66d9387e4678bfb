"""Records attention_log.pickle: a forward hook keeps the attention weights of every fourth step for
a plot that nobody draws. The hook is line 19, the weights are made on line 38.

usage: python3 attention_log.py FILE
"""

import sys

import torch
from torch import nn

EVERY = 4
log = []


def keep(module, inputs, output):
    """Keeps the weights, on the device and with their graph."""
    if module.step % EVERY == 0:
        log.append(output)


class Weights(nn.Module):
    """The softmax of the scores, as a module of its own so that it can be hooked."""

    step = 0

    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)

    def forward(self, x):
        query, key = self.query(x), self.key(x)
        return self.weights(query, key)

    def weights(self, query, key):
        scores = query @ key.transpose(-2, -1)
        return scores.softmax(-1)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Weights(width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(torch.relu(self.attention(x) @ self.value(x)))


def main(file):
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    torch.manual_seed(0)
    net = Net(96).cuda()
    net.attention.register_forward_hook(keep)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(32):
        net.attention.step = step
        x = torch.randn(16, 48, 96, device="cuda")
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.memory._dump_snapshot(file)


if __name__ == "__main__":
    main(sys.argv[1])
