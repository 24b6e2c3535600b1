# SPDX-License-Identifier: MIT
"""A small GPT of bytes: written for gpt.f90, and trained by PyTorch, whose curve gpt.f90's is."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bridge import Network

BYTES, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 256, 64, 64, 4, 2, 8


class Block(nn.Module):
    """Attention to what is before, and two linear layers, each behind a normalisation and beside a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.attention(self.norm1(x)).chunk(3, -1))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Bytes (n, LENGTH) to the logits (n, BYTES, LENGTH) of those that follow; the embedding is the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES, bias=False)
        self.out.weight = self.bytes.weight
        nn.init.normal_(self.bytes.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bytes(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.norm(self.blocks(x))).transpose(1, 2)


def batch(text: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Parts of the text that follow from the number of the step, and the bytes behind each of theirs."""
    begin = [(7919 * (step * BATCH + i) + 12345) % (len(text) - LENGTH - 1) for i in range(BATCH)]
    parts = np.stack([text[one:one + LENGTH + 1] for one in begin]).astype(np.int64)
    return parts[:, :-1], parts[:, 1:]


if len(sys.argv) < 2:
    sys.exit("usage: python gpt.py TEXT [STEPS]")
torch.manual_seed(0)
text = np.frombuffer(Path(sys.argv[1]).read_bytes(), np.uint8)
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
gpt = Gpt()
net = Network.from_torch(gpt, example=(BATCH, LENGTH), loss="cross_entropy")
net.save("gpt.h5")
optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-3)
for step in range(steps):
    x, target = map(torch.from_numpy, batch(text, step))
    loss = functional.cross_entropy(gpt(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == steps - 1:
        print(f"step {step:4d}  loss {loss.item():.6f}")
