# SPDX-License-Identifier: MIT
"""How good is a network on a batch: Fourier ring correlation, peak signal to noise, and an image to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.data import Batch
from bridge.engine.arrays.transfer import to_device, to_host
from bridge.engine.network.network import Network
from bridge.train.ring_correlation import RingCorrelation, ring_correlation


@dataclass(frozen=True, eq=False)
class Quality:
    """Of a batch's first channels.

    Attributes
    ----------
    noisy, denoised : float32, shape (h, w)
        Input and output of the first image.
    before, after : RingCorrelation
        Means over the batch: of noise2noise between the halves of a pair as they are, and between what the network
        makes of each; else of input and target, and of output and target.
    psnr : (float, float) or None
        Peak signal to noise ratio of inputs and of outputs, in dB, the peak being the targets' range; None with
        noise2noise, where nothing clean is known.
    """

    noisy: np.ndarray
    denoised: np.ndarray
    before: RingCorrelation
    after: RingCorrelation
    psnr: tuple[float, float] | None = None


def quality(network: Network, batch: Batch, *, symmetric: bool) -> Quality | None:
    """Return how good a network is on a batch; None where its outputs are no finite images of the inputs' shape.

    Parameters
    ----------
    network : in evaluation mode
    symmetric : whether targets are noisy as inputs are, as in noise2noise
    """
    output = _output(network, batch.input)
    if not output.shape == batch.input.shape == batch.target.shape or min(output.shape[2:]) < 4:
        return None
    other = _output(network, batch.target) if symmetric else batch.target
    if not (np.isfinite(output).all() and np.isfinite(other).all()):
        return None
    psnr = None if symmetric else (_psnr(batch.input, batch.target), _psnr(output, batch.target))
    return Quality(batch.input[0, 0].copy(), output[0, 0].copy(), _mean(batch.input, batch.target),
                   _mean(output, other), psnr)


def _output(network: Network, images: np.ndarray) -> np.ndarray:
    found: np.ndarray = to_host(network.forward(to_device(images, network.device)))
    return found


def _mean(ones: np.ndarray, others: np.ndarray) -> RingCorrelation:
    """Mean correlations of pairs of images, which are all of one shape."""
    every = [ring_correlation(one[0], other[0]) for one, other in zip(ones, others, strict=True)]
    return RingCorrelation(every[0].frequency, np.mean([one.correlation for one in every], axis=0))


def _psnr(found: np.ndarray, target: np.ndarray) -> float:
    """
    >>> _psnr(np.array([0.0, 1.1]), np.array([0.1, 1.1]))
    23.010299956639813
    """
    error = float(np.mean(np.square(found - target, dtype=np.float64)))
    return float(10 * np.log10(float(np.ptp(target)) ** 2 / error)) if error else float("inf")
