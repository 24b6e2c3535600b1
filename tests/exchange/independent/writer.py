"""A program that knows numpy, channels last, and nothing of ours: the forward pass of a step, and one gradient."""

import sys

import h5py
import numpy as np

try:
    if "--no-scipy" in sys.argv:
        raise ImportError
    from scipy.signal import correlate
except ImportError:
    def correlate(image, kernel, mode):
        """Cross-correlation by Fourier transforms."""
        shape = [i + k - 1 for i, k in zip(image.shape, kernel.shape, strict=True)]
        product = np.fft.rfftn(image, shape) * np.fft.rfftn(kernel[::-1, ::-1], shape)
        whole = np.fft.irfftn(product, shape)
        cut = [slice((k - 1) // 2, (k - 1) // 2 + i) for i, k in zip(image.shape, kernel.shape, strict=True)]
        return whole[tuple(cut)] if mode == "same" else whole[tuple(slice(k - 1, i) for i, k in
                                                                    zip(image.shape, kernel.shape, strict=True))]


def put(file, name, values, layout):
    file[name] = values.astype(np.float32)
    file[name].attrs["layout"] = layout


with h5py.File("fixture.h5") as fixture, h5py.File("result.h5", "w") as result:
    result.attrs.update(format="cnn-exchange", format_version=1, role="candidate")
    a = fixture["batches/0/input"][()].transpose(0, 2, 3, 1).astype(float)                 # (n, h, w, c)
    for layer in (1, 2, 3):
        w, b = (fixture[f"steps/0/weights/conv{layer}/{kind}"][()].astype(float) for kind in ("weight", "bias"))
        z = np.stack([np.stack([sum(correlate(image[..., c], w[k, c], mode="same") for c in range(w.shape[1])) + b[k]
                                for k in range(w.shape[0])], -1) for image in a])          # (n, h, w, k)
        put(result, f"steps/0/forward/conv{layer}", z, "NHWC")
        if layer == 3:
            break
        a = np.maximum(z, 0)
        put(result, f"steps/0/forward/relu{layer}", a.transpose(3, 1, 2, 0), "chwn")
    dz = fixture["steps/0/grads/conv3/output"][()].transpose(0, 2, 3, 1).astype(float)
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
    dw = np.stack([sum(correlate(image[..., c], one[..., 0], mode="valid") for image, one in
                       zip(padded, dz, strict=True)) for c in range(a.shape[3])], -1)      # (r, s, c)
    put(result, "steps/0/grads/conv3/weight", dw[..., None], "RSCK")
