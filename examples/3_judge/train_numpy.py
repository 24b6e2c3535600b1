"""A program of somebody else's: an MLP in numpy, trained by Adam. It reads fixture.h5 and writes result.h5.

python mlp.py
python -m reference.export fixture.h5 --model mlp:network --input x.npy --target y.npy --optimizer adam --steps 3
python train_numpy.py
python -m bridge.compare fixture.h5 result.h5
"""

import h5py
import numpy as np

with h5py.File("fixture.h5") as fixture, h5py.File("result.h5", "w") as result:
    result.attrs.update({"format": "cnn-exchange", "format_version": 2, "role": "candidate"})
    adam = fixture["optimizer"].attrs
    names = [f"{layer}/{kind}" for layer in ("0", "2") for kind in ("weight", "bias")]  # torch's, of nn.Sequential
    weights = {name: fixture[f"steps/0/weights/{name}"][()] for name in names}
    mean, square = ({name: np.zeros_like(weights[name]) for name in names} for _ in range(2))
    for step in range(len(fixture["batches"])):
        x, target = (fixture[f"batches/{step}/{name}"][()] for name in ("input", "target"))
        # Forward; a linear layer's weight is (outputs, inputs)
        hidden = x @ weights["0/weight"].T + weights["0/bias"]
        active = np.maximum(hidden, 0)
        y = active @ weights["2/weight"].T + weights["2/bias"]
        loss = np.mean((y - target) ** 2)
        # Backward
        d_y = 2 * (y - target) / np.float32(y.size)
        d_active = d_y @ weights["2/weight"]
        d_hidden = d_active * (hidden > 0)
        grads = {"0/weight": d_hidden.T @ x, "0/bias": d_hidden.sum(0),
                 "2/weight": d_y.T @ active, "2/bias": d_y.sum(0)}
        here = f"steps/{step}"
        for name, tensor in (("forward/0", hidden), ("forward/1", active), ("forward/2", y), ("loss", loss),
                             ("grads/2/output", d_y), ("grads/1/output", d_active), ("grads/0/output", d_hidden)):
            result[f"{here}/{name}"] = tensor
        # Adam, as torch has it
        beta1, beta2, t = np.float32(adam["beta1"]), np.float32(adam["beta2"]), step + 1
        for name in names:
            result[f"{here}/weights/{name}"], result[f"{here}/grads/{name}"] = weights[name], grads[name]
            mean[name] = beta1 * mean[name] + (1 - beta1) * grads[name]
            square[name] = beta2 * square[name] + (1 - beta2) * grads[name] ** 2
            step_size = np.float32(adam["lr"] / (1 - adam["beta1"] ** t))
            root = np.sqrt(square[name]) / np.float32(np.sqrt(1 - adam["beta2"] ** t)) + np.float32(adam["eps"])
            weights[name] = weights[name] - step_size * mean[name] / root
    for name in names:
        result[f"steps/{step + 1}/weights/{name}"] = weights[name]
