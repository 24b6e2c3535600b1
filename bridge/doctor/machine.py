# SPDX-License-Identifier: MIT
"""What the machine shows of NVIDIA GPUs, without any CUDA library: the bus, the kernel's driver, nvidia-smi."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.doctor.isolated import printable, run
from bridge.doctor.records import Row, Section, State

NVIDIA = "0x10de"
QUERY = ("--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader")


@dataclass(frozen=True)
class Machine:
    """What can be seen from outside.

    Attributes
    ----------
    cards : PCI addresses of NVIDIA's graphics cards; None where the bus cannot be seen
    module : what the kernel's driver says of itself, "" where it is not loaded
    smi : lines of nvidia-smi, or one that says why there are none
    system : ID of /etc/os-release, such as "debian"
    contained : in a container
    """

    cards: list[str] | None
    module: str
    smi: list[str] = field(default_factory=list)
    smi_works: bool = False
    system: str = ""
    contained: bool = False

    @property
    def has_no_gpu(self) -> bool:
        """Return whether nothing speaks for one."""
        return self.cards == [] and not self.module and not self.smi_works and not Path("/dev/dxg").exists()


def look(limit: float) -> Machine:
    """Ask the system; `limit` in seconds is for nvidia-smi, which a broken driver holds for ever."""
    lines, works = _nvidia_smi(limit)
    return Machine(_cards(), _first_line("/proc/driver/nvidia/version"), lines, works, _system(),
                   any(Path(name).exists() for name in ("/.dockerenv", "/run/.containerenv")))


def section(machine: Machine) -> Section:
    """Return the section of the report."""
    if machine.cards is None:
        rows = [Row("PCI bus", "cannot be seen", State.ABSENT)]
    elif machine.cards:
        rows = [Row("PCI bus", f"NVIDIA GPU at {', '.join(machine.cards)}", State.GOOD)]
    else:
        rows = [Row("PCI bus", "no NVIDIA GPU", State.ABSENT)]
    rows.append(Row("kernel driver", machine.module or "not loaded", State.GOOD if machine.module else State.ABSENT))
    state = State.GOOD if machine.smi_works else State.ABSENT
    rows += [Row("nvidia-smi", line, state) for line in machine.smi]
    return Section("GPUs as the system sees them", rows)


def _cards(root: str = "/sys/bus/pci/devices") -> list[str] | None:
    """Class 03 is a display controller: 0x0300 VGA, 0x0302 3D."""
    found = []
    try:
        for device in sorted(Path(root).iterdir()):
            with suppress(OSError):
                vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
                if vendor == NVIDIA and kind.startswith("0x03"):
                    found.append(device.name)
    except OSError:
        return None
    return found


def _first_line(path: str) -> str:
    with suppress(OSError):
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        return printable(lines[0].strip()) if lines else ""
    return ""


def _nvidia_smi(limit: float) -> tuple[list[str], bool]:
    with tempfile.TemporaryFile() as output:
        try:
            status = run(["nvidia-smi", *QUERY], limit, output)
        except OSError:
            return ["not on the search path"], False
        output.seek(0)
        lines = [printable(line.strip()) for line in output.read().decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    if status is None:
        return [f"no answer within {limit:g} s"], False
    return (lines, True) if status == 0 and lines else (lines[:1] or [f"exit status {status}"], False)


def _system() -> str:
    with suppress(OSError, AttributeError):
        return platform.freedesktop_os_release().get("ID", "")
    return ""


def driver_command(machine: Machine) -> str:
    """Return how the driver gets onto this machine, or the GPU into this container."""
    if machine.has_no_gpu:
        return "this machine shows no NVIDIA GPU; run on one that has one"
    if machine.contained:
        return "start the container with the GPU: docker run --gpus all ..."
    if Path("/dev/dxg").exists():
        return "install NVIDIA's driver for Windows on the host of this WSL"
    commands = {
        "debian": "sudo apt install nvidia-driver   (from non-free)",
        "ubuntu": "sudo ubuntu-drivers install",
        "fedora": "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda   (from RPM Fusion)",
        "arch": "sudo pacman -S nvidia-open nvidia-utils",
    }
    return commands.get(machine.system, "install NVIDIA's driver: https://www.nvidia.com/drivers")


def first_file(folders: str, names: list[str]) -> str:
    """Return the first file of these names in folders that are separated by colons; "" where there is none."""
    for folder in filter(None, folders.split(":")):
        for name in names:
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return ""


def major(text: str) -> int:
    """Return the major number of a version; 0 where there is none.

    Examples
    --------
    >>> major("13.0"), major("")
    (13, 0)
    """
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
