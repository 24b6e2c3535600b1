# SPDX-License-Identifier: MIT
"""Arithmetic classes: algorithms that are no sums of products in some order, each with a bound and a name of its own.

`E = s(n)*c` is a theorem about sums of products. Transforms mix the neighbours of an element into it, and what they
round is not a part of c: where c is 0 it is not. Each class says how far a right program of it may be from the exact
result besides that, its *noise*, and what it makes of operands in float32, so that errors can be compared with it.
"""

from __future__ import annotations

from bridge.judge.oracle.algorithm import Algorithm
from bridge.judge.oracle.fourier import Fourier
from bridge.judge.oracle.split_products import Split
from bridge.judge.oracle.strassen import Strassen
from bridge.judge.oracle.winograd import winograd

#: By name, the accurate ones first
ALGORITHMS: dict[str, Algorithm] = {one.name: one for one in (
    *(winograd(m, (3, 3)) for m in ((1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (4, 4), (1, 6), (6, 1), (6, 6))),
    *(winograd((m, m), (5, 5)) for m in (2, 4)),
    *(Fourier(f"FFT tiles of {n}x{n}", "fft", n) for n in (8, 16, 32)),
    Fourier("FFT", "fft"),
    Strassen("Strassen, one level", "strassen", 1),
    Strassen("Strassen, two levels", "strassen", 2),
    Split("three bf16 products", "split", 7),
)}

#: What may be allowed
FAMILIES = tuple(dict.fromkeys(one.family for one in ALGORITHMS.values()))
