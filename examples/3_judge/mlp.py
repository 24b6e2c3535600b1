"""What the numpy and the JAX program compute, in PyTorch; started as a program it writes a batch, x.npy and y.npy."""

import numpy as np
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.standard_normal((16, 12), dtype=np.float32))
    np.save("y.npy", rng.standard_normal((16, 3), dtype=np.float32))
