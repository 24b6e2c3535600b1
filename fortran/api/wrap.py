# SPDX-License-Identifier: MIT
"""Write the Python wrappers of Fortran modules: ``wrap.py FOLDER FACE.f90 ...`` (called by meson).

f90wrap and f2py write into the current folder and talk a lot; here they write into FOLDER and are
heard only when they fail.
"""

import re
import subprocess
import sys
from pathlib import Path

#: Those of training.f90 that compute for long. They call no Python, and each works on a network of its own
LONG = ("network_forward", "network_loss", "network_backward", "network_update", "network_step", "network_step_fed",
        "network_read_loss")


def run(module: str, *arguments: str, folder: Path) -> None:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def _release_interpreter(wrapper: Path, procedure: str) -> None:
    """Let other Python threads run while this procedure does: f2py's word for it, at its head."""
    head = re.compile(rf"^(subroutine f90wrap_\w*__{procedure}\(.*?[^&])\n", re.MULTILINE | re.DOTALL)
    text, found = head.subn(r"\1\n!f2py threadsafe\n", wrapper.read_text(encoding="utf-8"))
    if found != 1:
        sys.exit(f"{wrapper}: {found} procedures {procedure}, expected one")
    wrapper.write_text(text, encoding="utf-8")


def main() -> None:
    folder, sources = Path(sys.argv[1]), [Path(name).resolve() for name in sys.argv[2:]]
    run("f90wrap", "-m", "cnn_fortran", *map(str, sources), folder=folder)
    # Not f90wrap's own f2py: its calls change the handler of Ctrl-C before and after, which takes as long as the rest,
    # and jump out of the middle of Fortran, from whatever thread the signal came to
    for name in LONG:
        _release_interpreter(folder / "f90wrap_training.f90", name)
    wrappers = [f"f90wrap_{source.name}" for source in sources]
    run("numpy.f2py", "--lower", "-m", "_cnn_fortran", *wrappers, folder=folder)


if __name__ == "__main__":
    main()
