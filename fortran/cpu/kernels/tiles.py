# SPDX-License-Identifier: MIT
"""Write each tile as a subroutine: ``tiles.py TEMPLATE OUTPUT``, or the names of all: ``tiles.py TEMPLATE``.

Meson calls it. Tiles with the same body and the same arguments stand below each other, each with its constants:

    include "tile_result.inc" for tiles(points, offsets, x, w, ldy, y)
       tile_4: filters = 4, vectors = vectors_4
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

GROUP = re.compile(r'^   include "([\w/]+\.inc)" for tiles\(([^)]*)\)\n((?:      \w+: .*\n)+)', re.MULTILINE)
TILE = re.compile(r"^      (\w+): (.*)$", re.MULTILINE)


def expanded(text: str) -> str:
    """Return the text with its tiles as subroutines.

    >>> print(expanded('   include "body.inc" for tiles(x, y)\\n      tile_4: width = 4\\n'), end="")
       subroutine tile_4(x, y)
          integer, parameter :: width = 4
          include "body.inc"
       end subroutine tile_4
    """
    def tiles(group: re.Match[str]) -> str:
        body, arguments, rows = group.groups()
        return "\n".join(
            f"   subroutine {name}({arguments})\n      integer, parameter :: {constants}\n"
            f'      include "{body}"\n   end subroutine {name}\n' for name, constants in TILE.findall(rows))

    return GROUP.sub(tiles, text)


def names(text: str) -> list[str]:
    """Return the names of all tiles."""
    return [name for group in GROUP.finditer(text) for name, _ in TILE.findall(group[3])]


def main() -> None:
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(expanded(text), encoding="utf-8")
    else:
        print(*names(text))


if __name__ == "__main__":
    main()
