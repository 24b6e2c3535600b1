# SPDX-License-Identifier: MIT
"""Why HDF5 cannot open a file on a file system without locks, which it does not say itself."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile

#: What flock answers there: NFS without its lock daemon, and others
WITHOUT = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
HINT = " (this file system has no locks, which HDF5 wants: set the variable HDF5_USE_FILE_LOCKING=FALSE)"


def lock_hint(path: str) -> str:
    """Return what to add to the message of a file that HDF5 cannot open or make; nothing where locks are no reason.

    >>> lock_hint("no/such/folder/file.h5")
    ''
    """
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return ""
    try:
        folder = os.path.dirname(path) or "."
        with open(path, "rb") if os.path.isfile(path) else tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return HINT if error.errno in WITHOUT else ""
    return ""
