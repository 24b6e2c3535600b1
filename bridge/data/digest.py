# SPDX-License-Identifier: MIT
"""Whether image files are still the ones that they were: a hash of each, cheap for files of any size."""

from __future__ import annotations

import hashlib
import os

from bridge.common.parallel import in_order
from bridge.data.find import file_and_dataset
from bridge.data.images import Images

#: A file of so many bytes is read whole; of a larger one the first and the last, and `SAMPLES` pieces in between
WHOLE, HEAD, TAIL, SAMPLES, PIECE = 1 << 18, 1 << 16, 1 << 12, 16, 1 << 12


def digest(path: str) -> str:
    """Return a hash of a file's size and content; of a large one of its header, its end, and pieces at even distances.

    Another image in its place, another shape or type change it. A few pixels of a large file may not; nor does its
    time, which copies change.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     before = digest(file.name)
    ...     _ = file.write(b"x"), file.flush()
    ...     before == digest(file.name)
    False
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        made = hashlib.sha256(str(size).encode())
        if size <= WHOLE:
            made.update(file.read())
        else:
            distance = (size - HEAD - TAIL) // SAMPLES
            pieces = [(HEAD + k * distance, PIECE) for k in range(SAMPLES)]
            for place, length in ((0, HEAD), *pieces, (size - TAIL, TAIL)):
                made.update(os.pread(file.fileno(), length, place))
    return made.hexdigest()[:32]


def digests(images: Images) -> list[tuple[str, str]]:
    """Return the files of images in their order, each with its `digest`."""
    return list(in_order(lambda stack: (stack.name, digest(file_and_dataset(stack.name)[0])), images.stacks))
